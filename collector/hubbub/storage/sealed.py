"""Sealed records in a store: segments of a metric that no registry can have.

To a store they are reports like others, so they are pooled, shuffled, merged, exported, dropped and
deleted as all are; only counting them makes no sense. The size of the payloads stands for the
version, so that records of one length lie together. Invariant: the width that the definition tells
is the records' own, as for every metric.
"""

from __future__ import annotations

from hubbub.protocol.records import COHORT_BYTES
from hubbub.protocol.sealed import OVERHEAD, PAYLOAD_SIZES
from hubbub.storage.interfaces import Declared, MetricVersion

SEALED = "_sealed"
"""Names of metrics begin with a letter."""


def sealed_key(payload: int) -> MetricVersion:
    """Return under what records with payloads of some bytes are stored."""
    return MetricVersion(SEALED, payload)


def sealed_versions() -> list[Declared]:
    """Return what is declared of sealed records."""
    versions = []
    for payload in PAYLOAD_SIZES:
        # What takes a record apart finds the first bytes of the key's id where cohorts are.
        definition: dict[str, object] = {
            "type": "sealed",
            "k": 8 * (payload + OVERHEAD - COHORT_BYTES),
            "m": 2**16,
        }
        versions.append(Declared(*sealed_key(payload), definition))
    return versions
