"""Be a stranger without a key who wants a collector's memory, and its probes to fail.

Each load runs in a process of its own. It opens connections and sends as fast as it can what a
server might keep or work on: pipelined requests with bodies that nobody reads, bodies, heads and
TLS records that never end, bodies, heads and greetings of TLS that are slow to read, connections
that come and go. The
collector runs within a memory limit of 512 MiB where cgroups can be made, and is asked every 50 ms
whether it is alive and ready; with all loads at once, also with PostgreSQL as its store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import itertools
import json
import logging
import multiprocessing
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from evaluation.attacks.outcome import Outcome
from evaluation.loadtest.harness import postgresql
from factories import registry_toml
from hubbub.simulations import Collector, running_collector
from service.faults import is_alive, peak_bytes, reset_peak

_LIMIT = 512 * 2**20
MOST_MIB, MOST_MIB_OVER_TLS = 300, 420
"""MiB that docs/do/operate.md promises at most, with the defaults and a small registry."""

_PROBE_SECONDS = 1.0
"""What a probe may take: orchestrators give it up after that by default."""

_START_SECONDS = 300.0  # sixteen processes on a busy machine
_CGROUPS = Path("/sys/fs/cgroup/memory")
_BODY = b"x" * 100_000
_Connect = Callable[[], Awaitable[asyncio.StreamWriter]]
_Load = Callable[[_Connect, float], Awaitable[None]]


@dataclass
class _Seen:
    """What became of a collector under a load."""

    peak: int
    slowest: float


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Measure the whole process's resident size, and how long the slowest probe takes."""
    seconds = 2.0 if quick else 20.0
    for is_tls in (False, True):
        loads = [name for name in _LOADS if is_tls or "TLS" not in name]
        for some in ([] if quick else [[name] for name in loads]) + [loads]:
            what = some[0] if len(some) == 1 else "all at once"
            what = f"{seconds:g} s of {what}{' over TLS' if is_tls else ''}"
            yield from _outcomes(_under(some, seconds, is_tls=is_tls), what, is_tls=is_tls)
    if not quick:
        with postgresql() as server, server.new_database() as store:
            seen = _under(loads, seconds, is_tls=True, store=store)
        yield from _outcomes(
            seen, f"{seconds:g} s of all at once over TLS, PostgreSQL", is_tls=True
        )


def _outcomes(seen: _Seen, what: str, *, is_tls: bool) -> Iterator[Outcome]:
    most = MOST_MIB_OVER_TLS if is_tls else MOST_MIB
    yield Outcome(f"MiB resident in {what}", seen.peak / 2**20, most)
    yield Outcome(f"seconds of the slowest probe in {what}", seen.slowest, _PROBE_SECONDS)


def _under(loads: list[str], seconds: float, *, is_tls: bool, store: str | None = None) -> _Seen:
    """Put a collector under some loads for some seconds."""
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(len(loads) + 1)
    with _collector(is_tls=is_tls, store=store) as served:
        pid = served.collector.process.pid
        reset_peak(pid)
        running = [
            context.Process(
                target=_run,
                args=(name, served.port_for(name), seconds, together),
                kwargs={"is_tls": is_tls and "TLS" not in name and "admin" not in name},
            )
            for name in loads
        ]
        for process in running:
            process.start()
        together.wait(_START_SECONDS)
        slowest = 0.0
        until = time.monotonic() + seconds
        while time.monotonic() < until and is_alive(pid):
            for path in ("/livez", "/readyz"):
                slowest = max(slowest, _seconds_to_answer(served.probes, path))
            time.sleep(0.05)
        peak = peak_bytes(pid) if is_alive(pid) else _LIMIT + 1
        for process in running:
            process.kill()
            process.join()
        return _Seen(peak, slowest)


@dataclass
class _Served:
    """A collector and where it listens."""

    collector: Collector
    admin: str
    probes: str

    def port_for(self, load: str) -> int:
        return urlsplit(self.admin if "admin" in load else self.collector.url).port or 0


@contextmanager
def _collector(*, is_tls: bool, store: str | None = None) -> Iterator[_Served]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        metrics, config = folder / "metrics.toml", folder / "collector.toml"
        metrics.write_text(registry_toml(), encoding="utf-8")
        text = _CONFIG
        if is_tls:
            issued = trustme.CA().issue_cert("127.0.0.1")
            issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
            issued.private_key_pem.write_to_path(folder / "key.pem")
            text = _TLS.format(folder=folder) + text
        config.write_text(text, encoding="utf-8")
        with (
            contextlib.suppress(Exception),  # it may have been killed, which is what is measured
            running_collector(
                metrics, store or folder / "hubbub.db", ["--config", str(config)]
            ) as collector,
            _limited(collector.process.pid),
        ):
            yield _Served(collector, collector.read_admin_url(), collector.read_probe_url())


_TLS = """
tls_certificate = "{folder}/certificate.pem"
tls_key = "{folder}/key.pem"
"""
_CONFIG = f"""
admin_port = 0
probe_port = 0
log_level = "error"
anonymous = true
[admin_tokens.ops]
sha256 = "{"0" * 64}"
"""


@contextmanager
def _limited(pid: int) -> Iterator[None]:
    """Limit a process's memory, where that can be done."""
    group = _CGROUPS / f"hubbub-{pid}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(_LIMIT))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        group = Path()
    try:
        yield
    finally:
        if group.name:
            with contextlib.suppress(OSError):
                for left in (group / "cgroup.procs").read_text().split():
                    (_CGROUPS / "cgroup.procs").write_text(left)
                group.rmdir()


def _seconds_to_answer(url: str, path: str) -> float:
    begun = time.monotonic()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10.0)
    try:
        connection.request("GET", path)
        is_answered = connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        is_answered = False
    finally:
        connection.close()
    return time.monotonic() - begun if is_answered else float("inf")


def _run(name: str, port: int, seconds: float, together: Barrier, *, is_tls: bool) -> None:
    """Load a server from this process, as soon as all others are ready to."""
    os.nice(19)  # strangers have machines of their own
    logging.disable()
    connect = partial(_connect, port, ssl.create_default_context() if is_tls else None)
    together.wait(_START_SECONDS)

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _LOADS[name](connect, seconds)

    with contextlib.suppress(Exception):
        asyncio.run(run())
    os._exit(0)  # not waiting for what is still being sent


_sources = (f"127.0.{n // 250 % 8}.{1 + n % 250}" for n in itertools.count())
"""Addresses of this machine: the bound on those of one address isn't all there is."""


async def _connect(port: int, tls: ssl.SSLContext | None) -> asyncio.StreamWriter:
    if tls is not None:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    _reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, limit=1, local_addr=(next(_sources), 0), ssl=tls
    )
    return writer


async def _each(connections: int, work: Callable[[], Awaitable[None]]) -> None:
    async def forever() -> None:
        while True:
            with contextlib.suppress(OSError):
                await work()
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(forever())


def _pipelining(request: bytes, connections: int) -> _Load:
    """Send a whole request time and again, and read no answer."""

    async def load(connect: _Connect, _seconds: float) -> None:
        async def work() -> None:
            writer = await connect()
            try:
                while True:
                    writer.write(request)
                    await writer.drain()
            finally:
                writer.close()

        await _each(connections, work)

    return load


def _holding(begun: bytes, connections: int) -> _Load:
    """Send the beginning of something, and then nothing."""

    async def load(connect: _Connect, seconds: float) -> None:
        async def work() -> None:
            writer = await connect()
            try:
                writer.write(begun)
                await writer.drain()
                await asyncio.sleep(seconds)
            finally:
                writer.close()

        await _each(connections, work)

    return load


async def _coming_and_going(connect: _Connect, _seconds: float) -> None:
    async def work() -> None:
        writer = await connect()
        await asyncio.sleep(0.2)
        writer.close()

    await _each(900, work)


def _request(first: str, body: bytes = b"", *fields: str) -> bytes:
    head = [first + " HTTP/1.1", "Host: collector", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _all_but_one() -> bytes:
    report = {"metric": "homepage", "version": 1, "cohort": 0, "bits": "A" * 21 + "Q=="}
    reports = [report] * 9_999 + [report | {"cohort": 60_000}]
    return json.dumps({"batch_id": "0" * 32, "reports": reports}).encode()


def _all_wrong() -> bytes:
    report = {"metric": "homepage", "version": 1, "cohort": 60_000, "bits": "A" * 21 + "Q=="}
    reports = [report] * (2**16 // len(json.dumps(report)) - 10)
    return json.dumps({"batch_id": "0" * 32, "reports": reports}).encode()


def _hello() -> bytes:
    context = ssl.create_default_context()
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return to_server.read()


def _repeating(first: bytes, then: bytes, connections: int) -> _Load:
    """Send the beginning of something, and then the same piece of it time and again."""

    async def load(connect: _Connect, _seconds: float) -> None:
        async def work() -> None:
            writer = await connect()
            try:
                writer.write(first)
                while True:
                    writer.write(then)
                    await writer.drain()
                    await asyncio.sleep(0)
            finally:
                writer.transport.abort()

        await _each(connections, work)

    return load


def _greeting(connections: int) -> _Load:
    """Begin to speak TLS, and leave as soon as the server has answered, time and again."""

    async def load(connect: _Connect, _seconds: float) -> None:
        hello = _hello()

        async def work() -> None:
            writer = await connect()
            writer.write(hello)
            await asyncio.sleep(0.3)
            writer.transport.abort()

        await _each(connections, work)

    return load


_MANY_FIELDS = tuple(f"X-{n}:{'x' * 60}" for n in range(95))
_POST, _JSON = "POST /v1/reports", "Content-Type: application/json"
_LOADS: dict[str, _Load] = {
    "300 connections with GET and bodies": _pipelining(_request("GET /livez", _BODY), 300),
    "300 connections with GET": _pipelining(_request("GET /livez"), 300),
    "300 connections with POST and bodies": _pipelining(_request(_POST, _BODY, _JSON), 300),
    "100 connections with batches whose last report is wrong": _pipelining(
        _request(_POST, _all_but_one(), _JSON), 100
    ),
    "100 connections with bodies that swell": _pipelining(
        _request(_POST, gzip.compress(bytes(2**20)), _JSON, "Content-Encoding: gzip"), 100
    ),
    "60 admin connections with GET and bodies": _pipelining(_request("GET /", _BODY), 60),
    "3000 connections with heads without an end": _holding(
        _request("GET /livez")[:-2] + b"X: " + b"x" * 8_000, 3_000
    ),
    "2000 connections with bodies without an end": _holding(
        _request(_POST, bytes(1_000_000), _JSON)[:500_000], 2_000
    ),
    "4000 connections with a TLS record without an end": _holding(
        b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(16_000), 4_000
    ),
    "500 connections with chunks of one byte": _repeating(
        b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"1\r\n[\r\n" * 10_000,
        500,
    ),
    "1000 connections with heads of many fields": _pipelining(
        _request("GET /livez", b"", *_MANY_FIELDS) * 8, 1_000
    ),
    "1000 connections with small batches that are wrong": _pipelining(
        _request(_POST, _all_wrong(), _JSON), 1_000
    ),
    "1020 connections with such heads and bodies without an end": _holding(
        _request(_POST, bytes(70_000), _JSON, *_MANY_FIELDS)[:-10_000], 1_020
    ),
    "1000 greetings of TLS at a time": _greeting(1_000),
    "connections that come and go": _coming_and_going,
    "5000 idle connections": _holding(b"", 5_000),
}
