"""Apps that embed the client, as real processes: started, ended in every way, looked into."""

import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from factories import registry_toml
from http_servers import Answer, ScriptedServer
from hubbub.client import Metric

NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there
SLACK = 20.0  # seconds that a busy machine may take for what takes no time

_PRELUDE = """
import os, signal, sys, threading, time
from hubbub.client import Telemetry

def open_telemetry(**options):
    return Telemetry(sys.argv[1], sys.argv[2], sys.argv[3], **options)

def record(telemetry, count, metric="homepage"):
    for _ in range(count):
        telemetry.record(metric, "x")
"""
_SECONDS = 120.0


class Gate:
    """A script of a server that hangs until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, _number: int) -> Answer:
        self.opened.wait(60)
        return Answer()


@dataclass(frozen=True, slots=True)
class Ended:
    """How an app ended."""

    code: int
    # Its lines on standard output; it tells its last moment by `print(time.monotonic())`.
    output: list[str]
    at: float  # when it had ended, on the same clock

    @property
    def farewell_seconds(self) -> float:
        """How long the app lived on after it had nothing more to do."""
        return self.at - float(self.output[-1])


class App:
    """One app on one machine: its registry, its state directory, and where it reports to."""

    def __init__(self, folder: Path, url: str, *metrics: Metric) -> None:
        self.folder = folder
        self.url = url
        self.state = folder / "state"
        self._metrics = folder / "app.toml"
        self._metrics.write_text(registry_toml(*metrics), encoding="utf-8")

    @contextmanager
    def started(self, script: str, *, stdin: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Run a script, which is killed if it hasn't ended when the context closes."""
        with tempfile.NamedTemporaryFile(
            "w", suffix=".py", dir=self.folder, delete=False, encoding="utf-8"
        ) as file:
            file.write(_PRELUDE + script)
        command = [sys.executable, file.name, str(self._metrics), self.url, str(self.state)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, script: str, *, codes: Collection[int] = (0,)) -> Ended:
        """Run a script to its end, which must come with one of these exit codes."""
        with self.started(script) as process:
            output, _ = process.communicate(timeout=_SECONDS)
            ended = Ended(process.returncode, output.splitlines(), time.monotonic())
        assert ended.code in codes
        return ended

    def records_on_disk(self) -> list[bytes]:
        return records_on_disk(self.state)

    def reports_in_ledger(self) -> int:
        """Return how many reports ever reached the disk, which is what the client has paid for."""
        with closing(sqlite3.connect(self.state / "client.db")) as connection:
            query = "SELECT coalesce(sum(reports), 0) FROM answers"
            return int(connection.execute(query).fetchone()[0])


def records_on_disk(state: Path) -> list[bytes]:
    """Return what waits in an outbox, as the collector would store it."""
    path = state / "client.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("BEGIN")
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            return []  # it is being made
        rows = connection.execute("SELECT record FROM reports ORDER BY id").fetchall()
    return [record for (record,) in rows]


@contextmanager
def held_database(folder: Path) -> Iterator[None]:
    """Let another connection be in a transaction until the context closes."""
    with closing(sqlite3.connect(folder / "client.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def bytes_on_disk(folder: Path) -> list[bytes]:
    """Return the content of all files, read at one moment, although threads remove some."""
    while True:
        names = sorted(folder.rglob("*"))
        with contextlib.suppress(FileNotFoundError):
            contents = [path.read_bytes() for path in names if path.is_file()]
            if names == sorted(folder.rglob("*")):
                return contents


def next_line(process: subprocess.Popen[str]) -> str:
    """Wait for an app to say something."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the app has ended"
    return line.strip()


def contents_by_id(server: ScriptedServer) -> dict[str, set[bytes]]:
    """Return all that was ever sent under each batch id."""
    contents: dict[str, set[bytes]] = {}
    for request in server.received:
        batch = request.batch
        contents.setdefault(batch["batch_id"], set()).add(json.dumps(batch).encode())
    return contents
