"""Simulated reports through the real programs: clients, HTTP, a collector process.

Some reports may come from real clients, one each; the others are posted in batches. All files are
in one folder, which is emptied of what an earlier simulation left.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from hubbub.client import Telemetry
from hubbub.inference import ByteArray, IntArray
from hubbub.protocol import Batch, HubbubError, Metric, Registry, Report, Value, batch_to_json

_MARK = ".hubbub-simulate"
_PRECIOUS = ("hubbub.db", "metrics.toml", "decode.toml", "collector.toml")
"""Files that simulations overwrite and that a real service's folder has."""


class FolderError(HubbubError):
    """A folder that has files of somebody else."""


def start_afresh(folder: Path, old: Iterable[str] = ("hubbub.db*",)) -> None:
    """Remove the stores of an earlier simulation; `FolderError` for those of somebody else."""
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
        """Return the base address of the admin listener, from the second line; once."""
        return _announced_address(self.process, "admin on ")

    def read_probe_url(self) -> str:
        """Return the base address of the probes' listener, from the line after that."""
        return _announced_address(self.process, "probes on ")

    def stop(self) -> None:
        """Ask it to drain and end (SIGTERM)."""
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
    """Serve a registry on a free port of the loopback interface until the context closes.

    `database` is SQLite's file, or the address of any store. Raises `ProcessError` if the collector
    doesn't start, or ends with an error.
    """
    command = [sys.executable, *program, *serve_arguments(metrics, database, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    with listening(process) as collector:
        yield collector


def serve_arguments(metrics: Path, database: Path | str, options: Sequence[str]) -> list[str]:
    """Return the command line that serves on a free port of the loopback interface."""
    store = database if isinstance(database, str) else f"sqlite:///{database}"
    return ["serve", "--metrics", str(metrics), "--store", store, "--port", "0", *options]


@contextmanager
def listening(process: subprocess.Popen[str]) -> Iterator[Collector]:
    """Wait until a collector serves, and stop it when the context closes."""
    with process:
        try:
            collector = Collector(_announced_address(process), process)
            yield collector
            if process.poll() is None:
                collector.stop()
        finally:
            process.kill()


def _announced_address(process: subprocess.Popen[str], words: str = "listening on ") -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line.startswith(words):
        raise ProcessError("hubbub-collector didn't start; its errors are above")
    return line.split()[-1]


_THREADS = 16  # clients wait for answers most of the time
_CONNECTIONS = 16  # enough that a collector always has a batch to take
_BATCH = 500  # reports; a client sends some, a proxy that gathers them hundreds
_CLIENT_SECONDS = 60.0  # an answer takes milliseconds: after this the collector hangs
_Progress = Callable[[int, int], None]


class UploadError(Exception):
    """The collector didn't take a report that it should have taken."""


def report_through_clients(
    registry: Registry, metric: str, values: Sequence[Value], url: str, progress: _Progress
) -> None:
    """Let one real `Telemetry` client, with a secret of its own, report each value."""
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-clients-") as states,
        ThreadPoolExecutor(_THREADS) as pool,
    ):

        def report(client: int) -> None:
            telemetry = Telemetry(registry, url, Path(states, str(client)))
            telemetry.record(metric, values[client])
            telemetry.close(_CLIENT_SECONDS)
            if telemetry.status().delivered != 1:
                raise UploadError(f"a client could not deliver: {telemetry.status()}")

        for done, _ in enumerate(pool.map(report, range(len(values))), start=1):
            progress(done, len(values))


async def upload_reports(
    metric: Metric, cohorts: IntArray, bits: ByteArray, url: str, progress: _Progress
) -> None:
    """Post reports in batches, several at a time; `UploadError` for any answer but 201."""
    starts = iter(range(0, len(cohorts), _BATCH))
    done = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal done
        for start in starts:
            rows = slice(start, start + _BATCH)
            reports = tuple(
                Report(metric.name, metric.version, int(cohort), row.tobytes())
                for cohort, row in zip(cohorts[rows], bits[rows], strict=True)
            )
            try:
                async with session.post(
                    f"{url}/v1/reports",
                    data=batch_to_json(Batch(reports)),
                    headers={"Content-Type": "application/json"},
                ) as response:
                    status, answer = response.status, await response.text()
            except aiohttp.ClientError as error:
                raise UploadError(f"collector: {error}") from error
            if status != 201:
                raise UploadError(f"collector: {status} {answer}")
            done += len(reports)
            progress(done, len(cohorts))

    try:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(work(session))
    except ExceptionGroup as group:  # the connections fail together; one says it
        raise group.exceptions[0] from None
