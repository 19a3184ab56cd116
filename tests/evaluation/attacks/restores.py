"""Restore a client's state again and again, in every way that a user might, and count answers.

A one-time metric is to be reported once in a client's life, also by a client whose state was set
back. `cp -a` into the folder keeps the files' inodes; what it can't keep is their time of change.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from evaluation.attacks.outcome import Outcome
from factories import make_metric, make_params
from http_servers import ScriptedServer, scripted_server
from service.apps import App

_ONCE = make_metric("once", params=make_params(f=0.0), one_time=True)
_APP = """
with open_telemetry() as telemetry:
    telemetry.record("once", "x")
    telemetry.flush(60)
"""


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Count the one-time reports of a client whose state is set back before each start."""
    times = 3 if quick else 20
    for how, restore in _RESTORES.items():
        reports = _reports_after_restores(restore, times)
        yield Outcome(f"one-time reports, state restored {times} times by {how}", reports, 1)


def _reports_after_restores(restore: Callable[[Path, Path], None], times: int) -> int:
    with tempfile.TemporaryDirectory() as name, scripted_server() as server:
        folder = Path(name)
        app, backup = App(folder, server.url, make_metric(), _ONCE), folder / "backup"
        app.run("open_telemetry().close()")  # makes the state, and reports nothing
        _run("cp", "-a", app.state, backup)
        for _ in range(times):
            app.run(_APP)
            restore(backup, app.state)
        app.run(_APP)
        return _once(server)


def _once(server: ScriptedServer) -> int:
    return sum(report["metric"] == "once" for report in server.reports)


def _in_place(backup: Path, state: Path) -> None:
    _run("cp", "-a", f"{backup}/.", f"{state}/")


def _in_place_without_attributes(backup: Path, state: Path) -> None:
    _run("cp", "-r", f"{backup}/.", f"{state}/")


def _from_an_archive(backup: Path, state: Path) -> None:
    archive = state.with_name("backup.tar")
    _run("tar", "--create", "--file", archive, "--directory", backup, ".")
    _run("tar", "--extract", "--overwrite", "--file", archive, "--directory", state)


def _instead(backup: Path, state: Path) -> None:
    shutil.rmtree(state)
    _run("cp", "-a", backup, state)


_RESTORES: dict[str, Callable[[Path, Path], None]] = {
    "cp -a": _in_place,
    "cp -r": _in_place_without_attributes,
    "tar --overwrite": _from_an_archive,
    "rm -r and cp -a": _instead,
}


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)
