"""Batches as the store takes them, and what a store holds."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable

from hubbub.protocol import Records
from hubbub.storage import MetricVersion, NewBatch, Store, open_store
from unit.collector.exchanges import segments_of

HOMEPAGE = MetricVersion("homepage", 1)
WIDTH = 18


def make_record(number: int) -> bytes:
    """Return one of 65,536 distinguishable records of homepage."""
    return number.to_bytes(2, "little") + bytes(WIDTH - 2)


def make_records(numbers: Iterable[int]) -> Records:
    return Records(WIDTH, b"".join(map(make_record, numbers)))


def make_new_batch(
    numbers: Iterable[int] = range(3), *, key: MetricVersion = HOMEPAGE, batch_id: bytes = b""
) -> NewBatch:
    """Return a batch with the records of these numbers; under a new id, unless one is given."""
    records = make_records(numbers)
    return NewBatch(batch_id or secrets.token_bytes(16), {key: records})


def make_random_batch(reports: int, *, key: MetricVersion = HOMEPAGE) -> NewBatch:
    """Return a batch of random records, as real ones are to anybody but the decoder."""
    return NewBatch(
        secrets.token_bytes(16), {key: Records(WIDTH, secrets.token_bytes(18 * reports))}
    )


@contextlib.asynccontextmanager
async def two_stores(url: str) -> AsyncIterator[tuple[Store, Store]]:
    async with open_store(url, create=True) as one, open_store(url, create=True) as other:
        yield one, other


async def stored_segments(store: Store, key: MetricVersion = HOMEPAGE) -> list[list[int]]:
    """Return the numbers of the records in each segment, in the order in which they are stored."""
    return [
        [int.from_bytes(segment[i : i + 2], "little") for i in range(0, len(segment), WIDTH)]
        for segment in await segments_of(store, key)
    ]
