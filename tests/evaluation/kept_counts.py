"""How much counts of forgotten reports take, how fast they are made, and a year of them read.

Run with `PYTHONPATH=tests python -m evaluation.kept_counts`. Counts of up to a million reports are
of drawn reports; those of more are drawn as the binomial numbers that reports would give.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np

from factories import make_metric, make_params
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.protocol import (
    CohortCounts,
    KeptCounts,
    RapporParams,
    Records,
    keep_counts,
    keep_none,
    pack_counts,
    record_width,
    unpack_counts,
)
from hubbub.storage import MetricVersion, NewBatch, open_store

PARAMS = make_params()
METRIC = make_metric(params=PARAMS)
KEY = MetricVersion(METRIC.name, METRIC.version)
FIRST = dt.date(2026, 1, 1)
DAYS = 365
AT_ONCE = 50_000
LARGEST_DRAWN = 1_000_000
CHUNK = 65_536
SEGMENTS = 16
MANY_COHORTS = 65_535


def draw(reports: int, rng: np.random.Generator, params: RapporParams = PARAMS) -> KeptCounts:
    """Return the counts of reports whose bits are set with the chance of a false one."""
    if reports > LARGEST_DRAWN:
        of_cohort = rng.multinomial(reports, np.full(params.m, 1 / params.m))
        bits = rng.binomial(of_cohort[:, None], params.p_star, (params.m, params.k))
        # Two numbers of set bits that add up to the same: about what a hundred would take.
        least, more = divmod(int(bits.sum()), reports)
        numbers = np.zeros(params.k + 1, dtype=np.int64)
        numbers[least], numbers[least + 1] = reports - more, more
        return KeptCounts(CohortCounts(of_cohort, bits), numbers)
    kept = keep_none(params)
    for start in range(0, reports, AT_ONCE):
        rows = min(AT_ONCE, reports - start)
        cohorts = rng.integers(0, params.m, rows).astype("<u2")[:, None].view(np.uint8)
        is_set = rng.random((rows, params.k), dtype=np.float32) < params.p_star
        packed = np.packbits(is_set, axis=1, bitorder="little")
        kept += keep_counts(np.hstack([cohorts, packed]).tobytes(), params)
    return kept


async def fill(url: str, kept: KeptCounts) -> None:
    """Store the same counts for every day of a year."""
    async with open_store(url, create=True) as store:
        await store.declare([METRIC])
        for number in range(DAYS):
            day = FIRST + dt.timedelta(days=number)
            await store.counts.add(secrets.token_bytes(16), KEY, day, kept, FIRST)


async def count_some(url: str, rng: np.random.Generator) -> float:
    """Return how many reports of a day, in segments of full size, are counted a second."""
    width = record_width(PARAMS.k)
    async with open_store(url, create=True) as store:
        await store.declare([METRIC])
        for _ in range(SEGMENTS):
            rows = rng.integers(0, 256, (CHUNK, width), dtype=np.uint8)
            rows[:, 0], rows[:, 1] = rng.integers(0, PARAMS.m, CHUNK), 0
            records = {KEY: Records(width, rows.tobytes())}
            await store.append([NewBatch(secrets.token_bytes(16), records)], FIRST)
        start = time.perf_counter()
        counted = await store.counts.count_reports(FIRST + dt.timedelta(days=1))
        return counted / (time.perf_counter() - start)


@click.command()
def main() -> None:
    """Print what counts of a day weigh, and how fast they are read."""
    rng = np.random.default_rng(1)
    print(f"k = {PARAMS.k}, m = {PARAMS.m}: {PARAMS.m * (PARAMS.k + 1):,} numbers")
    kept = keep_none(PARAMS)
    for reports in (1_000, 100_000, LARGEST_DRAWN, 100_000_000):
        kept = draw(reports, rng)
        size = len(pack_counts(kept))
        as_reports = reports * (2 + PARAMS.k // 8)
        print(
            f"{reports:>11,} reports a day: {size:>6,} bytes of counts, {as_reports:,} of reports"
        )
    many = draw(CHUNK, rng, make_params(m=MANY_COHORTS))
    start = time.perf_counter()
    packed = pack_counts(many)
    unpack_counts(packed)
    print(
        f"m = {MANY_COHORTS:,}, {CHUNK:,} reports: {len(packed):,} bytes of counts, packed and "
        f"unpacked in {time.perf_counter() - start:.1f} s"
    )
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'year.db'}"
        asyncio.run(fill(url, kept))
        rate = asyncio.run(count_some(f"sqlite:///{Path(folder) / 'reports.db'}", rng))
        print(f"{SEGMENTS * CHUNK:,} reports in SQLite became counts at {rate:,.0f} a second")
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            counts = asyncio.run(load_reports(StoredReports(url), METRIC)).counts
            seconds.append(time.perf_counter() - start)
        size = sum(path.stat().st_size for path in Path(folder).glob("year.db*"))
    print(
        f"a year of such days, {counts.total:,} reports: {size:,} bytes on disk, "
        f"read and added in {1000 * statistics.median(seconds):.0f} ms (median of 5)"
    )


if __name__ == "__main__":
    main()
