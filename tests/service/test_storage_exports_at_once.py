"""Two processes export one day to object storage, each its reports, and others read meanwhile."""

import asyncio
import contextlib
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.inference.counts import CohortCounts
from hubbub.storage import ParquetReader, StoreError, open_store
from service.exporters import DONE, export_again_and_again
from service.operators import METRIC, records_of

pytestmark = pytest.mark.long

ROUNDS = 6


def test_readers_get_the_one_day_or_the_other_or_an_error(operator, tmp_path):
    """And the next export mends what the two may have left.

    Both go on until each export went well once, and a reader has found a day.
    """
    other = f"sqlite:///{tmp_path}/other.db"
    stores, address = [operator.store, other], operator.address
    operator.store = other
    operator.add(range(5_000, 5_700))
    reports = [asyncio.run(_stored(store)) for store in stores]
    counts = [asyncio.run(load_reports(StoredReports(store), METRIC)).counts for store in stores]
    operator.export_here()
    enough = tmp_path / "a reader has found a day"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context) as pool:
        exports = [
            pool.submit(export_again_and_again, it, address, ROUNDS, enough) for it in stores
        ]
        while not all(export.done() for export in exports):
            with contextlib.suppress(StoreError):
                found = asyncio.run(records_of(ParquetReader(address)))
                counted = asyncio.run(
                    load_reports(StoredReports(f"parquet:{address}"), METRIC)
                ).counts
                enough.touch()
                assert found in reports
                assert any(_equal(counted, expected) for expected in counts)
        outcomes = sum((export.result() for export in exports), Counter[str]())
    assert outcomes.total() >= 2 * ROUNDS
    assert outcomes[DONE] >= 2
    operator.export_here()
    assert operator.exported() == reports[1]


async def _stored(url: str) -> list[bytes]:
    async with open_store(url, create=False) as store:
        return await records_of(store)


def _equal(some: CohortCounts, others: CohortCounts) -> bool:
    return bool((some.bits == others.bits).all() and (some.reports == others.reports).all())
