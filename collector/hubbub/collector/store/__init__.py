"""Where reports live: segments of shuffled records, and the batch ids seen, kept apart.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP.
"""

from hubbub.collector.store.interfaces import DayCount, Declared, MetricVersion, NewBatch, Reader
from hubbub.collector.store.sql import DATABASES, Store, open_store

__all__ = [
    "DATABASES",
    "DayCount",
    "Declared",
    "MetricVersion",
    "NewBatch",
    "Reader",
    "Store",
    "open_store",
]
