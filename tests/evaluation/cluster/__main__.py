"""`python -m evaluation.cluster`: a whole service on one machine, with one of each process killed.

Two collectors with two workers each store in one PostgreSQL what simulated clients, and some real
ones, report over HTTP. Meanwhile a worker, a collector, the database, a process of the simulated
clients and that of the real ones are killed and started again. Then all is exported to a server
that speaks S3, and decoded from there by three workers of Dask. An export is killed, and one of the
workers; the S3 server, which keeps objects in memory, is killed during an export and during a
decoding, each of which must end with an error in a line, and all is exported again.

Fails if a report was lost or counted twice, if the count of any bit differs from what the clients
sent, if the table differs from a local decoding's, or differs from the truth by more than its error
rates say.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from databases import PostgresqlServer, running_postgresql
from evaluation.cluster import apps, fleet
from evaluation.cluster.comparison import FALSE_ALARM, Comparison, compare
from evaluation.cluster.object_store import ObjectStore
from evaluation.cluster.processes import ClusterError, Program, Service, talking_to, wait_for
from evaluation.cluster.timetable import Timetable
from factories import make_metric, make_params, registry_toml
from hubbub.reporting import stdout_console
from hubbub.simulations import census_names

_NAMES = make_metric("first_name")
_ANSWER = make_metric("answer", params=make_params(f=0.0), one_time=True)
_LEAST_REPORTS = 1_000_000
"""An upload of fewer is over before it can be killed."""
_FLEETS = 2
_MOST_PART, _LEAST_PARTS = 200_000, 20
_SEED = 20261123
_SERVER = {"shared_buffers": "512MB", "max_wal_size": "4GB", "autovacuum": "on"}
_WORKERS = 3
"""Of Dask."""


def main(arguments: list[str] | None = None) -> int:
    """Run, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.cluster", description=__doc__)
    parser.add_argument("--reports", type=float, default=20e6, help="of simulated clients")
    parser.add_argument("--clients", type=int, default=200, help="real ones, of one report each")
    given = parser.parse_args(arguments)
    if given.reports < _LEAST_REPORTS:
        parser.error(f"--reports {given.reports:.0f}: must be {_LEAST_REPORTS} or more")
    timetable = Timetable()
    try:
        with tempfile.TemporaryDirectory(prefix="hubbub-cluster-") as folder:
            found = _run(Path(folder), int(given.reports), given.clients, timetable)
    except ClusterError as error:
        print(f"FAULT: {error}")
        return 1
    console = stdout_console()
    for table in (*timetable.tables(), found.table()):
        console.print(table)
    faults = list(found.faults())
    for fault in faults:
        print(f"FAULT: {fault}")
    if not faults:
        print(f"Nothing was lost, doubled or changed: {found.sent:,} reports.")
    return int(bool(faults))


def _run(folder: Path, reports: int, clients: int, timetable: Timetable) -> Comparison:
    """Report, export, decode and compare, in an empty folder."""
    registry, names, journals = folder / "metrics.toml", folder / "names.txt", folder / "journals"
    registry.write_text(registry_toml(_NAMES, _ANSWER), encoding="utf-8")
    names.write_text("\n".join(census_names()) + "\n", encoding="utf-8")
    journals.mkdir()
    there, here = folder / "there.json", folder / "here.json"
    with ExitStack() as stack:
        stack.callback(Program.kill_all)
        postgresql = stack.enter_context(running_postgresql())
        postgresql.stop()
        postgresql.start(**_SERVER)
        store = stack.enter_context(postgresql.new_database())
        with timetable.phase("report over HTTP"):
            _report(folder, postgresql, store, reports, clients, timetable)
        objects = stack.enter_context(ObjectStore.running())
        os.environ.update(objects.environment)
        address = f"parquet:{objects.address}"
        with timetable.phase("export to S3, the third time undisturbed"):
            _export(store, objects, timetable)
        master, workers = _start_dask(folder)
        with timetable.phase("decode with Dask, and export once more"):
            failing = _decode(folder, address, there, master)
            _reading(failing, workers, objects)
            objects.kill()
            timetable.killed("the S3 server", "while Dask read from it")
            timetable.tell(failing.refusal())
            if there.exists():
                raise ClusterError("a decoding that failed wrote a table")
            objects.start()
            Program("hubbub.collector", _export_command(store, objects)).finish()
        with timetable.phase("decode with Dask"):
            decoding = _decode(folder, address, there, master)
            _reading(decoding, workers, objects).kill()
            timetable.killed("a worker of Dask", "while it read from the S3 server")
            decoding.finish()
        with timetable.phase("decode from PostgreSQL with threads"):
            _decode(folder, store, here).finish()
        with timetable.phase("compare"):
            return compare(address, _NAMES, _ANSWER, journals, there, here, clients)


def _report(
    folder: Path,
    postgresql: PostgresqlServer,
    store: str,
    reports: int,
    clients: int,
    timetable: Timetable,
) -> None:
    """Let all clients report, though one process after the other is killed."""
    part = min(_MOST_PART, -(-reports // _LEAST_PARTS))
    parts = range(-(-reports // part))
    with ExitStack() as collectors:
        service = Service(folder / "metrics.toml", store, collectors)
        app = _app(folder, service, clients)
        wait_for(lambda: len(list(folder.glob("clients/*"))) >= clients // 4, [app])
        app.kill()
        app.start()
        timetable.killed("the real clients' app", "while they answered")
        fleets = [
            _fleet(folder, service, parts[number::_FLEETS], part) for number in range(_FLEETS)
        ]
        _kill_meanwhile(folder / "journals", parts, service, postgresql, fleets, timetable)
        for program in (*fleets, app):
            program.finish()


def _export(store: str, objects: ObjectStore, timetable: Timetable) -> None:
    """Export, though the export and then the server of objects are killed."""
    command = _export_command(store, objects)
    _uploading(command, objects).kill()
    timetable.killed("an export", "while it uploaded")
    failing = _uploading(command, objects)
    objects.kill()
    timetable.killed("the S3 server", "while an export uploaded")
    timetable.tell(failing.refusal())
    objects.start()
    Program("hubbub.collector", command).finish()


def _export_command(store: str, objects: ObjectStore) -> list[str]:
    return ["export", "--store", store, "--to", objects.address]


def _fleet(folder: Path, service: Service, parts: Sequence[int], part: int) -> Program:
    """Start some of the simulated clients."""
    first = parts[0] % len(service.urls)
    task = fleet.Task(
        registry=str(folder / "metrics.toml"),
        metric=_NAMES.name,
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
    parts: range,
    service: Service,
    postgresql: PostgresqlServer,
    fleets: Sequence[Program],
    timetable: Timetable,
) -> None:
    """Kill one process after the other while simulated clients report."""

    def kill_database() -> None:
        postgresql.stop(at_once=True)
        postgresql.start(**_SERVER)

    def kill_fleet() -> None:
        """Kill it between a part's first batch and its last one: then that one must come again."""
        being_sent = partial(fleet.being_sent, journals, parts[0::_FLEETS])
        is_between = False
        while not is_between:
            wait_for(lambda: bool(being_sent()), fleets[:1])
            fleets[0].kill()
            is_between = bool(being_sent())
            fleets[0].start()

    kills: list[tuple[str, Callable[[], None]]] = [
        ("a worker of a collector", service.kill_worker),
        ("a process of simulated clients", kill_fleet),
        ("a collector and its workers", service.kill_collector),
        ("the database", kill_database),
    ]
    for number, (what, kill_it) in enumerate(kills, start=1):
        due = number * len(parts) // (len(kills) + 2)
        wait_for(partial(_is_due, journals, parts, due), fleets)
        kill_it()
        timetable.killed(what, "while clients reported")


def _is_due(journals: Path, parts: range, due: int) -> bool:
    sent = len(fleet.journal_paths(journals))
    return sent >= due and bool(fleet.being_sent(journals, parts))


def _uploading(export: Sequence[str], objects: ObjectStore) -> Program:
    before = objects.uploads()
    program = Program("hubbub.collector", export)
    wait_for(lambda: objects.uploads() > before, [program])
    return program


def _start_dask(folder: Path) -> tuple[str, list[Program]]:
    """Start a scheduler and workers; return its address, and them."""
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "error"  # nobody reads what they write
    file = folder / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    scheduler = Program("dask", ["scheduler", "--port", "0", *common])
    # The scheduler makes the file first, and writes it then.
    wait_for(lambda: file.exists() and file.read_text().endswith("}"), [scheduler])
    own = ["worker", "--no-nanny", "--nthreads", "1", "--local-directory", str(folder), *common]
    return json.loads(file.read_text())["address"], [Program("dask", own) for _ in range(_WORKERS)]


def _reading(decoding: Program, workers: Sequence[Program], objects: ObjectStore) -> Program:
    """Wait until a worker reads from the S3 server, and return it."""
    found: list[Program] = []

    def is_read() -> bool:
        found[:] = [each for each in workers if talking_to(objects.port, [each.pid])]
        return bool(found)

    wait_for(is_read, [decoding])
    return found[0]


def _decode(folder: Path, store: str, output: Path, master: str | None = None) -> Program:
    where = ["--metrics", str(folder / "metrics.toml"), "--store", store]
    names = ["--candidates", str(folder / "names.txt"), "--correction", "bonferroni"]
    how = ["--alpha", str(FALSE_ALARM), "--method", "regression", "--output", str(output)]
    options = [*where, *names, *how, *(["--engine", "dask", "--master", master] if master else [])]
    return Program("hubbub.decoder", ["decode", _NAMES.name, *options])


if __name__ == "__main__":
    sys.exit(main())
