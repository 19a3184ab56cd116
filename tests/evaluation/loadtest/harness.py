"""What all scenarios share: stores, collectors that serve them, loads, and sides measured in turns.

Collectors and the database run as processes of their own, as a service runs them; the load comes
from this process, or from one of its own if it is to hinder the collector as little as possible.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from databases import PostgresqlServer, running_postgresql
from evaluation.loadtest.sender import generate
from evaluation.measured_table import MeasuredTable
from factories import registry_toml
from hubbub.simulations import Collector, running_collector
from service.faults import cpu_seconds, processes_of

REPORTS = 10
"""Of a batch."""
CONNECTIONS = 64
"""Over which a full load comes."""
_Side = TypeVar("_Side")


def parser(scenario: str, described: str | None, store: str = "sqlite") -> argparse.ArgumentParser:
    """Return a parser of a scenario's options, of which the store is one."""
    made = argparse.ArgumentParser(
        prog=f"python -m evaluation.loadtest {scenario}", description=described
    )
    made.add_argument("--store", choices=["sqlite", "postgresql"], default=store)
    return made


@contextmanager
def postgresql(**settings: str) -> Iterator[PostgresqlServer]:
    """Run a server with a service's settings in place of the tests'."""
    with running_postgresql() as server:
        if settings:
            server.stop()
            server.start(**settings)
        yield server


@contextmanager
def new_stores(
    kind: str, number: int = 1, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[list[str]]:
    """Yield the addresses of empty stores: SQLite files, or databases of one server.

    `settings`: of the server.
    """
    with ExitStack() as stack:
        if kind == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hubbub-load-"))
            yield [f"sqlite:///{folder}/{i}.db" for i in range(number)]
        else:
            server = stack.enter_context(postgresql(**settings))
            yield [stack.enter_context(server.new_database()) for _ in range(number)]


@dataclass(frozen=True, slots=True)
class Service:
    """Collectors that share a store."""

    collectors: Sequence[Collector]

    @property
    def pids(self) -> list[int]:
        return [pid for collector in self.collectors for pid in processes_of(collector)]

    async def take(self, load: Load) -> Cost:
        """Post batches to all collectors at once, and see what they cost.

        Raises `SystemExit` if anything but 201 is answered.
        """
        pids, number = self.pids, len(self.collectors)
        before = sum(map(cpu_seconds, pids))
        rate = None if load.rate is None else load.rate / number
        connections = load.connections // number
        done = await asyncio.gather(
            *[
                generate(one.url, load.seconds, connections, REPORTS, rate)
                for one in self.collectors
            ]
        )
        statuses = sum((one["statuses"] for one in done), Counter[str]())
        if set(statuses) != {"201"}:
            sys.exit(f"expected 201 alone, got {dict(statuses)}")
        spent = sum(map(cpu_seconds, pids)) - before
        requests = statuses["201"]
        return Cost(requests / max(one["seconds"] for one in done), 1e6 * spent / requests)


class Load(NamedTuple):
    """What a service gets."""

    seconds: float
    rate: float | None = None  # requests a second; None: as many as it takes
    connections: int = CONNECTIONS  # over which they come


class Cost(NamedTuple):
    """What requests cost."""

    rate: float  # requests a second
    cpu: float  # microseconds of the collectors' processors, a request


@contextmanager
def serving(
    store: str,
    options: Sequence[str] = (),
    collectors: int = 1,
    program: Sequence[str] = ("-m", "hubbub.collector"),
) -> Iterator[Service]:
    """Serve a store with the factories' registry.

    `store`: its address. `options`: of each collector's command line. `program`: what Python runs.
    """
    with tempfile.TemporaryDirectory(prefix="hubbub-load-") as folder, ExitStack() as stack:
        metrics = Path(folder, "metrics.toml")
        metrics.write_text(registry_toml(), encoding="utf-8")
        yield Service(
            [
                stack.enter_context(running_collector(metrics, store, options, program))
                for _ in range(collectors)
            ]
        )


class Compared(NamedTuple):
    """One figure of two sides; of several turns the medians, and that of the turns' ratios."""

    what: str
    unit: str
    one: float
    other: float
    ratio: float

    def cells(self) -> tuple[str, str, str, str]:
        digits = ".2f" if self.unit == "s" else ".0f"
        one, other = (f"{amount:,{digits}} {self.unit}" for amount in (self.one, self.other))
        return self.what, one, other, f"{self.ratio:.2f}"


async def in_turns(
    turns: int,
    sides: tuple[_Side, _Side],
    measure: Callable[[_Side], Awaitable[Mapping[tuple[str, str], float]]],
) -> list[Compared]:
    """Measure two sides in turns, as a busy moment of the machine hits both.

    `measure`: returns figures by what they are and their unit.
    """
    found: list[list[Mapping[tuple[str, str], float]]] = [[], []]
    for turn in range(turns):
        # In both orders, as the first of a turn may find the machine busier.
        for place in (1, 0) if turn % 2 else (0, 1):
            found[place].append(await measure(sides[place]))
    rows = []
    for what, unit in found[0][0]:
        one, other = ([figures[what, unit] for figures in side] for side in found)
        ratio = statistics.median(b / a for a, b in zip(one, other, strict=True))
        rows.append(Compared(what, unit, statistics.median(one), statistics.median(other), ratio))
    return rows


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print(MeasuredTable(title, tuple(headings), tuple(map(tuple, rows))).text())


def judge(faults: Sequence[str]) -> int:
    """Print what was wrong; return the exit code."""
    for fault in faults:
        print(f"FAULT: {fault}")
    return int(bool(faults))
