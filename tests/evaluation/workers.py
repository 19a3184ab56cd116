"""`python -m evaluation.workers`: two collectors with two workers each, beside one with one worker.

All share one PostgreSQL server, each service with a database of its own, and take batches in turns:
at a rate that a single worker can take, at that rate for each worker, and as many as they can over
as many connections in all, and over as many for each worker.
Workers commit what has arrived since their last transaction, so that more of them make smaller
transactions of the same load; what that costs the collectors, and the server, is what is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.table import Table

from databases import running_postgresql
from evaluation.soak.generator import generate
from factories import registry_toml
from hubbub.reporting.formats.terminal import stdout_console
from hubbub.simulations.experiments.processes import Collector, running_collector
from service.faults import cpu_seconds, processes_of

_REPORTS = 10
_CONNECTIONS = 64
_SERVER = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}
_OPTIONS = ["--upkeep-seconds", "3600", "--log-level", "warning"]


class Cost(NamedTuple):
    """What requests cost in one turn.

    Attributes
    ----------
    rate : float
        Requests a second.
    cpu : float
        Microseconds of the collectors' processors, a request.
    """

    rate: float
    cpu: float


class Load(NamedTuple):
    """What a service gets.

    Attributes
    ----------
    rate : float or None
        Requests a second; None: as many as it takes.
    connections : int
        Over which they come.
    """

    rate: float | None
    connections: int = _CONNECTIONS


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.workers", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=400.0, help="requests a second, part load")
    given = parser.parse_args(arguments)
    table = Table("load", "", "one worker", "two collectors x 2", "ratio")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubbub-workers-")))
        metrics = folder / "metrics.toml"
        metrics.write_text(registry_toml(), encoding="utf-8")
        server = stack.enter_context(running_postgresql())
        server.stop()
        server.start(**_SERVER)
        services: list[list[Collector]] = []
        for collectors, workers in ((1, "1"), (2, "2")):
            store = stack.enter_context(server.new_database())
            options = [*_OPTIONS, "--workers", workers]
            services.append(
                [
                    stack.enter_context(running_collector(metrics, store, options))
                    for _ in range(collectors)
                ]
            )
        part, full = Load(given.rate), Load(None)
        loads = {
            f"{given.rate:,.0f} requests/s": (part, part),
            f"{given.rate:,.0f} requests/s a worker": (part, Load(4 * given.rate)),
            f"full, {_CONNECTIONS} connections": (full, full),
            f"full, {_CONNECTIONS} connections a worker": (full, Load(None, 4 * _CONNECTIONS)),
        }
        for name, of_services in loads.items():
            turns = [
                tuple(
                    asyncio.run(_measure(service, given.seconds, load))
                    for service, load in zip(services, of_services, strict=True)
                )
                for _ in range(given.turns)
            ]
            for field in Cost._fields:
                one = [getattr(turn[0], field) for turn in turns]
                four = [getattr(turn[1], field) for turn in turns]
                ratio = median(b / a for a, b in zip(one, four, strict=True))
                what = {"rate": "requests/s", "cpu": "µs of processors, a request"}[field]
                table.add_row(
                    name, what, f"{median(one):,.0f}", f"{median(four):,.0f}", f"{ratio:.2f}"
                )
    stdout_console().print(table)


async def _measure(service: Sequence[Collector], seconds: float, load: Load) -> Cost:
    """Post batches to all collectors of a service at once."""
    pids = [pid for collector in service for pid in processes_of(collector)]
    before = sum(map(cpu_seconds, pids))
    share = None if load.rate is None else load.rate / len(service)
    connections = load.connections // len(service)
    done = await asyncio.gather(
        *[generate(one.url, seconds, connections, _REPORTS, share) for one in service]
    )
    statuses = sum((one["statuses"] for one in done), Counter[str]())
    if set(statuses) != {"201"}:
        sys.exit(f"expected 201 alone, got {dict(statuses)}")
    requests = statuses["201"]
    spent = sum(map(cpu_seconds, pids)) - before
    return Cost(requests / max(one["seconds"] for one in done), 1e6 * spent / requests)


if __name__ == "__main__":
    main()
