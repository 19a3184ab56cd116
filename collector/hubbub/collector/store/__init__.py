"""Where reports live: segments of shuffled records, and the batch ids seen, kept apart.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP.
"""

from hubbub.collector.store.contents import DayCount, Declared, MetricVersion, NewBatch, Reader
from hubbub.collector.store.sql import Store, open_store

__all__ = [
    "DayCount",
    "Declared",
    "MetricVersion",
    "NewBatch",
    "Reader",
    "Store",
    "open_store",
]
