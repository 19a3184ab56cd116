"""From a compact body to its sections: each the records of one metric and version.

docs/protocol, section 8, says what a body must be like, byte by byte. Invariant: a batch has just
one compact form, and whatever else an encoder might write is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hubbub.protocol import (
    COHORT_BYTES,
    COUNT_BYTES,
    FIXED_HEAD_BYTES,
    FORMAT,
    HEAD_BYTES,
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
)
from hubbub.storage import MetricVersion, NewBatch

_HEAD = struct.Struct("<B16sH")  # format, batch id, number of sections
_NUMBERS = struct.Struct("<IH")  # version, bytes of bits; then the number of records
_FEW = 32
"""Up to so many records are checked sooner one by one than by numpy."""
_SECTIONS = 4096
"""Different heads whose meaning is remembered, used last: some 300 bytes each."""

MOST_SECTIONS_OF_SLICES = 1024
"""A new slice takes ten times as long as a record, so this many take as long as a full batch. One
client has a section for each metric, and two in a batch from before and after an update.
"""


class ExpectedReports(NamedTuple):
    """The required form of reports of one metric and version."""

    key: MetricVersion
    cohorts: int
    width: int  # bytes of a record


class CompactReader:
    """Reads compact bodies.

    `most_reports`: most reports of a batch. `look_at_each`: given a batch of which some reports
    aren't as expected, returns what to make of it. `stored_slice`: given a registered metric and a
    slice, returns the one that its reports are stored as.
    """

    def __init__(
        self,
        expected: Iterable[ExpectedReports],
        most_reports: int,
        look_at_each: Callable[[NewBatch], NewBatch],
        stored_slice: Callable[[str, str], str],
    ) -> None:
        self._most_reports = most_reports
        self._look_at_each = look_at_each
        self._stored_slice = stored_slice
        self._expected = {one.key: one for one in expected}
        self._section = lru_cache(_SECTIONS)(self._read_head)

    def read(self, body: bytes) -> NewBatch:  # noqa: PLR0912 (one pass, in the order of a body)
        """Return the batch in a body.

        Raises `TooManyReportsError` if there are more reports, or sections of slices, than a batch
        may have. Raises `CompactError` if the body is anything but the one compact form of a batch;
        says where it isn't.
        """
        if len(body) < HEAD_BYTES:
            raise _cut_off("head", len(body), HEAD_BYTES)
        form, batch_id, sections = _HEAD.unpack_from(body)
        if form != FORMAT:
            raise CompactError(f"format = {form}: must be {FORMAT}")
        if not sections:
            raise CompactError(f"sections = 0: must be between 1 and {MOST}")
        most, end = self._most_reports, len(body)
        if sections > most:
            raise TooManyReportsError(f"reports: at least {sections}; must be at most {most}")
        at, total, fits = HEAD_BYTES, 0, True
        of_slices = 0
        last = ("", 0)
        pools: dict[MetricVersion, list[Records]] = {}  # several of slices that are stored as one
        for number in range(sections):
            start = at + FIXED_HEAD_BYTES + COUNT_BYTES + (body[at] if at < end else 0)
            try:
                if start > end:
                    raise _cut_off("head", end - at, start - at)
                order, key, cohorts, width = self._section(body[at : start - COUNT_BYTES])
            except CompactError as error:
                raise CompactError(f"sections[{number}].{error}") from None
            count = body[start - 2] | body[start - 1] << 8
            if not count:
                raise CompactError(
                    f"sections[{number}].record_count = 0: must be between 1 and {MOST}"
                )
            stop = start + count * width
            if stop > end:
                raise _cut_off(f"sections[{number}].records", end - start, stop - start)
            if order <= last:
                raise _disordered(number, order, last)
            of_slices += SEPARATOR in order[0] or not cohorts
            if of_slices > MOST_SECTIONS_OF_SLICES:
                raise _too_many_slices()
            found = Records(width, body[start:stop])
            pools.setdefault(key, []).append(found)
            fits = _fit(number, found, cohorts) and fits
            total += found.reports
            last, at = order, stop
        if at != end:
            left = counted(end - at, "byte")
            raise CompactError(f"body: {left} after the last section; must end there")
        if total > most:
            raise TooManyReportsError(f"reports: {total}; must be at most {most}")
        batch = NewBatch(batch_id, {key: joined(pool) for key, pool in pools.items()})
        return batch if fits else self._look_at_each(batch)

    def _read_head(self, head: bytes) -> tuple[tuple[str, int], MetricVersion, int, int]:
        """Return what a section is ordered by, as what it is stored, its cohorts and its width.

        What one calls a metric and slice, and the version, is what sections ascend by. It has 0
        cohorts if it is unexpected. Raises `CompactError` if something is wrong with a field.
        """
        name = head[1 : 1 + head[0]]
        version, bits = _NUMBERS.unpack_from(head, len(head) - _NUMBERS.size)
        metric, slice_ = _split(name)
        if not 1 <= bits <= MOST_BYTES_OF_BITS:
            raise CompactError(f"bits_length = {bits}: must be between 1 and {MOST_BYTES_OF_BITS}")
        order, width = (name.decode("ascii"), version), COHORT_BYTES + bits
        key = MetricVersion(metric, version, slice_)
        expected = self._expected.get(key.whole)
        if expected is None or expected.width != width or not is_slice(slice_):
            return order, key, 0, width
        stored = self._stored_slice(metric, slice_) if slice_ else ""
        return order, key._replace(slice=stored), expected.cohorts, width


def _too_many_slices() -> TooManyReportsError:
    return TooManyReportsError(
        f"sections: more than {MOST_SECTIONS_OF_SLICES} have a slice, or a version that isn't "
        f"known; must be at most {MOST_SECTIONS_OF_SLICES}"
    )


def _split(name: bytes) -> tuple[str, str]:
    """Return the metric and the slice that a section has by its name."""
    metric, separator, slice_ = name.decode("latin-1").partition(SEPARATOR)
    if not 1 <= len(metric) <= LONGEST_NAME:
        raise CompactError(f"name_length = {len(metric)}: must be between 1 and {LONGEST_NAME}")
    if separator and not slice_:
        raise CompactError(f"metric = {name!r}: must have a slice behind {SEPARATOR}")
    if not name.isascii():
        raise CompactError(f"metric = {name!r}: must be ASCII")
    return metric, slice_


def _cut_off(name: str, left: int, size: int) -> CompactError:
    return CompactError(f"{name}: the body ends after {left} of {counted(size, 'byte')}")


def _fit(number: int, records: Records, cohorts: int) -> bool:
    """Return whether all cohorts are below a number (raises CompactError: out of order)."""
    data, width = records.data, records.width
    if len(data) <= _FEW * width:
        rows = [data[at : at + width] for at in range(0, len(data), width)]
        for index in range(1, len(rows)):
            if rows[index] < rows[index - 1]:
                raise _descends(number, index)
        return all(row[0] | row[1] << 8 < cohorts for row in rows)
    table = np.frombuffer(data, f"S{width}")
    ascends = table[:-1] <= table[1:]
    if not ascends.all():
        raise _descends(number, 1 + int(ascends.argmin()))
    return bool(column(records, 0, "<u2").max() < cohorts)


def _disordered(number: int, order: tuple[str, int], last: tuple[str, int]) -> CompactError:
    return CompactError(
        f"sections[{number}]: {order[0]} version {order[1]} after {last[0]} version {last[1]}; "
        "must be in ascending order, each once"
    )


def _descends(number: int, index: int) -> CompactError:
    return CompactError(f"sections[{number}]: record {index} is below the one before; must ascend")
