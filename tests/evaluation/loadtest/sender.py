"""The load: prepared batches over keep-alive connections, as fast as they go or at a given rate.

A process of its own, so that it hinders the collector as little as possible; it writes one line of
JSON when it is done.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from factories import make_metric, make_report
from hubbub.client import Batch, Metric, batch_to_json

_MARKER = "0" * 32
_METRIC = make_metric()
_LENGTH = b"content-length: "


async def generate(
    url: str, seconds: float, connections: int, reports: int, rate: float | None
) -> dict[str, Any]:
    """Post for some seconds; return how often each status came, and percentiles of the latency."""
    bodies = requests_of(reports)
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    begun = time.perf_counter()
    due = itertools.count() if rate is None else (begun + n / rate for n in itertools.count())

    async def work() -> None:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        while (now := time.perf_counter()) < begun + seconds:
            if rate is not None:
                # Timed from when it was due: a generator that lags behind hides no waiting.
                due_at = next(due)
                if due_at > begun + seconds:
                    break
                await asyncio.sleep(max(0.0, due_at - now))
                now = due_at
            writer.write(next(bodies))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(_LENGTH)[1].split(b"\r\n")[0]))
            latencies.append(time.perf_counter() - now)
            statuses[head[9:12].decode()] += 1
        writer.close()
        await writer.wait_closed()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(work())
    p50, p90, p99, p999 = np.quantile(latencies, [0.5, 0.9, 0.99, 0.999])
    return {
        "statuses": statuses,
        "seconds": time.perf_counter() - begun,
        "latency_seconds": {"p50": p50, "p90": p90, "p99": p99, "p99.9": p999},
    }


def requests_of(reports: int, metric: Metric = _METRIC) -> Iterator[bytes]:
    """Yield requests with random bits, of which each has an id of its own."""
    width = metric.params.k // 8
    batch = Batch(
        tuple(
            make_report(metric, cohort=i % 64, bits=int.from_bytes(os.urandom(width), "little"))
            for i in range(reports)
        ),
        _MARKER,
    )
    body = batch_to_json(batch)
    head = (
        "POST /v1/reports HTTP/1.1\r\nHost: collector\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    before, after = (head.encode() + body).split(_MARKER.encode())
    while True:
        yield before + os.urandom(16).hex().encode() + after


def main() -> None:
    """Run with the arguments of `generate`, as JSON."""
    print(json.dumps(asyncio.run(generate(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
