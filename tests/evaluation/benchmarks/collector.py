"""The collector: ingest against a handler that drops, latency against the disk, a large store.

Programs run as processes of their own; the load comes over keep-alive connections from a generator
that does nothing but write prepared bytes and find the end of each answer.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from evaluation.benchmarks.timing import Comparison, compare
from evaluation.loadtest.harness import postgresql
from evaluation.loadtest.sender import Connection, generate, requests_of
from evaluation.machine import fdatasync_seconds, tree_cpu_seconds
from factories import make_metric, registry_toml
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.protocol import Records
from hubbub.simulations import running_collector
from hubbub.storage import MetricVersion, NewBatch, open_store
from service.faults import cpu_seconds

_CONNECTIONS = 256
_REQUESTS = 10_000
_LATENCY_SECONDS = 10.0
_STORED = 10_000_000
_DROP = """
import asyncio
from aiohttp import web

async def drop(request):
    await request.read()
    return web.json_response({"accepted": 1}, status=201)

async def main():
    app = web.Application()
    app.router.add_post("/v1/reports", drop)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def comparisons() -> Iterator[Comparison]:
    """Time requests of 100 reports and of one, both databases, latency, and a large store."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        metrics = folder / "metrics.toml"
        metrics.write_text(registry_toml(), encoding="utf-8")
        on_sqlite = stack.enter_context(running_collector(metrics, folder / "hubbub.db"))
        sqlite = on_sqlite.url
        dropping, dropper = stack.enter_context(_read_and_drop())
        for size in (100, 1):
            bodies = requests_of(size)
            yield compare(
                f"durable ingest, batches of {size}",
                partial(_run_load, sqlite, bodies),
                "aiohttp handler that reads and drops the body",
                partial(_run_load, dropper, bodies),
                "requests",
                5,
            )
        yield compare(
            "durable ingest, compact batches of 100",
            partial(_run_load, sqlite, requests_of(100, is_compact=True)),
            "JSON batches of 100",
            partial(_run_load, sqlite, requests_of(100)),
            "requests",
            5,
        )
        yield _latency(folder, sqlite)
        server = stack.enter_context(postgresql(full_page_writes="on"))
        database = stack.enter_context(server.new_database())
        on_postgresql = stack.enter_context(running_collector(metrics, database))
        yield compare(
            "ingest into PostgreSQL, batches of 100",
            partial(_run_load, on_postgresql.url, requests_of(100)),
            "ingest into SQLite",
            partial(_run_load, sqlite, requests_of(100)),
            "requests",
            5,
        )
        served = {
            "aiohttp": (dropper, dropping),
            "SQLite": (sqlite, on_sqlite.process.pid),
            "PostgreSQL": (on_postgresql.url, on_postgresql.process.pid),
        }
        yield _processor_time(served, server.pid)
        yield asyncio.run(_large_store(folder))


def _processor_time(served: Mapping[str, tuple[str, int]], database: int) -> Comparison:
    """Measure what a request costs of the processor, in each process that has to do with it.

    served: An address and the process behind it.
    database: The server's process, for what is stored in PostgreSQL.
    """
    bodies = requests_of(100, is_compact=True)
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(5):
        for name, (url, pid) in served.items():
            before, before_there = cpu_seconds(pid), tree_cpu_seconds(database)
            requests = _run_load(url, bodies)
            spent[name].append((cpu_seconds(pid) - before) / requests)
            spent[name + "'s server"].append((tree_cpu_seconds(database) - before_there) / requests)
    cost = {name: statistics.median(seconds) * 1e6 for name, seconds in spent.items()}
    there = cost["PostgreSQL's server"]
    ratios = (cost[name] / cost["aiohttp"] for name in ("PostgreSQL", "SQLite"))
    return Comparison(
        "processor time a request, compact batches of 100",
        f"{cost['PostgreSQL']:.0f} + {there:.0f} µs with PostgreSQL; {cost['SQLite']:.0f} µs "
        "with SQLite",
        "aiohttp handler that reads and drops the body",
        f"{cost['aiohttp']:.0f} µs",
        "{:.2f} times; {:.2f} times".format(*ratios),
    )


def _latency(folder: Path, url: str) -> Comparison:
    """Measure how long acknowledgements take at half of the largest rate."""
    bodies = requests_of(100)
    begun = time.perf_counter()
    rate = _run_load(url, bodies) / (time.perf_counter() - begun) / 2
    disk = fdatasync_seconds(folder)
    load = generate(url, _LATENCY_SECONDS, _CONNECTIONS, 100, rate, bodies)
    latency = asyncio.run(load)["latency_seconds"]
    return Comparison(
        f"acknowledgement at {rate:,.0f} requests/s (p50, p99)",
        f"{latency['p50'] * 1e3:.1f} ms, {latency['p99'] * 1e3:.1f} ms",
        "p50 of writing 4 KiB and fdatasync",
        f"{disk * 1e3:.2f} ms",
        f"p99 is {latency['p99'] / disk:.1f} times",
    )


async def _large_store(folder: Path) -> Comparison:
    """Fill a store with reports, then open and count it as the decoder does."""
    path, metric = folder / "large.db", make_metric()
    key, width = MetricVersion(metric.name, metric.version), 2 + metric.params.k // 8
    at_once = 50_000
    async with open_store(f"sqlite:///{path}", create=True) as store:
        await store.declare([metric])
        for _ in range(_STORED // at_once):
            data = bytearray(secrets.token_bytes(at_once * width))
            data[0::width] = bytes(byte % metric.params.m for byte in data[0::width])
            data[1::width] = bytes(at_once)
            batch = NewBatch(secrets.token_bytes(16), {key: Records(width, bytes(data))})
            await store.append([batch], dt.datetime.now(dt.UTC).date())
    begun = time.perf_counter()
    path.read_bytes()
    read_seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    counts = (await load_reports(StoredReports(f"sqlite:///{path}"), metric)).counts
    seconds = time.perf_counter() - begun
    return Comparison(
        f"opening and counting {counts.total / 1e6:.0f} M stored reports (k = 128)",
        f"{seconds:.2f} s; {path.stat().st_size / counts.total:.1f} bytes a report",
        "reading the file's bytes",
        f"{read_seconds:.2f} s",
        f"takes {seconds / read_seconds:.1f} times as long",
    )


def _run_load(url: str, bodies: Iterator[bytes]) -> int:
    """Post a number of requests, over as many connections as go."""
    numbers = itertools.count()

    async def work() -> None:
        async with Connection.open(url) as connection:
            while next(numbers) < _REQUESTS:
                if (status := await connection.post(next(bodies))) != "201":
                    raise RuntimeError(f"answered {status}")

    async def load() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(work())

    asyncio.run(load())
    return _REQUESTS


@contextmanager
def _read_and_drop() -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-c", _DROP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.terminate()
