"""Soak a collector at full load for minutes, and print what it did.

First all the load that it takes, then half of that, where the time until a batch is acknowledged is
compared with the disk's. Fails if anything but 201 was answered, if a report is missing or counted
twice, or if memory keeps growing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.loadtest.harness import (
    CONNECTIONS,
    REPORTS,
    Service,
    judge,
    new_stores,
    parser,
    serving,
)
from evaluation.machine import fdatasync_seconds
from factories import make_metric
from hubbub.storage import MetricVersion, open_store
from service.faults import resident_bytes

_POINTS = 10
_HALF_LOAD_SHARE = 0.2  # of the whole time
_MIB = 2**20
_MOST_GROWTH = 100 * _MIB  # from a tenth of the time on


class Soaking(NamedTuple):
    """What to run."""

    seconds: float
    connections: int
    reports: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and judge; return the exit code."""
    options = parser("soak", __doc__)
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--connections", type=int, default=CONNECTIONS)
    options.add_argument("--reports", type=int, default=REPORTS, help="reports of a batch")
    given = options.parse_args(arguments)
    soaking = Soaking(60 * given.minutes, given.connections, given.reports)
    with new_stores(given.store) as (store,):
        return judge(_soak(store, given.workers, soaking))


def _soak(store: str, workers: int, soaking: Soaking) -> list[str]:
    with serving(store, ["--workers", str(workers)]) as service:
        at_full, memory = _full_load(service, soaking)
        acknowledged = _acknowledged(at_full)
        rate = acknowledged / at_full["seconds"]
        print(f"full load: {rate:,.0f} requests/s, {rate * soaking.reports:,.0f} reports/s")
        _print_latencies("full load", at_full)
        with tempfile.TemporaryDirectory() as folder:
            sync = fdatasync_seconds(Path(folder))
        at_half = _Generator(service, soaking, _HALF_LOAD_SHARE, rate / 2).result()
        _print_latencies(f"at {rate / 2:,.0f} requests/s", at_half)
        print(f"fdatasync p50 of this disk: {1000 * sync:.2f} ms")
        acknowledged += _acknowledged(at_half)
    _maintain(store)
    faults = _judge_answers(at_full) + _judge_answers(at_half) + _judge_memory(memory)
    return faults + asyncio.run(_judge_store(store, acknowledged * soaking.reports))


class _Generator:
    """A generator of load under way, in a process of its own."""

    def __init__(
        self, service: Service, soaking: Soaking, share: float, rate: float | None
    ) -> None:
        arguments = {
            "url": service.collectors[0].url,
            "seconds": soaking.seconds * share,
            "connections": soaking.connections,
            "reports": soaking.reports,
            "rate": rate,
        }
        command = [sys.executable, "-m", "evaluation.loadtest.sender", json.dumps(arguments)]
        folder = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)

    def result(self) -> dict[str, Any]:
        """Wait for its end and return its figures."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit("the generator failed; its errors are above")
        return dict(json.loads(output))


def _full_load(service: Service, soaking: Soaking) -> tuple[dict[str, Any], list[int]]:
    """Run at full load; return the figures, and the memory at some points of time."""
    seconds, pids = soaking.seconds * (1 - _HALF_LOAD_SHARE), service.pids
    generator = _Generator(service, soaking, 1 - _HALF_LOAD_SHARE, None)
    memory = []
    for point in range(1, _POINTS + 1):
        time.sleep(seconds / _POINTS)
        memory.append(resident_bytes(*pids))
        at = point * seconds / _POINTS
        print(f"{at:6.0f} s: {memory[-1] / _MIB:6.1f} MiB resident", flush=True)
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
