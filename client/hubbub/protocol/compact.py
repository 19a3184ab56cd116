"""Batches in the compact form: for each metric and version its reports as fixed-width records.

docs/protocol, section 8, describes it byte by byte. Invariant: a batch has just one compact form.
Sections and records are in ascending order and no byte is free, so neither their order nor a
client's way of writing tells anything; whatever else an encoder might write is refused.
"""

from __future__ import annotations

import itertools
import struct
from typing import NamedTuple

from hubbub.protocol.errors import CompactError, TooManyReportsError
from hubbub.protocol.wire import Batch, Report

MEDIA_TYPE = "application/vnd.hubbub.batch"
FORMAT = 1
"""The first byte; another arrangement of the bytes would have another."""
ID_BYTES = 16
HEAD_BYTES = 1 + ID_BYTES + 2
"""What precedes the sections: format, batch id, number of sections."""
COUNT_BYTES = 2
"""A section's number of records, between its head and them."""
FIXED_HEAD_BYTES = 1 + 4 + 2
"""A section's head without the metric's name: its length, version, bytes of bits."""
_HEAD = struct.Struct(f"<B{ID_BYTES}sH")
_NUMBERS = struct.Struct("<IHH")  # version, bytes of bits, number of records
_COHORT_BYTES = 2  # as in `records`, which needs numpy
_LONGEST_NAME = 64
_MOST_BITS = 512
_MOST = 2**16 - 1
"""Sections of a batch, and records of a section."""


class Section(NamedTuple):
    """The reports of one metric and version.

    Attributes
    ----------
    metric : str
    version : int
    width : int
        Bytes of a record.
    data : bytes
        The records (cohort, 2 bytes little-endian, then the bits), end to end.
    """

    metric: str
    version: int
    width: int
    data: bytes

    @property
    def n_reports(self) -> int:
        """Number of records, each a report."""
        return len(self.data) // self.width

    def records(self) -> list[tuple[int, bytes]]:
        """Return the cohort and the bits of each record."""
        return list(struct.iter_unpack(f"<H{self.width - _COHORT_BYTES}s", self.data))

    def reports(self) -> list[Report]:
        """Return the reports, in the order of the records."""
        return [Report(self.metric, self.version, *record) for record in self.records()]


def batch_to_compact(batch: Batch) -> bytes:
    """Return the compact body of POST /v1/reports, in which reports are in ascending order.

    Raises
    ------
    CompactError
        If there is no report, something doesn't fit its bytes, or reports of one metric and version
        differ in the length of their bits.
    """
    reports = batch.reports
    if not reports:
        raise CompactError("reports: 0; must be at least 1")
    ascending = sorted((r.metric, r.version, _record(i, r)) for i, r in enumerate(reports))
    sections = []
    for (metric, version), members in itertools.groupby(ascending, key=lambda row: row[:2]):
        rows = [record for *_, record in members]
        widths = sorted({len(row) for row in rows})
        if len(widths) > 1:
            some = " and ".join(str(width - _COHORT_BYTES) for width in widths)
            raise CompactError(f"bits of {metric!r} version {version}: {some} bytes; must be equal")
        if len(rows) > _MOST:
            raise CompactError(
                f"reports of {metric!r} version {version}: {len(rows)}; must be at most {_MOST}"
            )
        head = section_head(metric, version, widths[0])
        sections.append(b"".join([head, len(rows).to_bytes(COUNT_BYTES, "little"), *rows]))
    if len(sections) > _MOST:
        raise CompactError(f"sections: {len(sections)}; must be at most {_MOST}")
    head = bytes([FORMAT]) + _id_bytes(batch.batch_id) + len(sections).to_bytes(2, "little")
    return head + b"".join(sections)


def section_head(metric: str, version: int, width: int) -> bytes:
    """Return the bytes that name a section's metric, version and bits, given a record's width."""
    name = metric.encode("ascii")
    numbers = version.to_bytes(4, "little") + (width - _COHORT_BYTES).to_bytes(2, "little")
    return bytes([len(name)]) + name + numbers


def read_compact(body: bytes, most_reports: int | None = None) -> tuple[str, list[Section]]:
    """Return the batch id and the sections of a compact body.

    Whether the metrics exist, and reports fit them, is for their registry to say.

    Raises
    ------
    TooManyReportsError
        If there are more; found out before any of them is looked at.
    CompactError
        If the body is anything but the one compact form of a batch; says where it isn't.
    """
    unread = _Unread(body)
    form, batch_id, count = _HEAD.unpack(unread.take("head", HEAD_BYTES))
    if form != FORMAT:
        raise CompactError(f"format = {form}: must be {FORMAT}")
    if not count:
        raise CompactError(f"sections = 0: must be between 1 and {_MOST}")
    if most_reports is not None and count > most_reports:
        raise TooManyReportsError(f"reports: at least {count}; must be at most {most_reports}")
    sections = [_read_section(number, unread) for number in range(count)]
    if unread.left:
        raise CompactError(f"body: {unread.left} bytes after the last section; must end there")
    reports = sum(section.n_reports for section in sections)
    if most_reports is not None and reports > most_reports:
        raise TooManyReportsError(f"reports: {reports}; must be at most {most_reports}")
    _check_order(sections)
    return batch_id.hex(), sections


def _check_order(sections: list[Section]) -> None:
    for number, section in enumerate(sections):
        where = f"sections[{number}]"
        if number and section[:2] <= sections[number - 1][:2]:
            before = " version ".join(map(str, sections[number - 1][:2]))
            raise CompactError(
                f"{where}: {section.metric} version {section.version} after {before}; "
                "must be in ascending order, each once"
            )
        rows = [
            section.data[start : start + section.width]
            for start in range(0, len(section.data), section.width)
        ]
        if rows != sorted(rows):
            index = next(i for i in range(1, len(rows)) if rows[i] < rows[i - 1])
            raise CompactError(f"{where}: record {index} is below the one before; must ascend")


class _Unread:
    """What is left of a body.

    Attributes
    ----------
    where : str
        What precedes the name of a field in an error.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self.where = ""

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def take(self, field: str, size: int) -> bytes:
        """Return the next bytes, which are a field."""
        if size > self.left:
            raise self.error(field, f": the body ends after {self.left} of {size} bytes")
        self._at += size
        return self._body[self._at - size : self._at]

    def error(self, field: str, fault: str) -> CompactError:
        return CompactError(f"{self.where}{field}{fault}")


def _read_section(number: int, unread: _Unread) -> Section:
    unread.where = f"sections[{number}]."
    length = unread.take("name_length", 1)[0]
    if not 1 <= length <= _LONGEST_NAME:
        raise unread.error("name_length", f" = {length}: must be between 1 and {_LONGEST_NAME}")
    name = unread.take("metric", length)
    if not name.isascii():
        raise unread.error("metric", f" = {name!r}: must be ASCII")
    version, bits, count = _NUMBERS.unpack(unread.take("numbers", _NUMBERS.size))
    if not 1 <= bits <= _MOST_BITS:
        raise unread.error("bits_length", f" = {bits}: must be between 1 and {_MOST_BITS}")
    if not count:
        raise unread.error("record_count", f" = 0: must be between 1 and {_MOST}")
    width = _COHORT_BYTES + bits
    return Section(name.decode("ascii"), version, width, unread.take("records", count * width))


def _record(index: int, report: Report) -> bytes:
    where = f"reports[{index}]"
    metric, version, cohort, bits = report
    if not (isinstance(metric, str) and metric.isascii() and 1 <= len(metric) <= _LONGEST_NAME):
        raise CompactError(f"{where}.metric: must be 1 to {_LONGEST_NAME} ASCII characters")
    _check_integer(f"{where}.version", version, 2**32 - 1)
    _check_integer(f"{where}.cohort", cohort, 2**16 - 1)
    if not 1 <= len(bits) <= _MOST_BITS:
        raise CompactError(f"{where}.bits: {len(bits)} bytes; must be 1 to {_MOST_BITS}")
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
