"""From a compact body to its sections: each the records of one metric and version.

docs/protocol, section 8, says what a body must be like, byte by byte. Sections that the registry
expects are known by the bytes of their heads, without a call each, or batches with one report of
many metrics would take longer than their JSON. Any other head is read field by field, as is that of
a section in which something is wrong, to name it. Invariant: a batch has just one compact form, and
whatever else an encoder might write is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from hubbub.protocol import (
    COHORT_BYTES,
    COUNT_BYTES,
    FIXED_HEAD_BYTES,
    FORMAT,
    HEAD_BYTES,
    ID_BYTES,
    LONGEST_NAME,
    MOST,
    MOST_BYTES_OF_BITS,
    SEPARATOR,
    CompactError,
    Records,
    TooManyReportsError,
    column,
    counted,
    is_slice,
    joined,
    section_head,
)
from hubbub.storage import MetricVersion, NewBatch

_NUMBERS = struct.Struct("<IHH")  # version, bytes of bits, number of records
_HEAD_NUMBERS = struct.Struct("<IH")  # without the last
_FEW = 32
"""Up to so many records are checked sooner one by one, in place, than by numpy."""
_SLICES = 4096
"""Sections of slices that are known by their heads, used last: some 300 bytes each."""

MOST_SECTIONS_OF_SLICES = 1024
"""A new slice takes ten times as long as a record, so this many take as long as a full batch. One
client has a section for each metric, and two in a batch from before and after an update.
"""


class ExpectedReports(NamedTuple):
    """What reports of one metric and version must be like."""

    key: MetricVersion
    cohorts: int
    width: int  # bytes of a record


_Order: TypeAlias = tuple[str, int]
"""What sections ascend by: what one calls its metric and slice, and the version."""
_Section: TypeAlias = tuple[_Order, MetricVersion, int, int]
"""What a section is ordered by, and then as in `ExpectedReports`.

A bare tuple, because a batch may hold one section per report: unpacking it is a tenth of the work.
"""


class CompactReader:
    """Reads compact bodies.

    `most_reports`: most reports of a batch. `look_at_each`: given a batch of which some reports
    aren't as expected, returns what to make of it. `told`: given a registered metric and a slice,
    returns as what its reports are stored.
    """

    def __init__(
        self,
        expected: Iterable[ExpectedReports],
        most_reports: int,
        look_at_each: Callable[[NewBatch], NewBatch],
        told: Callable[[str, str], str],
    ) -> None:
        self._most_reports = most_reports
        self._look_at_each = look_at_each
        self._told = told
        self._expected = {one.key: one for one in expected}
        self._sections: dict[bytes, _Section] = {
            section_head(*key[:2], one.width): (key[:2], *one)
            for key, one in self._expected.items()
        }
        self._of_slice = lru_cache(_SLICES)(self._section_of_slice)

    def read(self, body: bytes) -> NewBatch:  # noqa: PLR0912, PLR0915 - calls take time
        """Return the batch in a body.

        Raises `TooManyReportsError` if there are more reports, or sections of slices, than a batch
        may have. Raises `CompactError` if the body is anything but the one compact form of a batch;
        says where it isn't.
        """
        known, most, end = self._sections, self._most_reports, len(body)
        at, total, fits = HEAD_BYTES, 0, True
        of_slices = 0
        last: _Order = ("", 0)
        records: dict[MetricVersion, Records] = {}
        more: dict[MetricVersion, list[Records]] = {}  # of slices that are stored as one
        try:
            sections = body[at - 2] | body[at - 1] << 8
            if body[0] != FORMAT or not 0 < sections <= most:
                self._check_head(body)  # raises
            for number in range(sections):
                head_end = at + FIXED_HEAD_BYTES + body[at]
                try:
                    order, key, cohorts, width = known[body[at:head_end]]
                except KeyError:
                    of_slices += 1
                    if of_slices > MOST_SECTIONS_OF_SLICES:
                        raise _too_many_slices() from None
                    order, key, cohorts, width = self._of_slice(
                        body[at:head_end]
                    ) or self._unexpected(body, number, at)
                    fits = fits and cohorts > 0
                if order <= last:
                    raise _disordered(number, order, last)
                start = head_end + COUNT_BYTES
                count = body[head_end] | body[head_end + 1] << 8
                stop = start + count * width
                if not count or stop > end:
                    _read_head(body, number, at)  # raises
                found = Records(width, body[start:stop])
                if key in records:
                    more.setdefault(key, [records[key]]).append(found)
                else:
                    records[key] = found
                if count == 1:
                    if body[start] | body[start + 1] << 8 >= cohorts:
                        fits = False
                elif count > _FEW:
                    if not _many_fit(number, found, cohorts):
                        fits = False
                else:
                    before = b""
                    for first in range(start, stop, width):
                        record = body[first : first + width]
                        if record < before:
                            raise _descends(number, (first - start) // width)
                        if record[0] | record[1] << 8 >= cohorts:
                            fits = False
                        before = record
                total += count
                last = order
                at = stop
        except IndexError:
            if end < HEAD_BYTES:
                _field(body, 0, HEAD_BYTES, "head")  # raises
            _read_head(body, number, at)  # raises
            raise
        if at != end or total > most:
            self._check_end(end - at, total)  # raises
        records.update((key, joined(pool)) for key, pool in more.items())
        batch = NewBatch(body[1 : 1 + ID_BYTES], records)
        return batch if fits else self._look_at_each(batch)

    def _check_head(self, body: bytes) -> None:
        if body[0] != FORMAT:
            raise CompactError(f"format = {body[0]}: must be {FORMAT}")
        count = body[HEAD_BYTES - 2] | body[HEAD_BYTES - 1] << 8
        if not count:
            raise CompactError(f"sections = 0: must be between 1 and {MOST}")
        if count > self._most_reports:
            most = self._most_reports
            raise TooManyReportsError(f"reports: at least {count}; must be at most {most}")

    def _check_end(self, left: int, reports: int) -> None:
        if left:
            raise CompactError(
                f"body: {counted(left, 'byte')} after the last section; must end there"
            )
        if reports > self._most_reports:
            raise TooManyReportsError(f"reports: {reports}; must be at most {self._most_reports}")

    def _section_of_slice(self, head: bytes) -> _Section | None:
        """Return the section of a slice of an expected version, if this is a head of one."""
        name, numbers = head[1 : 1 + head[0]], head[1 + head[0] :]
        metric, separator, slice_ = name.decode("latin-1").partition(SEPARATOR)
        if len(numbers) != _HEAD_NUMBERS.size or not (separator and is_slice(slice_)):
            return None
        version, bits = _HEAD_NUMBERS.unpack(numbers)
        expected = self._expected.get(MetricVersion(metric, version))
        if not slice_ or expected is None or expected.width != COHORT_BYTES + bits:
            return None
        key = expected.key._replace(slice=self._told(metric, slice_))
        return (name.decode("ascii"), version), key, expected.cohorts, expected.width

    def _unexpected(self, body: bytes, number: int, begin: int) -> _Section:
        order, width = _read_head(body, number, begin)
        metric, _, slice_ = order[0].partition(SEPARATOR)
        return order, MetricVersion(metric, order[1], slice_), 0, width


def _too_many_slices() -> TooManyReportsError:
    return TooManyReportsError(
        f"sections: more than {MOST_SECTIONS_OF_SLICES} have a slice, or a version that isn't "
        f"known; must be at most {MOST_SECTIONS_OF_SLICES}"
    )


def _read_head(body: bytes, number: int, begin: int) -> tuple[_Order, int]:
    """Return what a section is ordered by, and its width.

    Raises `CompactError` if something is wrong with a field, or the body ends before its records
    do.
    """
    where = f"sections[{number}]"
    length = _field(body, begin, 1, f"{where}.name_length")[0]
    name = _field(body, begin + 1, length, f"{where}.metric")
    metric, separator, slice_ = name.partition(SEPARATOR.encode())
    if not 1 <= len(metric) <= LONGEST_NAME:
        message = f"{where}.name_length = {len(metric)}: must be between 1 and {LONGEST_NAME}"
        raise CompactError(message)
    if separator and not slice_:
        raise CompactError(f"{where}.metric = {name!r}: must have a slice behind {SEPARATOR}")
    if not name.isascii():
        raise CompactError(f"{where}.metric = {name!r}: must be ASCII")
    numbers = _field(body, begin + 1 + length, _NUMBERS.size, f"{where}.numbers")
    version, bits, count = _NUMBERS.unpack(numbers)
    if not 1 <= bits <= MOST_BYTES_OF_BITS:
        raise CompactError(
            f"{where}.bits_length = {bits}: must be between 1 and {MOST_BYTES_OF_BITS}"
        )
    if not count:
        raise CompactError(f"{where}.record_count = 0: must be between 1 and {MOST}")
    width = COHORT_BYTES + bits
    start = begin + FIXED_HEAD_BYTES + length + COUNT_BYTES
    _field(body, start, count * width, f"{where}.records")
    return (name.decode("ascii"), version), width


def _field(body: bytes, start: int, size: int, name: str) -> bytes:
    left = len(body) - start
    if size > left:
        raise CompactError(f"{name}: the body ends after {left} of {counted(size, 'byte')}")
    return body[start : start + size]


def _many_fit(number: int, records: Records, cohorts: int) -> bool:
    rows = np.frombuffer(records.data, f"S{records.width}")
    ascends = rows[:-1] <= rows[1:]
    if not ascends.all():
        raise _descends(number, 1 + int(ascends.argmin()))
    return bool(column(records, 0, "<u2").max() < cohorts)


def _disordered(number: int, order: _Order, last: _Order) -> CompactError:
    return CompactError(
        f"sections[{number}]: {order[0]} version {order[1]} after {last[0]} version {last[1]}; "
        "must be in ascending order, each once"
    )


def _descends(number: int, index: int) -> CompactError:
    return CompactError(f"sections[{number}]: record {index} is below the one before; must ascend")
