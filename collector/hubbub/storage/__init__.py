"""Where reports live: segments of shuffled records, counts of old ones, and the batch ids seen.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP. A
name is imported when it is first used, so that a command which only knows an error, or reads a
file, waits for no database's library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = {
    "SEALED": "sealed",
    "sealed_key": "sealed",
    **dict.fromkeys(
        ("DATABASES", "Store", "backup_store", "migrate_store", "open_store", "wait_for_schema"),
        "sql",
    ),
}
"""Where names are that aren't in `interfaces`."""


def __getattr__(name: str) -> object:
    """Import a name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'interfaces')}")
    found: object = getattr(module, name)
    globals()[name] = found
    return found
