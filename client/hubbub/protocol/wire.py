"""Reports and batches, and the JSON that carries them.

A `Report` is all that ever leaves the process: it holds no value, only bits after both randomized
responses. A batch's id is drawn once and kept through every retry, which is how the collector
counts each report once.
"""

from __future__ import annotations

import binascii
import os
from typing import TYPE_CHECKING, NamedTuple

from hubbub.protocol.params import COHORT_BYTES

if TYPE_CHECKING:
    from typing import Self


class Report(NamedTuple):
    """One noisy report.

    Attributes
    ----------
    metric : str
    version : int
    cohort : int
        0 to m-1.
    bits : bytes
        k/8 bytes; bit j of the filter is bit j % 8 of byte j // 8.
    slice : str
        What it says of the app, in the clear (see `hubbub.protocol.dimensions`).
    """

    metric: str
    version: int
    cohort: int
    bits: bytes
    slice: str = ""

    @classmethod
    def of_record(cls, metric: str, version: int, record: bytes, slice_: str = "") -> Self:
        """Return the report whose `record` this is."""
        cohort = int.from_bytes(record[:COHORT_BYTES], "little")
        return cls(metric, version, cohort, record[COHORT_BYTES:], slice_)

    @property
    def record(self) -> bytes:
        """As it is stored and sent: the cohort, 2 bytes little-endian, then the bits."""
        return self.cohort.to_bytes(COHORT_BYTES, "little") + self.bits


def new_batch_id() -> str:
    """Return 32 lower-case hexadecimal digits from the operating system."""
    return os.urandom(16).hex()


class _Pair(NamedTuple):
    reports: tuple[Report, ...]
    batch_id: str


class Batch(_Pair):
    """Reports that travel, and are acknowledged, together; under a new id unless one is given."""

    __slots__ = ()

    def __new__(cls, reports: tuple[Report, ...], batch_id: str | None = None) -> Self:
        """Keep the reports, and draw an id for them."""
        return super().__new__(cls, reports, batch_id or new_batch_id())


def batch_to_json(batch: Batch) -> bytes:
    """Return the body of POST /v1/reports (docs/protocol, section 7)."""
    import json

    document = {"batch_id": batch.batch_id, "reports": list(map(_as_dict, batch.reports))}
    return json.dumps(document, separators=(",", ":")).encode()


EMPTY_BODY_BYTES = len('{"batch_id":"","reports":[]}') + 32
_EMPTY_REPORT_BYTES = len('{"metric":"","version":2147483647,"cohort":65535,"bits":""},')


_SLICE_BYTES = len('"slice":"",')


def json_size(metric: str, width: int, slice_: str = "") -> int:
    """Return the most bytes that a report with so many bytes of bits takes in a JSON body."""
    of_slice = _SLICE_BYTES + len(slice_) if slice_ else 0
    return _EMPTY_REPORT_BYTES + len(metric) + of_slice + 4 * -(-width // 3)


def _as_dict(report: Report) -> dict[str, str | int]:
    of_slice = {"slice": report.slice} if report.slice else {}
    return {
        "metric": report.metric,
        **of_slice,
        "version": report.version,
        "cohort": report.cohort,
        "bits": binascii.b2a_base64(report.bits, newline=False).decode("ascii"),
    }
