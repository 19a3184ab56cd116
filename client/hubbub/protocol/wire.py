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

from hubbub.protocol.dimensions import is_slice
from hubbub.protocol.errors import CompactError
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
    """Return the compact body of POST /v1/reports (CompactError if something doesn't fit it).

    A section holds the reports of one metric, slice and version.
    """
    reports = batch.reports
    if not reports:
        raise CompactError("reports: 0; must be at least 1")
    # Reports in their one order, in sections of one metric, slice and version.
    ascending = sorted((_name(i, r), r.version, _record(i, r)) for i, r in enumerate(reports))
    sections = []
    for (metric, version), members in itertools.groupby(ascending, key=lambda row: row[:2]):
        rows = [record for *_, record in members]
        widths = sorted({len(row) for row in rows})
        if len(widths) > 1:
            some = " and ".join(str(width - COHORT_BYTES) for width in widths)
            raise CompactError(f"bits of {metric!r} version {version}: {some} bytes; must be equal")
        if len(rows) > MOST:
            raise CompactError(
                f"reports of {metric!r} version {version}: {len(rows)}; must be at most {MOST}"
            )
        head = section_head(metric, version, widths[0])
        sections.append(b"".join([head, len(rows).to_bytes(COUNT_BYTES, "little"), *rows]))
    if len(sections) > MOST:
        raise CompactError(f"sections: {len(sections)}; must be at most {MOST}")
    head = bytes([FORMAT]) + _id_bytes(batch.batch_id) + len(sections).to_bytes(2, "little")
    return head + b"".join(sections)


def section_name(metric: str, slice_: str) -> str:
    """Return what a section calls a metric and a slice."""
    return f"{metric}{SEPARATOR}{slice_}" if slice_ else metric


def section_head(named: str, version: int, width: int) -> bytes:
    """Return the bytes that name a section's metric, slice, version and bits."""
    name = named.encode("ascii")
    numbers = version.to_bytes(4, "little") + (width - COHORT_BYTES).to_bytes(2, "little")
    return bytes([len(name)]) + name + numbers


def _name(index: int, report: Report) -> str:
    where, metric = f"reports[{index}]", report.metric
    if not (isinstance(metric, str) and metric.isascii() and 1 <= len(metric) <= LONGEST_NAME):
        raise CompactError(f"{where}.metric: must be 1 to {LONGEST_NAME} ASCII characters")
    if report.slice and not is_slice(report.slice):
        raise CompactError(f"{where}.slice = {report.slice!r}: must be like platform=mac")
    return section_name(metric, report.slice)


def _record(index: int, report: Report) -> bytes:
    where = f"reports[{index}]"
    version, cohort, bits = report.version, report.cohort, report.bits
    _check_integer(f"{where}.version", version, 2**32 - 1)
    _check_integer(f"{where}.cohort", cohort, 2**16 - 1)
    if not 1 <= len(bits) <= MOST_BYTES_OF_BITS:
        raise CompactError(f"{where}.bits: {len(bits)} bytes; must be 1 to {MOST_BYTES_OF_BITS}")
    return report.record


def _check_integer(where: str, value: object, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise CompactError(f"{where} = {value!r}: must be an integer between 0 and {most}")


def _id_bytes(batch_id: str) -> bytes:
    try:
        data = bytes.fromhex(batch_id)
    except ValueError:
        data = b""
    if data.hex() != batch_id or len(data) != ID_BYTES:
        raise CompactError("batch_id: must be 32 lower-case hexadecimal digits")
    return data
