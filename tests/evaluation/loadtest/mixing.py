"""What it costs to mix a day that is over, and what those who store meanwhile notice of it.

A day of random reports is stored in segments as large as those of a busy service's minute. Then
batches of another day are stored one after the other, for some time alone and then while the first
day is mixed. Printed: seconds and memory of mixing, bytes that the store has before, at most and
after, and how long batches waited, as ratios.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import resource
import secrets
import time
from collections.abc import Sequence

import numpy as np

from evaluation.loadtest.harness import REPORTS, new_stores, parser, show
from hubbub.protocol import Records, record_width
from hubbub.storage import MetricVersion, NewBatch, Store, open_store

_KEY = MetricVersion("homepage", 1)
_OVER = dt.date(2026, 3, 14)
_TODAY = dt.date(2026, 3, 15)
_OF_SEGMENT = 65_536
_PAUSE_SECONDS = 0.005
_SERVER = {"shared_buffers": "256MB", "max_wal_size": "2GB", "full_page_writes": "on"}
"""As a service runs it, and not as tests do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the options, measure, and print."""
    options = parser("mixing", __doc__)
    options.add_argument("--reports", type=int, default=10_000_000)
    options.add_argument("--k", type=int, default=128, help="bits of a report")
    options.add_argument("--seconds", type=float, default=20.0, help="of storing without mixing")
    given = options.parse_args(arguments)
    with new_stores(given.store, 1, _SERVER) as (url,):
        asyncio.run(_measure(url, given.reports, record_width(given.k), given.seconds))
    return 0


async def _measure(url: str, reports: int, width: int, seconds: float) -> None:
    async with open_store(url, create=True) as store, open_store(url, create=True) as other:
        for start in range(0, reports, _OF_SEGMENT):
            await _append(store, min(_OF_SEGMENT, reports - start), width, _OVER)
        await store.database.reclaim_space()
        await store.database.prepare(_TODAY)
        size = await store.database.size_bytes()
        alone, _ = await _store_and_read(other, width, asyncio.create_task(asyncio.sleep(seconds)))
        memory = _peak_memory()
        begun = time.perf_counter()
        mixing = asyncio.create_task(_mix(store))
        meanwhile, most = await _store_and_read(other, width, mixing)
        taken = time.perf_counter() - begun
        await store.database.reclaim_space()
        after = await store.database.size_bytes()
        place = store.database.dialect
        title = f"{reports:,} reports of {width} bytes in {place}, mixed in {taken:.1f} s"
    rows = [
        ("memory, MiB more", "", f"{(_peak_memory() - memory) / 2**20:.0f}", ""),
        ("store at most, MB", f"{size / 1e6:.0f}", f"{most / 1e6:.0f}", f"{most / size:.2f}"),
        ("store then, MB", f"{size / 1e6:.0f}", f"{after / 1e6:.0f}", f"{after / size:.2f}"),
    ]
    for name, share in (("p50", 50), ("p99", 99), ("longest", 100)):
        before, during = (float(np.percentile(waits, share)) for waits in (alone, meanwhile))
        cells = (f"{1e3 * before:.1f}", f"{1e3 * during:.1f}", f"{during / before:.2f}")
        rows.append((f"batch stored, {name}, ms", *cells))
    show(title, ("", "alone", "while it is mixed", "ratio"), rows)


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
        await _append(store, REPORTS, width, _TODAY)
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
