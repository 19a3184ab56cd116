"""The real programs as child processes: a collector to post to, a decoder to run.

Folders that simulations fill, and empty of what an earlier one left.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hubbub.protocol.errors import HubbubError

_MARK = ".hubbub-simulate"
_PRECIOUS = ("hubbub.db", "metrics.toml", "decode.toml", "collector.toml")
"""What simulations write over and a folder of somebody's own service has."""


class FolderError(HubbubError):
    """A folder that has files of somebody else."""


def start_afresh(folder: Path, old: Iterable[str] = ("hubbub.db*",)) -> None:
    """Remove the stores that an earlier simulation left.

    `folder`: exists. `old`: patterns of the files that go. Raises `FolderError` if the folder has a
    store or settings that no simulation made. Raises `OSError` if something can't be removed.
    """
    mark = folder / _MARK
    if not mark.exists():
        for name in _PRECIOUS:
            if (folder / name).exists():
                raise FolderError(
                    f"{folder / name}: no simulation made it, and this one would replace it; "
                    "name another folder"
                )
        mark.touch()
    for pattern in old:
        for path in folder.glob(pattern):
            path.unlink()


_STOP_SECONDS = 60.0  # twice the collector's own drain_seconds


class ProcessError(Exception):
    """A program that should have worked ended with an error."""


@dataclass(frozen=True, slots=True)
class Collector:
    """A running `hubbub-collector serve`."""

    url: str  # its base address on the loopback interface
    process: subprocess.Popen[str]

    def read_admin_url(self) -> str:
        """Return the base address of the admin listener, which is told on the second line; once.

        Raises `ProcessError` if it has no admin listener.
        """
        return _announced_address(self.process, "admin on ")

    def read_probe_url(self) -> str:
        """Return the base address of the probes' listener, which is told on the line after that.

        Raises `ProcessError` if it has no such listener.
        """
        return _announced_address(self.process, "probes on ")

    def stop(self) -> None:
        """Ask it to drain and end (SIGTERM).

        Raises `ProcessError` if it ends with an error.
        """
        self.process.terminate()
        if code := self.process.wait(_STOP_SECONDS):
            raise ProcessError(f"hubbub-collector ended with exit code {code}")


@contextmanager
def running_collector(
    metrics: Path,
    database: Path | str,
    options: Sequence[str] = (),
    program: Sequence[str] = ("-m", "hubbub.collector"),
) -> Iterator[Collector]:
    """Serve on a free port of the loopback interface until the context closes.

    `metrics`: the registry. `database`: SQLite's file, or the address of any store. `options`: more
    of the command line, such as ["--workers", "2"]. `program`: what Python runs. Raises
    `ProcessError` if the collector doesn't start, or ends with an error.
    """
    command = [sys.executable, *program, *serve_arguments(metrics, database, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    with listening(process) as collector:
        yield collector


def serve_arguments(metrics: Path, database: Path | str, options: Sequence[str]) -> list[str]:
    """Return the command line that serves on a free port of the loopback interface.

    `metrics`: the registry. `database`: SQLite's file, or the address of any store. `options`: more
    of the command line.
    """
    store = database if isinstance(database, str) else f"sqlite:///{database}"
    return ["serve", "--metrics", str(metrics), "--store", store, "--port", "0", *options]


@contextmanager
def listening(process: subprocess.Popen[str]) -> Iterator[Collector]:
    """Wait until a collector serves, and stop it when the context closes.

    `process`: its standard output is a pipe. Raises `ProcessError` if the collector doesn't start,
    or ends with an error.
    """
    with process:
        try:
            collector = Collector(_announced_address(process), process)
            yield collector
            if process.poll() is None:
                collector.stop()
        finally:
            process.kill()


def run_decoder(
    arguments: Sequence[str], *, shown: bool = False, accepted: Collection[int] = (0,)
) -> None:
    """Run `hubbub-decoder` to its end; its errors go to standard error.

    `shown`: whether what it prints goes to standard output, instead of nowhere. `accepted`: exit
    codes that are no failure. Raises `ProcessError` if it fails.
    """
    command = [sys.executable, "-m", "hubbub.decoder", *arguments]
    output = None if shown else subprocess.DEVNULL
    code = subprocess.run(command, stdout=output, check=False).returncode  # noqa: S603
    if code not in accepted:
        raise ProcessError(f"hubbub-decoder ended with exit code {code}")


def _announced_address(process: subprocess.Popen[str], words: str = "listening on ") -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line.startswith(words):
        raise ProcessError("hubbub-collector didn't start; its errors are above")
    return line.split()[-1]
