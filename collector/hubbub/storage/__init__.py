"""Where reports live: segments of shuffled records, counts of old ones, and the batch ids seen.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP. A
name is imported when it is first used, so that a command which only knows an error, or reads a
file, waits for no database's library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.storage.reports import (
        DayCount,
        Declared,
        MetricVersion,
        NewBatch,
        Reader,
        StoredCounts,
        StoredRecords,
    )
    from hubbub.storage.store import (
        DATABASES,
        Store,
        backup_store,
        migrate_store,
        open_store,
        why_to_wait,
    )

__all__ = [
    "DATABASES",
    "DayCount",
    "Declared",
    "MetricVersion",
    "NewBatch",
    "Reader",
    "Store",
    "StoredCounts",
    "StoredRecords",
    "backup_store",
    "migrate_store",
    "open_store",
    "why_to_wait",
]

_OF_STORE = frozenset(
    ("DATABASES", "Store", "backup_store", "migrate_store", "open_store", "why_to_wait")
)
"""Names in `store`; the others are in `reports`."""


def __getattr__(name: str) -> object:
    """Import a name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{'store' if name in _OF_STORE else 'reports'}")
    found: object = getattr(module, name)
    globals()[name] = found
    return found
