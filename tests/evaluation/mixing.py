"""What it costs to mix a day that is over, and what those who store meanwhile notice of it.

A day of random reports is stored in segments as large as those of a busy service's minute. Then
batches of another day are stored one after the other, for some time alone and then while the first
day is mixed. Printed: seconds and memory of mixing, bytes that the store has before, at most and
after, and how long batches waited, as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import resource
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from databases import running_postgresql
from hubbub.protocol.records import Records, record_width
from hubbub.storage import MetricVersion, NewBatch, Store, open_store

_KEY = MetricVersion("homepage", 1)
_OVER = dt.date(2026, 3, 14)
_TODAY = dt.date(2026, 3, 15)
_OF_SEGMENT = 65_536
_OF_BATCH = 10
_PAUSE_SECONDS = 0.005


def main() -> None:
    """Parse the options, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--reports", type=int, default=10_000_000)
    parser.add_argument("--k", type=int, default=128, help="bits of a report")
    parser.add_argument("--seconds", type=float, default=20.0, help="of storing without mixing")
    options = parser.parse_args()
    with _new_store(options.store) as url:
        asyncio.run(_measure(url, options.reports, record_width(options.k), options.seconds))


@contextmanager
def _new_store(database: str) -> Iterator[str]:
    with ExitStack() as stack:
        if database == "postgresql":
            # As a service runs it, and not as tests do.
            server = stack.enter_context(running_postgresql())
            server.stop()
            server.start(shared_buffers="256MB", max_wal_size="2GB", full_page_writes="on")
            yield stack.enter_context(server.new_database())
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield f"sqlite:///{Path(folder) / 'hubbub.db'}"


async def _measure(url: str, reports: int, width: int, seconds: float) -> None:
    async with open_store(url, create=True) as store, open_store(url, create=True) as other:
        for start in range(0, reports, _OF_SEGMENT):
            await _append(store, min(_OF_SEGMENT, reports - start), width, _OVER)
        await store.database.reclaim_space()
        await store.prepare_day(_TODAY)
        size = await store.database.size_bytes()
        alone, _ = await _store_and_read(other, width, asyncio.create_task(asyncio.sleep(seconds)))
        memory = _peak_memory()
        begun = time.perf_counter()
        mixing = asyncio.create_task(_mix(store))
        meanwhile, most = await _store_and_read(other, width, mixing)
        taken = time.perf_counter() - begun
        await store.database.reclaim_space()
        print(
            f"{reports:,} reports of {width} bytes in {store.database.dialect}, "
            f"mixed in {taken:.1f} s"
        )
        print(f"memory: {(_peak_memory() - memory) / 2**20:.0f} MiB more at most")
        after = await store.database.size_bytes()
        print(
            f"store: {size / 1e6:.0f} MB, at most {most / size:.2f}, then {after / size:.2f} times"
        )
    for name, share in (("p50", 50), ("p99", 99), ("longest", 100)):
        before, during = (float(np.percentile(waits, share)) for waits in (alone, meanwhile))
        print(
            f"batch stored, {name}: {1e3 * before:.1f} ms alone, {1e3 * during:.1f} ms meanwhile, "
            f"ratio {during / before:.2f}"
        )


async def _mix(store: Store) -> None:
    while await store.reshuffle(_TODAY):
        pass


async def _store_and_read(
    store: Store, width: int, until: asyncio.Task[None]
) -> tuple[list[float], int]:
    """Store batches until a task is done; return how long each took, and the largest size seen."""
    waits, most = [], 0
    while not until.done():
        begun = time.perf_counter()
        await _append(store, _OF_BATCH, width, _TODAY)
        waits.append(time.perf_counter() - begun)
        if len(waits) % 50 == 0:
            most = max(most, await store.database.size_bytes())
        await asyncio.sleep(_PAUSE_SECONDS)
    await until
    return waits, most


async def _append(store: Store, reports: int, width: int, day: dt.date) -> None:
    records = Records(width, secrets.token_bytes(reports * width))
    await store.append([NewBatch(secrets.token_bytes(16), {_KEY: records})], day)


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
