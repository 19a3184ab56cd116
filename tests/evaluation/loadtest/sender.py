"""The load: prepared batches over keep-alive connections, as fast as they go or at a given rate.

It does nothing but write prepared bytes and find the end of each answer; run as a process of its
own, it hinders the collector as little as possible, and writes one line of JSON when it is done.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from factories import make_metric, make_report
from hubbub.client import Batch, Metric, batch_to_json
from hubbub.protocol import MEDIA_TYPE, batch_to_compact

_METRIC = make_metric()
_LENGTH = b"content-length: "


class Connection:
    """A kept connection that sends one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Connection]:
        """Connect to a collector until the context closes."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def post(self, request: bytes) -> str:
        """Send a whole request; return the answer's status when all of it has come."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.readexactly(int(head.lower().split(_LENGTH)[1].split(b"\r\n")[0]))
        return head[9:12].decode()


async def generate(
    url: str,
    seconds: float,
    connections: int,
    reports: int,
    rate: float | None,
    bodies: Iterator[bytes] | None = None,
) -> dict[str, Any]:
    """Post for some seconds; return how often each status came, and percentiles of the latency.

    `url`: of the collector. `connections` and `reports`: reports of each batch. `rate`: requests a
    second; None: as many as are answered. `bodies`: requests to send instead of batches in JSON.
    """
    requests = bodies or requests_of(reports)
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    begun = time.perf_counter()
    due = itertools.count() if rate is None else (begun + n / rate for n in itertools.count())

    async def work() -> None:
        async with Connection.open(url) as connection:
            while (now := time.perf_counter()) < begun + seconds:
                if rate is not None:
                    # Timed from when it was due: a generator that lags behind hides no waiting.
                    due_at = next(due)
                    if due_at > begun + seconds:
                        break
                    await asyncio.sleep(max(0.0, due_at - now))
                    now = due_at
                statuses[await connection.post(next(requests))] += 1
                latencies.append(time.perf_counter() - now)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(work())
    p50, p90, p99, p999 = np.quantile(latencies, [0.5, 0.9, 0.99, 0.999])
    return {
        "statuses": statuses,
        "seconds": time.perf_counter() - begun,
        "latency_seconds": {"p50": p50, "p90": p90, "p99": p99, "p99.9": p999},
    }


def requests_of(
    reports: int, metric: Metric = _METRIC, *, is_compact: bool = False
) -> Iterator[bytes]:
    """Yield requests with random bits, which differ in nothing but the batch id."""
    width, marker = metric.params.k // 8, os.urandom(16).hex()
    bits = (int.from_bytes(os.urandom(width), "little") for _ in range(reports))
    batch = Batch(
        tuple(make_report(metric, cohort=i % 64, bits=each) for i, each in enumerate(bits)), marker
    )
    body = batch_to_compact(batch) if is_compact else batch_to_json(batch)
    head = (
        "POST /v1/reports HTTP/1.1\r\nHost: collector\r\n"
        f"Content-Type: {MEDIA_TYPE if is_compact else 'application/json'}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    sent = bytes.fromhex(marker) if is_compact else marker.encode()
    before, after = (head.encode() + body).split(sent)
    while True:
        batch_id = os.urandom(16)
        yield before + (batch_id if is_compact else batch_id.hex().encode()) + after


def main() -> None:
    """Run with the arguments of `generate`, as JSON."""
    print(json.dumps(asyncio.run(generate(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
