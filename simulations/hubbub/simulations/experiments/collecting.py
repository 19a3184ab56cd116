"""Simulated reports through the real programs: HTTP, a collector process, the decoder's command.

Some reports may come from real clients, one each; the others are posted in batches. All files are
in one folder, which is emptied of what an earlier simulation left.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np

from hubbub.client import Telemetry
from hubbub.inference import ByteArray, IntArray
from hubbub.protocol import Batch, HubbubError, Metric, Registry, Report, Value, batch_to_json
from hubbub.simulations.experiments.experiment import Experiment, ExperimentOutcome, judge_estimates
from hubbub.simulations.experiments.scoring import DecodedShares
from hubbub.simulations.simulated_clients.population_sampler import Reporter, chunks

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


def run_decoder(
    arguments: Sequence[str], *, shown: bool = False, accepted: Collection[int] = (0,)
) -> None:
    """Run `hubbub-decoder` to its end; its output goes nowhere unless it is to be `shown`."""
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


_METRIC = "simulated"
_THREADS = 16  # clients wait for answers most of the time
_CONNECTIONS = 16  # enough that a collector always has a batch to take
_BATCH = 500  # reports; a client sends some, a proxy that gathers them hundreds
_CLIENT_SECONDS = 60.0  # an answer takes milliseconds: after this the collector hangs
_Progress = Callable[[int, int], None]


class UploadError(Exception):
    """The collector didn't take a report that it should have taken."""


class UnlistableError(Exception):
    """A candidate that a file of one string per line can't hold at its place."""


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


def run_through_collector(
    experiment: Experiment,
    folder: Path,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ExperimentOutcome:
    """Send all reports to a collector, as of one day, decode its store, and score the result.

    Raises `UnlistableError` if a candidate holds a line break, or the first begins with a byte
    order mark; `ProcessError, UploadError` if a part of the system fails.
    """
    metrics = _prepare(folder, experiment)
    metric = Registry.load(metrics)[_METRIC]
    holders = np.zeros(len(experiment.scenario.population.values), dtype=np.int64)
    with running_collector(metrics, folder / "hubbub.db", ["--log-level", "warning"]) as collector:

        def upload(cohorts: IntArray, bits: ByteArray) -> None:
            asyncio.run(upload_reports(metric, cohorts, bits, collector.url, lambda _d, _t: None))

        reporter = Reporter(experiment.plan, experiment.people)
        parts = chunks(experiment.plan, experiment.people)
        for done, chunk in enumerate(parts, start=1):
            for day in reporter.days(chunk):
                upload(day.cohorts, day.bits)
                holders += np.bincount(day.held, minlength=len(holders))
            progress(done, len(parts))
        for cohorts, bits in experiment.forgeries():
            upload(cohorts, bits)
    where = ("--metrics", str(metrics), "--store", f"sqlite:///{folder}/hubbub.db")
    names = ["--min-reports", "1", "--estimand", "reports"]
    if experiment.scenario.candidates:
        names += ["--candidates", str(folder / "candidates.txt")]
    how = ("--correction", experiment.correction, "--alpha", str(experiment.alpha))
    output = ("--method", experiment.method, "--output", str(folder / "estimates.json"))
    run_decoder(["decode", _METRIC, *where, *names, *how, *output])
    rows, estimates = DecodedShares.read(folder / "estimates.json")
    return judge_estimates(experiment, holders, rows, estimates)


def _prepare(folder: Path, experiment: Experiment) -> Path:
    start_afresh(folder)
    strings = experiment.scenario.candidates
    if any("\n" in string or "\r" in string for string in strings):
        raise UnlistableError("a candidate holds a line break: only --through memory can take it")
    if strings and strings[0].startswith("\ufeff"):
        raise UnlistableError(
            "the first candidate begins with a byte order mark: only --through memory can take it"
        )
    (folder / "candidates.txt").write_text("\n".join(strings) + "\n", encoding="utf-8")
    params, open_type = experiment.params, experiment.plan.open_type
    entries: dict[str, object] = {"k": params.k, "h": params.h, "m": params.m, **params.noise}
    if experiment.plan.period_days:
        entries["period_days"] = experiment.plan.period_days
    if open_type is not None:
        entries |= {"steps": list(open_type.steps), "m": open_type.cohorts}
    lines = [
        'application = "org.example.simulation"',
        f"[metrics.{_METRIC}]",
        "version = 1",
        f'type = "{open_type.name if open_type else "string"}"',
        'description = "Made-up strings of a simulated population"',
        'owner = "simulation@example.org"',
        "expires = 2099-12-31",
        *(f"{name} = {value}" for name, value in entries.items()),
        f'mode = "{experiment.plan.mode}"',
    ]
    metrics = folder / "metrics.toml"
    metrics.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return metrics
