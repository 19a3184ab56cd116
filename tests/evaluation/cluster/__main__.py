"""`python -m evaluation.cluster`: a whole service on one machine, with one of each process killed.

Two collectors with two workers each store in one PostgreSQL what simulated clients, and some real
ones, report over HTTP. Meanwhile a worker, a collector, the database, a process of the simulated
clients and that of the real ones are killed and started again. Then all is exported to a server
that speaks S3, while the export and that server are killed, and decoded from there by an engine, of
which a process is killed, too. Fails if a report was lost or counted twice, if the counts of any
bit differ from what the clients sent, if the table differs from that of a local decoding, or if it
differs from the truth by more than its error rates say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table

from databases import PostgresqlServer, running_postgresql
from evaluation.cluster import apps, fleet
from evaluation.cluster.object_store import ObjectStore
from evaluation.cluster.processes import ClusterError, Program, Service, descendants, wait_for
from factories import make_metric, make_params, registry_toml
from hubbub.decoder.arrays import IntArray
from hubbub.decoder.counts import CohortCounts, empty_counts
from hubbub.decoder.formats.terminal import stdout_console
from hubbub.decoder.reports.loading import load_counts
from hubbub.protocol.metrics import Metric
from hubbub.simulations.experiments.scoring import DecodedShares, Score, score
from hubbub.simulations.populations import census_first_names, census_names
from service.faults import kill

_METRIC = make_metric("first_name")
_ANSWER = make_metric("answer", params=make_params(f=0.0), one_time=True)
_FLEETS = 2
_MOST_PART, _LEAST_PARTS = 200_000, 20
_SEED = 20261123
_ALPHA = "1e-6"
"""Bound on the chance that any name is falsely detected."""
_LEAST_COVERAGE = 0.94
_SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB", "autovacuum": "on"}
_ENGINE_PROCESS = {"spark": "pyspark.daemon", "dask": "spawn_main"}
"""In the command of an engine's processes that compute."""


class Timetable:
    """What was done, and how long it took; told on standard error as it happens."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float]] = []
        self._begun = time.perf_counter()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Time a step."""
        begun = time.perf_counter()
        yield
        self.rows.append((what, time.perf_counter() - begun))
        self.note(what)

    def note(self, what: str) -> None:
        """Tell what happened."""
        print(f"{time.perf_counter() - self._begun:5.0f} s  {what}", file=sys.stderr)


class Comparison(NamedTuple):
    """What was found, beside what was sent.

    Attributes
    ----------
    sent, decoded : int
        Reports of simulated clients.
    repeated : int
        Batches that came again and were recognised.
    wrong_counts : int
        Bits and cohorts whose count isn't that of what was sent.
    clients, answers : int
        Real clients, and the reports of them.
    wrong_cells : int
        Cells of the table that differ from those of a local decoding.
    """

    sent: int
    decoded: int
    repeated: int
    wrong_counts: int
    clients: int
    answers: int
    wrong_cells: int
    score: Score

    def faults(self) -> Iterator[str]:
        """Yield what isn't as it must be."""
        if self.decoded != self.sent:
            yield f"{self.sent:,} reports were sent, {self.decoded:,} are there"
        if self.wrong_counts:
            yield f"{self.wrong_counts:,} counts differ from what was sent"
        if self.answers != self.clients:
            yield f"{self.clients:,} real clients answered once, {self.answers:,} answers are there"
        if self.wrong_cells:
            yield f"{self.wrong_cells:,} cells differ from those of a local decoding"
        if self.score.false_positives:
            yield f"{self.score.false_positives} names were found that nobody has"
        if self.score.interval_coverage < _LEAST_COVERAGE:
            yield f"only {self.score.interval_coverage:.1%} of the 95% intervals hold the truth"

    def table(self) -> Table:
        """Return all figures."""
        table = Table("figure", "")
        score = self.score
        for figure, value in (
            ("reports sent and acknowledged", f"{self.sent:,}"),
            ("reports decoded", f"{self.decoded:,}"),
            ("batches that came again", f"{self.repeated:,}"),
            ("counts of cohorts and bits that differ", f"{self.wrong_counts:,}"),
            ("real clients", f"{self.clients:,}"),
            ("their answers", f"{self.answers:,}"),
            ("cells that differ from a local decoding's", f"{self.wrong_cells:,}"),
            ("names found", f"{score.detected:,}"),
            ("of them names that nobody has", f"{score.false_positives:,}"),
            ("total variation from the truth", f"{score.total_variation:.4f}"),
            ("95% intervals that hold the truth", f"{score.interval_coverage:.1%}"),
        ):
            table.add_row(figure, value)
        return table


def main(arguments: list[str] | None = None) -> int:
    """Run, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.cluster", description=__doc__)
    parser.add_argument("--reports", type=float, default=20e6, help="of simulated clients")
    parser.add_argument("--clients", type=int, default=200, help="real ones, of one report each")
    parser.add_argument("--engine", choices=["spark", "dask", "local"], default="spark")
    given = parser.parse_args(arguments)
    timetable = Timetable()
    try:
        with tempfile.TemporaryDirectory(prefix="hubbub-cluster-") as folder:
            found = _run(Path(folder), int(given.reports), given.clients, given.engine, timetable)
    except ClusterError as error:
        print(f"FAULT: {error}")
        return 1
    steps = Table("step", "seconds")
    for what, seconds in timetable.rows:
        steps.add_row(what, f"{seconds:.0f}")
    console = stdout_console()
    console.print(steps)
    console.print(found.table())
    faults = list(found.faults())
    for fault in faults:
        print(f"FAULT: {fault}")
    return int(bool(faults))


def _run(folder: Path, reports: int, clients: int, engine: str, timetable: Timetable) -> Comparison:
    """Report, export, decode and compare, in an empty folder."""
    registry, names, journals = folder / "metrics.toml", folder / "names.txt", folder / "journals"
    registry.write_text(registry_toml(_METRIC, _ANSWER), encoding="utf-8")
    names.write_text("\n".join(census_names()) + "\n", encoding="utf-8")
    journals.mkdir()
    part = min(_MOST_PART, -(-reports // _LEAST_PARTS))
    parts = -(-reports // part)
    with ExitStack() as stack:
        postgresql = stack.enter_context(running_postgresql())
        postgresql.stop()
        postgresql.start(**_SERVER)
        store = stack.enter_context(postgresql.new_database())
        with timetable.step("report over HTTP"), ExitStack() as collectors:
            service = Service(registry, store, collectors)
            fleets = [
                _fleet(folder, service, range(number, parts, _FLEETS), part)
                for number in range(_FLEETS)
            ]
            app = _app(folder, service, clients)
            _kill_meanwhile(journals, parts, service, postgresql, fleets, app, timetable)
        with timetable.step("export to S3"):
            objects = stack.enter_context(ObjectStore.running())
            os.environ.update(objects.environment)
            _export(store, objects, timetable)
        address = f"parquet:{objects.address}"
        with timetable.step(f"decode from S3 ({engine})"):
            _decode(folder, address, engine, folder / "there.json", timetable)
        with timetable.step("decode from PostgreSQL (local)"):
            _decode(folder, store, "local", folder / "here.json")
        with timetable.step("compare"):
            return _compare(folder, address, parts, clients)


def _fleet(folder: Path, service: Service, parts: Sequence[int], part: int) -> Program:
    """Start some of the simulated clients."""
    first = parts[0] % len(service.urls)
    task = fleet.Task(
        registry=str(folder / "metrics.toml"),
        metric=_METRIC.name,
        urls=service.urls[first:] + service.urls[:first],
        parts=list(parts),
        clients=part,
        seed=_SEED,
        journals=str(folder / "journals"),
    )
    return Program("evaluation.cluster.fleet", [json.dumps(task._asdict())])


def _app(folder: Path, service: Service, clients: int) -> Program:
    """Start the real clients."""
    task = apps.Task(
        registry=str(folder / "metrics.toml"),
        metric=_ANSWER.name,
        url=service.urls[0],
        folder=str(folder / "clients"),
        clients=clients,
    )
    return Program("evaluation.cluster.apps", [json.dumps(task._asdict())])


def _kill_meanwhile(
    journals: Path,
    parts: int,
    service: Service,
    postgresql: PostgresqlServer,
    fleets: Sequence[Program],
    app: Program,
    timetable: Timetable,
) -> None:
    """Wait until all has been sent, and kill one process after the other meanwhile."""

    def kill_database() -> None:
        postgresql.stop(at_once=True)
        postgresql.start(**_SERVER)

    kills: list[tuple[str, Callable[[], None]]] = [
        ("the real clients' app", app.kill_and_restart),
        ("a worker", service.kill_worker),
        ("a collector", service.kill_collector),
        ("the database", kill_database),
        ("a process of simulated clients", fleets[0].kill_and_restart),
    ]
    for number, (what, kill_it) in enumerate(kills):
        due = number * parts // (len(kills) + 1)
        wait_for(partial(_are_sent, journals, due), fleets)
        kill_it()
        timetable.note(f"killed {what}")
    for program in (*fleets, app):
        program.finish()


def _are_sent(journals: Path, parts: int) -> bool:
    return len(list(journals.glob("part-*[0-9].npz"))) >= parts


def _export(store: str, objects: ObjectStore, timetable: Timetable) -> None:
    """Export, though the export and the server of objects are killed meanwhile."""
    arguments = ["export", "--store", store, "--to", objects.address]
    killed = Program("hubbub.collector", arguments)
    wait_for(lambda: not (killed.is_running and objects.is_empty()))
    killed.kill()
    timetable.note("killed an export")
    failing = Program("hubbub.collector", arguments)
    objects.kill()
    timetable.note("killed the S3 server, and with it all objects")
    if failing.failure() is None:
        raise ClusterError("an export to a server that is gone must fail")
    objects.start()
    Program("hubbub.collector", arguments).finish()


def _decode(
    folder: Path, store: str, engine: str, output: Path, timetable: Timetable | None = None
) -> None:
    """Decode; with a timetable, kill a process of the engine meanwhile."""
    where = ("--metrics", str(folder / "metrics.toml"), "--store", store)
    names = ("--candidates", str(folder / "names.txt"), "--correction", "bonferroni")
    how = ("--alpha", _ALPHA, "--method", "regression", "--engine", engine)
    options = [*where, *names, *how, "--output", str(output)]
    program = Program("hubbub.decoder", ["decode", _METRIC.name, *options])
    if timetable and engine in _ENGINE_PROCESS:
        words = _ENGINE_PROCESS[engine]
        wait_for(lambda: bool(descendants(program.pid, words)), [program])
        kill(descendants(program.pid, words)[0])
        timetable.note(f"killed a process of {engine}")
    program.finish()


def _compare(folder: Path, address: str, parts: int, clients: int) -> Comparison:
    """Compare what is in S3, and both tables, with what was sent."""
    holders = np.zeros(len(census_first_names().values), dtype=np.int64)
    sent, repeated = empty_counts(_METRIC.params), 0
    for part in range(parts):
        journal = fleet.read_journal(fleet.journal_path(folder / "journals", part))
        sent += journal.counts
        holders += journal.holders
        repeated += journal.repeated
    stored = _stored(address, _METRIC)
    there = json.loads((folder / "there.json").read_text(encoding="utf-8"))["rows"]
    here = json.loads((folder / "here.json").read_text(encoding="utf-8"))["rows"]
    if len(there) != len(here):
        raise ClusterError(f"{len(there)} rows; a local decoding has {len(here)}")
    return Comparison(
        sent=sent.total,
        decoded=stored.total,
        repeated=repeated,
        wrong_counts=int((stored.reports != sent.reports).sum() + (stored.bits != sent.bits).sum()),
        clients=clients,
        answers=_stored(address, _ANSWER).total,
        wrong_cells=sum(
            _printed(row[column]) != _printed(value)
            for row, expected in zip(there, here, strict=True)
            for column, value in expected.items()
        ),
        score=_judge(folder / "there.json", holders),
    )


def _stored(address: str, metric: Metric) -> CohortCounts:
    return asyncio.run(load_counts(address, metric))


def _printed(value: object) -> str:
    """Return a cell as the terminal and CSV files show it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _judge(path: Path, holders: IntArray) -> Score:
    """Compare a table with the truth."""
    strings, decoded = DecodedShares.read(path)
    shares = dict(zip(census_first_names().values, holders / holders.sum(), strict=True))
    truth = np.array([shares.get(string, 0.0) for string in strings])
    return score(truth, decoded.share, decoded.low, decoded.high, decoded.detected)


if __name__ == "__main__":
    sys.exit(main())
