"""Records of several origins -> one new segment, in an order that tells nothing of them.

What a maintainer must not break: everything that is written to the table of segments comes from
here, shuffled by the operating system's randomness, and under a random key.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from hubbub.collector.store.contents import MetricVersion, NewBatch
from hubbub.collector.store.records import Records, shuffled

Row = dict[str, Any]
"""The columns of a segment."""


def segment_rows(batches: Iterable[NewBatch], day: dt.date) -> list[Row]:
    """Pool the records of many batches, shuffled so that none can be told from another's."""
    pools: dict[MetricVersion, list[Records]] = {}
    for batch in batches:
        for key, records in batch.records.items():
            pools.setdefault(key, []).append(records)
    return [_segment_row(key, day, pool) for key, pool in pools.items()]


async def segment_row(key: MetricVersion, day: dt.date, pool: Sequence[Records]) -> Row:
    """Return a new row for records of several origins, shuffled together, in a thread."""
    return await asyncio.to_thread(_segment_row, key, day, pool)


def _segment_row(key: MetricVersion, day: dt.date, pool: Sequence[Records]) -> Row:
    together = Records(pool[0].width, b"".join([records.data for records in pool]))
    records = shuffled(together)
    return {
        "segment_id": secrets.randbits(63),
        "metric": key.metric,
        "version": key.version,
        "day": day,
        "reports": records.reports,
        "records": records.data,
    }
