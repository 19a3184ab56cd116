"""Where reports live: segments of shuffled records, counts of old ones, and the batch ids seen.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP.
"""

from hubbub.storage.interfaces import (
    DayCount,
    Declared,
    MetricVersion,
    NewBatch,
    QuarantineDay,
    QuarantineKey,
    Reader,
    Replayed,
    StoredCounts,
    StoredRecords,
)
from hubbub.storage.sealed import SEALED, sealed_key
from hubbub.storage.sql import (
    DATABASES,
    Store,
    backup_store,
    migrate_store,
    open_store,
    wait_for_schema,
)

__all__ = [
    "DATABASES",
    "SEALED",
    "DayCount",
    "Declared",
    "MetricVersion",
    "NewBatch",
    "QuarantineDay",
    "QuarantineKey",
    "Reader",
    "Replayed",
    "Store",
    "StoredCounts",
    "StoredRecords",
    "backup_store",
    "migrate_store",
    "open_store",
    "sealed_key",
    "wait_for_schema",
]
