"""From a request's body to a checked batch, ready to be stored.

JSON is decoded by msgspec, a compact body section by section (`compact_reader`); where that finds a
report that isn't as expected, each is looked at as if it had come in JSON: both forms are judged by
the same words. A batch is accepted or refused as a whole, and a refusal names the report and the
field, never the client.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import iter_unpack
from typing import Annotated

import msgspec

from hubbub.collector.ingest.compact_reader import (
    MOST_SECTIONS_OF_SLICES,
    CompactReader,
    ExpectedReports,
)
from hubbub.collector.problems import RefusalError
from hubbub.protocol import (
    COHORT_BYTES,
    MOST_SLICES,
    MOST_VERSION,
    CompactError,
    Records,
    Registry,
    TooManyReportsError,
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
        self,
        registry: Registry,
        declared: Iterable[Declared] = (),
        max_reports: int = 10_000,
    ) -> None:
        self._max_reports = max_reports
        self._registry = registry
        self._stored_slice = lru_cache(_SLICES)(self._slice_as_stored)
        self._expected: dict[str, dict[int, ExpectedReports]] = {name: {} for name in registry}
        known = [
            *(version for version in declared if version.metric in registry),
            *map(Declared.of, registry.values()),
        ]
        for one in known:
            key = MetricVersion(one.metric, one.version)
            self._expected[key.metric][key.version] = ExpectedReports(key, one.params.m, one.width)
        every = [one for versions in self._expected.values() for one in versions.values()]
        self._read_compact = CompactReader(
            every, max_reports, self._look_at_each, self._stored_slice
        ).read

    def read(self, body: bytes, content_type: str) -> NewBatch:
        """Return the batch in a body.

        Raises `RefusalError`: 415 for another media type, 400 for a body that isn't what its media
        type says, 413 for too many reports, 422 for any report that doesn't fit its metric or whose
        metric or version isn't known.
        """
        if content_type == wire.MEDIA_TYPE:
            try:
                batch = self._read_compact(body)
            except TooManyReportsError as error:
                raise RefusalError(413, "too_large", str(error)) from error
            except CompactError as error:
                raise _not_valid(content_type, error) from error
        else:
            check_media_type(content_type)
            batch = self._checked(self._parse(body))
        return self._with_few_slices(batch)

    def _with_few_slices(self, batch: NewBatch) -> NewBatch:
        """Return a batch in which no metric has more slices than the limit.

        Those of one client are one or two; whoever sends very many could fill the store's rows.
        """
        if len(batch.records) <= MOST_SLICES:
            return batch
        slices: dict[MetricVersion, int] = {}
        pools: dict[MetricVersion, list[Records]] = {}
        for key, records in batch.records.items():
            slices[key.whole] = slices.get(key.whole, 0) + 1
            into = key if slices[key.whole] <= MOST_SLICES else key.whole
            pools.setdefault(into, []).append(records)
        return batch._replace(records={key: joined(pool) for key, pool in pools.items()})

    def _slice_as_stored(self, metric: str, slice_: str) -> str:
        return self._registry[metric].slice_as(slice_)

    def _parse(self, body: bytes) -> _Batch:
        try:
            batch = _decode_any(body)
        except msgspec.ValidationError as error:
            detail = _describe_shape(str(error))
            at_report = _AT_REPORT.match(detail)
            reports = {int(at_report[1]): detail} if at_report else None
            raise RefusalError(422, "invalid", detail, reports=reports) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _not_valid(_JSON, error) from error
        if len(batch.reports) > self._max_reports:
            given = len(batch.reports)
            detail = f"reports: {given}; must be at most {self._max_reports}"
            raise RefusalError(413, "too_large", detail)
        return batch

    def _look_at_each(self, batch: NewBatch) -> NewBatch:
        reports = [
            _Report(key.metric, key.version, cohort, bits, key.slice)
            for key, records in batch.records.items()
            for cohort, bits in iter_unpack(f"<H{records.width - COHORT_BYTES}s", records.data)
        ]
        return self._checked(_Batch(batch.batch_id.hex(), reports))

    def _checked(self, batch: _Batch) -> NewBatch:
        """Return the records of a batch (raises RefusalError: says what is wrong with it)."""
        rows: dict[tuple[str, int, str], list[bytes]] = {}
        for report in batch.reports:
            if not self._fits(report):
                raise self._refusal(batch)
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

    def _refusal(self, batch: _Batch) -> RefusalError:
        """Return what is wrong with the reports of a batch."""
        _check_number_of_slices(
            len({(it.metric, it.version, it.slice) for it in batch.reports if it.slice})
        )
        faults: dict[int, str] = {}
        unknown: dict[tuple[str, int], str] = {}
        for index, report in enumerate(batch.reports):
            if self._fits(report):
                continue
            if self._may_be_known_elsewhere(report):
                detail = f"reports[{index}].{self._fault(report)}"
                unknown.setdefault((report.metric, report.version), detail)
                continue
            # Each, as the protocol promises, but few in full: the answer stays a few kilobytes.
            is_told = len(faults) < _IN_FULL
            faults[index] = f"reports[{index}].{self._fault(report)}" if is_told else "refused"
        first = next(iter((*faults.values(), *unknown.values())))
        reason = "invalid" if faults else "unregistered"
        return RefusalError(422, reason, first, reports=faults, unknown=unknown)

    def _may_be_known_elsewhere(self, report: _Report) -> bool:
        return (
            report.version not in self._expected.get(report.metric, {})
            and is_metric_name(report.metric)
            and 1 <= report.version <= MOST_VERSION
        )

    def _fits(self, report: _Report) -> bool:
        """Return whether a report fits its metric's registry entry."""
        expected = self._expected.get(report.metric, {}).get(report.version)
        return (
            expected is not None
            and 0 <= report.cohort < expected.cohorts
            and len(report.bits) == expected.width - COHORT_BYTES
            and (not report.slice or is_slice(report.slice))
        )

    def _fault(self, report: _Report) -> str:
        """Return what is wrong with a report that doesn't fit."""
        versions = self._expected.get(report.metric)
        if versions is None:
            known = _some(sorted(self._expected))
            return f"metric = {_cut(report.metric)!r}: must be one of: {known}"
        expected = versions.get(report.version)
        if expected is None:
            known = _some(list(map(str, sorted(versions))))
            given = _cut(str(report.version))
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
        raise RefusalError(413, "too_large", f"body: must be at most {most} bytes")
    if not stream.eof or stream.unused_data:
        raise RefusalError(400, "incomplete", "body: incomplete, or not gzip")
    return plain
