"""Soak a collector and print what it did: python -m evaluation.soak [--minutes 5] [--store sqlite].

First all the load that it takes, then half of that, where the time until a batch is acknowledged is
compared with the disk's. Fails if anything but 201 was answered, if a report is missing or counted
twice, or if memory keeps growing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from databases import running_postgresql
from evaluation.soak.machine import fdatasync_seconds
from factories import make_metric, registry_toml
from hubbub.simulations.experiments.processes import Collector, running_collector
from hubbub.storage import MetricVersion, open_store
from service.faults import processes_of, resident_bytes

_POINTS = 10
_HALF_LOAD_SHARE = 0.2  # of the whole time
_MIB = 2**20
_MOST_GROWTH = 100 * _MIB  # from a tenth of the time on


class Plan(NamedTuple):
    """What to run."""

    seconds: float
    store: str
    workers: int
    connections: int
    reports: int


def main(arguments: list[str] | None = None) -> int:
    """Run, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--reports", type=int, default=10, help="reports of a batch")
    given = parser.parse_args(arguments)
    plan = Plan(60 * given.minutes, given.store, given.workers, given.connections, given.reports)
    with tempfile.TemporaryDirectory(prefix="hubbub-soak-") as folder:
        faults = _soak(Path(folder), plan)
    for fault in faults:
        print(f"FAULT: {fault}")
    return int(bool(faults))


def _soak(folder: Path, plan: Plan) -> list[str]:
    metrics = folder / "metrics.toml"
    metrics.write_text(registry_toml(), encoding="utf-8")
    with _store(folder, plan.store) as store:
        with running_collector(metrics, store, ["--workers", str(plan.workers)]) as collector:
            at_full, memory = _full_load(collector, plan)
            acknowledged = _acknowledged(at_full)
            rate = acknowledged / at_full["seconds"]
            print(f"full load: {rate:,.0f} requests/s, {rate * plan.reports:,.0f} reports/s")
            _print_latencies("full load", at_full)
            sync = fdatasync_seconds(folder)
            at_half = _generate(collector, plan, _HALF_LOAD_SHARE, rate / 2).result()
            _print_latencies(f"at {rate / 2:,.0f} requests/s", at_half)
            print(f"fdatasync p50 of this disk: {1000 * sync:.2f} ms")
            acknowledged += _acknowledged(at_half)
        _maintain(store)
        faults = _judge_answers(at_full) + _judge_answers(at_half) + _judge_memory(memory)
        return faults + asyncio.run(_judge_store(store, acknowledged * plan.reports))


class _Generator:
    """A generator process under way."""

    def __init__(self, arguments: dict[str, object]) -> None:
        command = [sys.executable, "-m", "evaluation.soak.generator", json.dumps(arguments)]
        folder = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)

    def result(self) -> dict[str, Any]:
        """Wait for its end and return its figures."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit("the generator failed; its errors are above")
        return dict(json.loads(output))


def _generate(collector: Collector, plan: Plan, share: float, rate: float | None) -> _Generator:
    return _Generator(
        {
            "url": collector.url,
            "seconds": plan.seconds * share,
            "connections": plan.connections,
            "reports": plan.reports,
            "rate": rate,
        }
    )


def _full_load(collector: Collector, plan: Plan) -> tuple[dict[str, Any], list[int]]:
    """Run at full load; return the figures, and the memory at some points of time."""
    share = 1 - _HALF_LOAD_SHARE
    pids = processes_of(collector)
    generator = _generate(collector, plan, share, None)
    memory = []
    for point in range(1, _POINTS + 1):
        time.sleep(plan.seconds * share / _POINTS)
        memory.append(resident_bytes(*pids))
        seconds = point * plan.seconds * share / _POINTS
        print(f"{seconds:6.0f} s: {memory[-1] / _MIB:6.1f} MiB resident", flush=True)
    return generator.result(), memory


def _acknowledged(figures: dict[str, Any]) -> int:
    return int(figures["statuses"].get("201", 0))


def _print_latencies(what: str, figures: dict[str, Any]) -> None:
    latencies = figures["latency_seconds"].items()
    told = ", ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in latencies)
    print(f"acknowledged {what}: {told}", flush=True)


def _maintain(store: str) -> None:
    command = [sys.executable, "-m", "hubbub.collector", "maintain", "--store", store]
    subprocess.run(command, check=True)


def _judge_answers(figures: dict[str, Any]) -> list[str]:
    return [
        f"{times} answers were {status}"
        for status, times in figures["statuses"].items()
        if status != "201"
    ]


def _judge_memory(memory: list[int]) -> list[str]:
    growth = max(memory[1:]) - memory[0]
    return [f"memory grew by {growth / _MIB:.0f} MiB"] if growth > _MOST_GROWTH else []


async def _judge_store(store: str, acknowledged: int) -> list[str]:
    metric = make_metric()
    async with open_store(store, create=False) as opened:
        stored = await opened.count(MetricVersion(metric.name, metric.version))
        size = await opened.database.size_bytes()
        segments = sum(day.segments for day in await opened.overview())
    record = 2 + metric.params.k // 8
    print(
        f"stored: {stored:,} reports in {segments:,} segments, {size / _MIB:,.1f} MiB: "
        f"{size / stored:.1f} bytes a report (of which {record} are the record itself)"
    )
    return [] if stored == acknowledged else [f"{acknowledged} acknowledged, {stored} stored"]


@contextlib.contextmanager
def _store(folder: Path, kind: str) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'hubbub.db'}"
        return
    with running_postgresql() as server, server.new_database() as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
