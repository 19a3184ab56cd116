"""Reports and batches, and the two forms in which they travel: JSON and the compact form.

A `Report` is all that ever leaves the process: it holds no value, only bits after both randomized
responses. A batch's id is drawn once and kept through every retry, which is how the collector
counts each report once. Invariant: a batch has just one compact form (docs/protocol, section 8).
Sections and records are in ascending order and no byte is free, so neither their order nor a
client's way of writing reveals anything; any other encoding is refused.
"""

from __future__ import annotations

import binascii
import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from hubbub.protocol.params import COHORT_BYTES

if TYPE_CHECKING:
    from typing import Self


MEDIA_TYPE = "application/vnd.hubbub.batch"
FORMAT = 1
"""The first byte; another arrangement of the bytes would have another."""
ID_BYTES = 16  # 128 bits: batches of all clients of all time have different ids
HEAD_BYTES = 1 + ID_BYTES + 2
"""Before the sections: format, batch id, number of sections."""
COUNT_BYTES = 2
"""A section's number of records, between its head and them."""
FIXED_HEAD_BYTES = 1 + 4 + 2
"""A section's head without the metric's name: its length, version, bytes of bits."""
LONGEST_NAME = 64  # the protocol's, section 1
SEPARATOR = ";"
"""Between a metric's name and its slice, where a report has one."""
MOST_BYTES_OF_BITS = 512  # k is at most 4096
MOST = 2**16 - 1
"""Sections of a batch, and records of a section."""


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
        Facts about the app, in the clear (see `hubbub.protocol.dimensions`).
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
        """The bytes stored and sent: the cohort, 2 bytes little-endian, then the bits."""
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


def batch_to_compact(batch: Batch) -> bytes:
    """Return the compact body of POST /v1/reports.

    A section holds the reports of one metric, slice and version, at least one, of equal widths.
    """
    reports = batch.reports
    ascending = sorted((section_name(r.metric, r.slice), r.version, r.record) for r in reports)
    sections = []
    for (metric, version), members in itertools.groupby(ascending, key=lambda row: row[:2]):
        rows = [record for *_, record in members]
        head = section_head(metric, version, len(rows[0]))
        sections.append(b"".join([head, len(rows).to_bytes(COUNT_BYTES, "little"), *rows]))
    head = bytes([FORMAT]) + bytes.fromhex(batch.batch_id) + len(sections).to_bytes(2, "little")
    return head + b"".join(sections)


def section_name(metric: str, slice_: str) -> str:
    """Return what a section calls a metric and a slice."""
    return f"{metric}{SEPARATOR}{slice_}" if slice_ else metric


def section_head(named: str, version: int, width: int) -> bytes:
    """Return the bytes that name a section's metric, slice, version and bits."""
    name = named.encode("ascii")
    numbers = version.to_bytes(4, "little") + (width - COHORT_BYTES).to_bytes(2, "little")
    return bytes([len(name)]) + name + numbers
