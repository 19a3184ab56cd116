"""From a request's body to a checked batch, ready to be stored.

JSON is decoded by msgspec, a compact body (docs/protocol, section 8) section by section; where that
finds a report that isn't as expected, each is looked at as if it had come in JSON: both forms are
judged by the same words. Invariants: a batch has just one compact form, and whatever else an
encoder might write is refused; a batch is accepted or refused as a whole, and a refusal names the
report and the field, never the client.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import iter_unpack
from typing import Annotated, NamedTuple, NoReturn

import msgspec
import numpy as np

from hubbub.collector.problems import RefusalError
from hubbub.protocol import (
    COHORT_BYTES,
    COUNT_BYTES,
    FIXED_HEAD_BYTES,
    FORMAT,
    HEAD_BYTES,
    LONGEST_NAME,
    MOST,
    MOST_BYTES_OF_BITS,
    MOST_VERSION,
    SEPARATOR,
    CompactError,
    Records,
    Registry,
    TooManyReportsError,
    column,
    counted,
    is_metric_name,
    is_slice,
    joined,
    wire,
)
from hubbub.storage import Declared, MetricVersion, NewBatch

_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to ask for gzip's header (its manual, inflateInit2)
_BATCH_ID = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
_AT_REPORT = re.compile(r"reports\[(\d+)\]")
_AT_PATH = re.compile(r"(?P<fault>.*) - at `(?P<path>[^`]*)`", re.DOTALL)
_IN_FULL = 8
_LONGEST = 80
_NAMES = 20
"""Bounds on what an answer repeats; see `_refusal`."""
_SLICES = 4096
"""Different slices whose meaning is remembered: some 200 bytes each."""
_HEAD = struct.Struct("<B16sH")  # format, batch id, number of sections
_NUMBERS = struct.Struct("<IH")  # version, bytes of bits; then the number of records
_SECTIONS = 4096
"""Different heads whose meaning is remembered, used last: some 300 bytes each."""
MOST_SECTIONS_OF_SLICES = 1024
"""A new slice takes ten times as long as a record, so this many take as long as a full batch. One
client has a section for each metric, and two in a batch from before and after an update.
"""


class _Report(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    metric: str
    version: int
    cohort: int
    bits: bytes
    slice: str = ""


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch_id: _BATCH_ID
    reports: Annotated[list[_Report], msgspec.Meta(min_length=1)]


_JSON = "application/json"
_MEDIA_TYPES = (_JSON, wire.MEDIA_TYPE)
_decode_any = msgspec.json.Decoder(_Batch).decode


def check_media_type(content_type: str) -> None:
    """Refuse a body of another media type than can be read (raises RefusalError: 415)."""
    if content_type not in _MEDIA_TYPES:
        expected = ", ".join(_MEDIA_TYPES)
        raise RefusalError(
            415, "media_type", f"Content-Type = {_cut(content_type)!r}: must be one of: {expected}"
        )


class BatchReader:
    """Reads and checks batches against one registry.

    `declared`: versions that were registered earlier. Their clients are still out there, so their
    reports are accepted as long as the registry has the metric. `max_reports`: most reports of a
    batch.
    """

    def __init__(
        self, registry: Registry, declared: Iterable[Declared] = (), max_reports: int = 10_000
    ) -> None:
        self._max_reports = max_reports
        self._stored_slice = lru_cache(_SLICES)(
            lambda metric, slice_: registry[metric].slice_as(slice_)
        )
        known = [it for it in declared if it.metric in registry]
        self._expected: dict[tuple[str, int, str], ExpectedReports] = {}
        for it in (*known, *map(Declared.of, registry.values())):
            key = MetricVersion(it.metric, it.version)
            self._expected[key] = ExpectedReports(key, it.params.m, it.width)
        self._read_compact = CompactReader(
            self._expected.values(), max_reports, self._look_at_each, self._stored_slice
        ).read

    def read(self, body: bytes, content_type: str) -> NewBatch:
        """Return the batch in a body.

        Raises `RefusalError`: 415 for another media type, 400 for a body that isn't what its media
        type says, 413 for too many reports, 422 for any report that doesn't fit its metric or whose
        metric or version isn't known.
        """
        if content_type == wire.MEDIA_TYPE:
            try:
                return self._read_compact(body)
            except TooManyReportsError as error:
                raise RefusalError(413, "too_large", str(error)) from error
            except CompactError as error:
                raise _not_valid(content_type, error) from error
        check_media_type(content_type)
        return self._read_json(body)

    def _read_json(self, body: bytes) -> NewBatch:
        try:
            batch = _decode_any(body)
        except msgspec.ValidationError as error:
            detail = _describe_shape(str(error))
            at_report = _AT_REPORT.match(detail)
            faults = {int(at_report[1]): detail} if at_report else None
            raise RefusalError(422, "invalid", detail, reports=faults) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _not_valid(_JSON, error) from error
        if len(batch.reports) > self._max_reports:
            given = len(batch.reports)
            detail = f"reports: {given}; must be at most {self._max_reports}"
            raise RefusalError(413, "too_large", detail)
        rows: dict[tuple[str, int, str], list[bytes]] = {}
        for report in batch.reports:
            if not self._fits(report):
                raise self._refusal(batch.reports)
            row = report.cohort.to_bytes(COHORT_BYTES, "little") + report.bits
            rows.setdefault((report.metric, report.version, report.slice), []).append(row)
        _check_number_of_slices(sum(text != "" for *_, text in rows))
        records: dict[MetricVersion, list[bytes]] = {}
        for (metric, version, text), some in rows.items():
            key = MetricVersion(metric, version, self._stored_slice(metric, text) if text else "")
            records.setdefault(key, []).extend(some)
        return NewBatch(
            bytes.fromhex(batch.batch_id),
            {key: Records(len(some[0]), b"".join(some)) for key, some in records.items()},
        )

    def _look_at_each(self, batch: NewBatch) -> NoReturn:
        """Refuse a compact batch of which some reports aren't as expected, as one in JSON."""
        raise self._refusal(
            [
                _Report(key.metric, key.version, cohort, bits, key.slice)
                for key, records in batch.records.items()
                for cohort, bits in iter_unpack(f"<H{records.width - COHORT_BYTES}s", records.data)
            ]
        )

    def _refusal(self, reports: Sequence[_Report]) -> RefusalError:
        """Return what is wrong with the reports of a batch."""
        _check_number_of_slices(
            len({(it.metric, it.version, it.slice) for it in reports if it.slice})
        )
        faults: dict[int, str] = {}
        unknown: dict[tuple[str, int], str] = {}
        for index, report in enumerate(reports):
            if self._fits(report):
                continue
            name, version = report.metric, report.version
            is_new = (name, version, "") not in self._expected
            if is_new and is_metric_name(name) and 1 <= version <= MOST_VERSION:
                # Another collector, or this one soon, may know it.
                detail = f"reports[{index}].{self._fault(report)}"
                unknown.setdefault((name, version), detail)
                continue
            # Each, as the protocol promises, but few in full: the answer stays a few kilobytes.
            is_told = len(faults) < _IN_FULL
            faults[index] = f"reports[{index}].{self._fault(report)}" if is_told else "refused"
        first = next(iter((*faults.values(), *unknown.values())))
        reason = "invalid" if faults else "unregistered"
        return RefusalError(422, reason, first, reports=faults, unknown=unknown)

    def _fits(self, report: _Report) -> bool:
        """Return whether a report fits its metric's registry entry."""
        expected = self._expected.get((report.metric, report.version, ""))
        return (
            expected is not None
            and 0 <= report.cohort < expected.cohorts
            and len(report.bits) == expected.width - COHORT_BYTES
            and (not report.slice or is_slice(report.slice))
        )

    def _fault(self, report: _Report) -> str:
        """Return what is wrong with a report that doesn't fit."""
        versions = sorted(it[1] for it in self._expected if it[0] == report.metric)
        if not versions:
            known = _some(sorted({it[0] for it in self._expected}))
            return f"metric = {_cut(report.metric)!r}: must be one of: {known}"
        expected = self._expected.get((report.metric, report.version, ""))
        if expected is None:
            given, known = _cut(str(report.version)), _some(list(map(str, versions)))
            return f"version = {given}: must be {'one of: ' * (len(versions) > 1)}{known}"
        if not 0 <= report.cohort < expected.cohorts:
            given = _cut(str(report.cohort))
            return f"cohort = {given}: must be between 0 and {expected.cohorts - 1}"
        width = expected.width - COHORT_BYTES
        if len(report.bits) != width:
            return f"bits: {len(report.bits)} bytes; must be {width} bytes"
        return f"slice = {_cut(report.slice)!r}: must be like platform=mac,release=1.2"


def _check_number_of_slices(slices: int) -> None:
    if slices > MOST_SECTIONS_OF_SLICES:
        detail = f"reports: of {slices} slices; must be of at most {MOST_SECTIONS_OF_SLICES}"
        raise RefusalError(413, "too_large", detail)


def _not_valid(content_type: str, error: Exception) -> RefusalError:
    return RefusalError(400, "malformed", f"body: not valid {content_type}: {error}")


def _describe_shape(message: str) -> str:
    """Put the field first: "reports[0].cohort: Expected `int`, got `str`"."""
    match = _AT_PATH.fullmatch(message)
    if not match:
        return f"body: {message}"
    field = match["path"].removeprefix("$").removeprefix(".") or "body"
    fault = match["fault"]
    if field == "batch_id":
        fault = f"{fault}; must be 32 lower-case hexadecimal digits"
    return f"{field}: {fault}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def is_gzip(encoding: str) -> bool:
    """Return whether a Content-Encoding says that a body is compressed.

    Raises `RefusalError`: 415 for one that isn't known.
    """
    encoding = encoding.strip().lower()
    if encoding not in {"", "identity", "gzip"}:
        raise RefusalError(415, "encoding", "Content-Encoding: must be absent, or gzip")
    return encoding == "gzip"


def too_large(most: int) -> RefusalError:
    """Return the refusal of a body of more bytes than these."""
    return RefusalError(413, "too_large", f"body: must be at most {most} bytes")


def decompress(body: bytes, most: int) -> bytes:
    """Undo gzip, as one member, which is what clients send.

    `most`: most bytes to return. Raises `RefusalError`: 413 if the result is too large, 400 if the
    body is anything else.
    """
    stream = zlib.decompressobj(_GZIP)
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error:
        plain = b""
    if len(plain) > most:
        raise too_large(most)
    if not stream.eof or stream.unused_data:
        raise RefusalError(400, "incomplete", "body: incomplete, or not gzip")
    return plain


# Compact bodies


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
                raise CompactError(
                    f"sections[{number}]: {order[0]} version {order[1]} after {last[0]} version "
                    f"{last[1]}; must be in ascending order, each once"
                )
            of_slices += SEPARATOR in order[0] or not cohorts
            if of_slices > MOST_SECTIONS_OF_SLICES:
                raise TooManyReportsError(
                    f"sections: more than {MOST_SECTIONS_OF_SLICES} have a slice, or a version "
                    f"that isn't known; must be at most {MOST_SECTIONS_OF_SLICES}"
                )
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
        metric, separator, slice_ = name.decode("latin-1").partition(SEPARATOR)
        if not 1 <= len(metric) <= LONGEST_NAME:
            raise CompactError(f"name_length = {len(metric)}: must be between 1 and {LONGEST_NAME}")
        if separator and not slice_:
            raise CompactError(f"metric = {name!r}: must have a slice behind {SEPARATOR}")
        if not name.isascii():
            raise CompactError(f"metric = {name!r}: must be ASCII")
        if not 1 <= bits <= MOST_BYTES_OF_BITS:
            raise CompactError(f"bits_length = {bits}: must be between 1 and {MOST_BYTES_OF_BITS}")
        order, width = (name.decode("ascii"), version), COHORT_BYTES + bits
        key = MetricVersion(metric, version, slice_)
        expected = self._expected.get(key.whole)
        if expected is None or expected.width != width or not is_slice(slice_):
            return order, key, 0, width
        stored = self._stored_slice(metric, slice_) if slice_ else ""
        return order, key._replace(slice=stored), expected.cohorts, width


def _cut_off(name: str, left: int, size: int) -> CompactError:
    return CompactError(f"{name}: the body ends after {left} of {counted(size, 'byte')}")


def _fit(number: int, records: Records, cohorts: int) -> bool:
    """Return whether all cohorts are below a number (raises CompactError: out of order)."""
    data, width = records.data, records.width
    table = np.frombuffer(data, f"S{width}")
    ascends = table[:-1] <= table[1:]
    if not ascends.all():
        raise _descends(number, 1 + int(ascends.argmin()))
    return bool(column(records, 0, "<u2").max() < cohorts)


def _descends(number: int, index: int) -> CompactError:
    return CompactError(f"sections[{number}]: record {index} is below the one before; must ascend")
