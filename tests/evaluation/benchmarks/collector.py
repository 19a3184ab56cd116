"""The collector: ingest against a handler that drops, latency against the disk, a large store.

Programs run as processes of their own; the load comes over keep-alive connections from a generator
that does nothing but write prepared bytes and find the end of each answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import os
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

from databases import running_postgresql
from evaluation.benchmarks.timing import Comparison, compare
from factories import make_metric, make_report, registry_toml
from hubbub.client import Batch, batch_to_json
from hubbub.decoder.reports.loading import load_reports
from hubbub.protocol.compact import MEDIA_TYPE, batch_to_compact
from hubbub.protocol.records import Records
from hubbub.simulations.experiments.processes import running_collector
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
            bodies = _Bodies(size)
            comparison = compare(
                f"durable ingest, batches of {size}",
                partial(_run_load, sqlite, bodies),
                "aiohttp handler that reads and drops the body",
                partial(_run_load, dropper, bodies),
                "requests",
                5,
            )
            yield comparison
        yield compare(
            "durable ingest, compact batches of 100",
            partial(_run_load, sqlite, _Bodies(100, is_compact=True)),
            "JSON batches of 100",
            partial(_run_load, sqlite, _Bodies(100)),
            "requests",
            5,
        )
        yield _latency(folder, sqlite)
        server = stack.enter_context(running_postgresql())
        server.stop()
        server.start(full_page_writes="on")
        database = stack.enter_context(server.new_database())
        on_postgresql = stack.enter_context(running_collector(metrics, database))
        postgresql = on_postgresql.url
        yield compare(
            "ingest into PostgreSQL, batches of 100",
            partial(_run_load, postgresql, _Bodies(100)),
            "ingest into SQLite",
            partial(_run_load, sqlite, _Bodies(100)),
            "requests",
            5,
        )
        served = {
            "aiohttp": (dropper, dropping),
            "SQLite": (sqlite, on_sqlite.process.pid),
            "PostgreSQL": (postgresql, on_postgresql.process.pid),
        }
        yield _processor_time(served, server.pid)
        yield asyncio.run(_large_store(folder))


def _processor_time(served: Mapping[str, tuple[str, int]], database: int) -> Comparison:
    """Measure what a request costs of the processor, in each process that has to do with it.

    Parameters
    ----------
    served : mapping of str to (str, int)
        An address and the process behind it.
    database : int
        The server's process, for what is stored in PostgreSQL.
    """
    bodies = _Bodies(100, is_compact=True)
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(5):
        for name, (url, pid) in served.items():
            before, before_there = cpu_seconds(pid), _cpu_seconds_of_all(database)
            requests = _run_load(url, bodies)
            spent[name].append((cpu_seconds(pid) - before) / requests)
            spent[name + "'s server"].append(
                (_cpu_seconds_of_all(database) - before_there) / requests
            )
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


def _cpu_seconds_of_all(pid: int) -> float:
    """Return what a process and its children have computed."""
    seconds = cpu_seconds(pid)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            seconds += cpu_seconds(int(child))
    return seconds


def _latency(folder: Path, url: str) -> Comparison:
    """Measure how long acknowledgements take at half of the largest rate."""
    bodies = _Bodies(100)
    begun = time.perf_counter()
    rate = _run_load(url, bodies) / (time.perf_counter() - begun) / 2
    disk = statistics.median(_syncs(folder, 300))
    latencies = sorted(asyncio.run(_paced_load(url, bodies, rate, _LATENCY_SECONDS)))
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    return Comparison(
        f"acknowledgement at {rate:,.0f} requests/s (p50, p99)",
        f"{p50 * 1e3:.1f} ms, {p99 * 1e3:.1f} ms",
        "p50 of writing 4 KiB and fdatasync",
        f"{disk * 1e3:.2f} ms",
        f"p99 is {p99 / disk:.1f} times",
    )


def _syncs(folder: Path, times: int) -> list[float]:
    seconds = []
    with (folder / "syncs").open("wb", buffering=0) as file:
        for _ in range(times):
            begun = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    return seconds


async def _paced_load(url: str, bodies: _Bodies, rate: float, seconds: float) -> list[float]:
    """Send at a steady rate and return each request's seconds, its wait for a connection included.

    What is due while all connections are busy counts from when it was due.
    """
    numbers = itertools.count()
    latencies: list[float] = []
    begin = time.perf_counter() + 0.1

    async def work() -> None:
        connection = await _Connection.open(url)
        while (due := begin + next(numbers) / rate) < begin + seconds:
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            await connection.post(bodies.next())
            latencies.append(time.perf_counter() - due)
        await connection.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONNECTIONS):
            tasks.create_task(work())
    return latencies


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
    counts = (await load_reports(f"sqlite:///{path}", metric)).counts
    seconds = time.perf_counter() - begun
    return Comparison(
        f"opening and counting {counts.total / 1e6:.0f} M stored reports (k = 128)",
        f"{seconds:.2f} s; {path.stat().st_size / counts.total:.1f} bytes a report",
        "reading the file's bytes",
        f"{read_seconds:.2f} s",
        f"takes {seconds / read_seconds:.1f} times as long",
    )


class _Bodies:
    """Requests that differ in nothing but the batch id."""

    def __init__(self, size: int, *, is_compact: bool = False) -> None:
        self._is_compact = is_compact
        batch_id = os.urandom(16).hex()
        # As many bits are set as in honest reports.
        reports = tuple(make_report(cohort=i % 64, bits=secrets.randbits(128)) for i in range(size))
        batch = Batch(reports, batch_id)
        body = batch_to_compact(batch) if is_compact else batch_to_json(batch)
        head = (
            "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: {MEDIA_TYPE if is_compact else 'application/json'}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        marker = self._as_sent(batch_id)
        self._before, self._after = (head.encode() + body).split(marker)

    def next(self) -> bytes:
        return self._before + self._as_sent(os.urandom(16).hex()) + self._after

    def _as_sent(self, batch_id: str) -> bytes:
        return bytes.fromhex(batch_id) if self._is_compact else batch_id.encode()


def _run_load(url: str, bodies: _Bodies) -> int:
    return asyncio.run(_load(url, bodies))


async def _load(url: str, bodies: _Bodies) -> int:
    numbers = itertools.count()

    async def work() -> None:
        connection = await _Connection.open(url)
        while next(numbers) < _REQUESTS:
            await connection.post(bodies.next())
        await connection.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONNECTIONS):
            tasks.create_task(work())
    return _REQUESTS


class _Connection:
    """A kept connection that sends one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> _Connection:
        host, port = url.removeprefix("http://").split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def post(self, request: bytes) -> None:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(head.decode())
        length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
        await self._reader.readexactly(int(length))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@contextmanager
def _read_and_drop() -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-c", _DROP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.terminate()
