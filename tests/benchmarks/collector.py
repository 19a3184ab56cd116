"""Durable ingest against an aiohttp handler that reads the same body and drops it.

Both run as processes of their own; the load comes over keep-alive connections from a generator that
does nothing but write prepared bytes and find the end of each answer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.timing import Comparison, compare
from factories import make_report, registry_toml
from hubbub.client import Batch, batch_to_json
from hubbub.simulations.processes import running_collector

_CONNECTIONS = 64
_REQUESTS = 4_000
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
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def comparisons() -> Iterator[Comparison]:
    """Time requests of 100 reports, and of one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "metrics.toml").write_text(registry_toml(), encoding="utf-8")
        collector = stack.enter_context(
            running_collector(folder / "metrics.toml", folder / "hubbub.db")
        )
        dropper = stack.enter_context(_read_and_drop())
        for size in (100, 1):
            bodies = _Bodies(size)
            yield compare(
                f"durable ingest, batches of {size}",
                partial(_run_load, collector.url, bodies),
                "aiohttp handler that reads and drops the body",
                partial(_run_load, dropper, bodies),
                "requests",
                5,
            )


class _Bodies:
    """Requests that differ in nothing but the batch id."""

    def __init__(self, size: int) -> None:
        marker = "0" * 32
        reports = tuple(make_report(cohort=i % 64, bits=i * 2**100 + i) for i in range(size))
        body = batch_to_json(Batch(reports, marker))
        head = (
            "POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._before, self._after = (head.encode() + body).split(marker.encode())

    def next(self) -> bytes:
        return self._before + os.urandom(16).hex().encode() + self._after


def _run_load(url: str, bodies: _Bodies) -> int:
    return asyncio.run(_load(url, bodies))


async def _load(url: str, bodies: _Bodies) -> int:
    host, port = url.removeprefix("http://").split(":")
    numbers = itertools.count()

    async def work() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while next(numbers) < _REQUESTS:
            writer.write(bodies.next())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(head.decode())
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
        writer.close()
        await writer.wait_closed()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONNECTIONS):
            tasks.create_task(work())
    return _REQUESTS


@contextmanager
def _read_and_drop() -> Iterator[str]:
    command = [sys.executable, "-c", _DROP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
