"""From a request's body to a checked batch, ready to be stored.

A body is decoded straight into structs that are made from the registry, so that the checks run in
msgspec's C code. What they refuse is read again, report by report, to name what is wrong or to
accept reports of an older version. A batch is accepted or refused as a whole, and a refusal names
the report and the field, never the client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from hubbub.collector.errors import BatchError
from hubbub.collector.ingest.batch_structs import BATCH_ID, batch_struct, report_structs
from hubbub.collector.store import Declared, MetricVersion, NewBatch
from hubbub.protocol.records import COHORT_BYTES, Records, record_width
from hubbub.protocol.registry import Registry

_AT_REPORT = re.compile(r"reports\[(\d+)\]")
_AT_PATH = re.compile(r"(?P<fault>.*) - at `(?P<path>[^`]*)`", re.DOTALL)
_IN_FULL = 8
_LONGEST = 80
_NAMES = 20
"""Bounds on what an answer repeats; see `_read_carefully`."""


class _Report(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    metric: str
    version: int
    cohort: int
    bits: bytes


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch_id: BATCH_ID
    reports: Annotated[list[_Report], msgspec.Meta(min_length=1)]


class _CheckedReport(Protocol):
    cohort: int
    bits: bytes


class _CheckedBatch(Protocol):
    batch_id: str
    reports: Sequence[_CheckedReport]


class _Expected(NamedTuple):
    """What reports of one metric and version must be like."""

    key: MetricVersion
    cohorts: int
    width: int


def _decoders(batch: type[msgspec.Struct]) -> Mapping[str, Callable[[bytes], Any]]:
    """Return the decoder of each media type."""
    return {
        "application/json": msgspec.json.Decoder(batch).decode,
        "application/msgpack": msgspec.msgpack.Decoder(batch).decode,
    }


_DECODE_ANY = _decoders(_Batch)


class BatchReader:
    """Reads and checks batches against one registry.

    Parameters
    ----------
    registry : Registry
    declared : iterable of Declared, optional
        Versions that were registered earlier. Their clients are still out there, so their reports
        are accepted as long as the registry has the metric.
    max_reports : int, optional
        Most reports of a batch.
    """

    def __init__(
        self,
        registry: Registry,
        declared: Iterable[Declared] = (),
        max_reports: int = 10_000,
    ) -> None:
        self._max_reports = max_reports
        self._expected: dict[str, dict[int, _Expected]] = {name: {} for name in registry}
        for version in declared:
            if version.metric in registry:
                self._expect(version.metric, version.version, version.definition)
        for metric in registry.values():
            self._expect(metric.name, metric.version, metric.definition)
        self._usual = {
            struct: self._expected[metric.name][metric.version]
            for struct, metric in report_structs(registry.values()).items()
        }
        self._decode_usual = _decoders(batch_struct(self._usual, max_reports))
        most = max(expected.cohorts for expected in self._usual.values())
        self._cohorts = [cohort.to_bytes(COHORT_BYTES, "little") for cohort in range(most)]

    def _expect(self, name: str, version: int, definition: Mapping[str, Any]) -> None:
        key = MetricVersion(name, version)
        self._expected[name][version] = _Expected(
            key, definition["m"], record_width(definition["k"])
        )

    @property
    def expected(self) -> Mapping[MetricVersion, int]:
        """The record width of each metric and version that is accepted."""
        return {
            expected.key: expected.width
            for versions in self._expected.values()
            for expected in versions.values()
        }

    def read(self, body: bytes, content_type: str) -> NewBatch:
        """Return the batch in a body.

        Raises
        ------
        BatchError
            415 for another media type, 400 for a body that isn't JSON or MessagePack, 413 for too
            many reports, 422 for a report that doesn't fit its metric.
        """
        decode = self._decode_usual.get(content_type)
        if decode is None:
            expected = ", ".join(_DECODE_ANY)
            raise BatchError(
                415, f"Content-Type = {_quoted(content_type)}: must be one of: {expected}"
            )
        try:
            batch: _CheckedBatch = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._read_carefully(body, content_type)
        return NewBatch(bytes.fromhex(batch.batch_id), self._records(batch.reports))

    def _records(self, reports: Sequence[_CheckedReport]) -> dict[MetricVersion, Records]:
        types = set(map(type, reports)) if len(self._usual) > 1 else {type(reports[0])}
        if len(types) == 1:
            key, _, width = self._usual[types.pop()]
            return {key: self._joined(width, reports)}
        pools: dict[type, list[_CheckedReport]] = {kind: [] for kind in types}
        for report in reports:
            pools[type(report)].append(report)
        return {
            self._usual[kind].key: self._joined(self._usual[kind].width, pool)
            for kind, pool in pools.items()
        }

    def _joined(self, width: int, reports: Sequence[_CheckedReport]) -> Records:
        cohorts = self._cohorts
        return Records(
            width, b"".join([cohorts[report.cohort] + report.bits for report in reports])
        )

    def _read_carefully(self, body: bytes, content_type: str) -> NewBatch:
        """Read a batch that holds older versions, or find out what is wrong with it."""
        batch = _decode_any(body, content_type)
        if len(batch.reports) > self._max_reports:
            given = len(batch.reports)
            raise BatchError(413, f"reports: {given}; must be at most {self._max_reports}")
        records: dict[_Expected, list[bytes]] = {}
        faults: dict[int, str] = {}
        for index, report in enumerate(batch.reports):
            expected = self._expectation(report)
            fault = expected if isinstance(expected, str) else _fault(report, expected)
            if fault or isinstance(expected, str):
                # Each, as the protocol promises, but few in full: the answer stays a few kilobytes.
                faults[index] = f"reports[{index}].{fault}" if len(faults) < _IN_FULL else "refused"
                continue
            record = report.cohort.to_bytes(COHORT_BYTES, "little") + report.bits
            records.setdefault(expected, []).append(record)
        if faults:
            raise BatchError(422, next(iter(faults.values())), faults)
        return NewBatch(
            bytes.fromhex(batch.batch_id),
            {
                expected.key: Records(expected.width, b"".join(rows))
                for expected, rows in records.items()
            },
        )

    def _expectation(self, report: _Report) -> _Expected | str:
        """Return what a report must be like, or the fault if it names nothing known."""
        versions = self._expected.get(report.metric)
        if versions is None:
            known = _some(sorted(self._expected))
            return f"metric = {_quoted(report.metric)}: must be one of: {known}"
        expected = versions.get(report.version)
        if expected is None:
            known = _some(list(map(str, sorted(versions))))
            given = _cut(str(report.version))
            return f"version = {given}: must be {'one of: ' * (len(versions) > 1)}{known}"
        return expected


def _decode_any(body: bytes, content_type: str) -> _Batch:
    try:
        batch: _Batch = _DECODE_ANY[content_type](body)
    except msgspec.ValidationError as error:
        detail = _shape_fault(str(error))
        at_report = _AT_REPORT.match(detail)
        raise BatchError(422, detail, {int(at_report[1]): detail} if at_report else None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BatchError(400, f"body: not valid {content_type}: {error}") from error
    return batch


def _shape_fault(message: str) -> str:
    """Put the field first: "reports[0].cohort: Expected `int`, got `str`"."""
    match = _AT_PATH.fullmatch(message)
    if not match:
        return f"body: {message}"
    field = match["path"].removeprefix("$").removeprefix(".") or "body"
    fault = match["fault"]
    if field == "batch_id":
        fault = f"{fault}; must be 32 lower-case hexadecimal digits"
    return f"{field}: {fault}"


def _fault(report: _Report, expected: _Expected) -> str | None:
    if not 0 <= report.cohort < expected.cohorts:
        return f"cohort = {_cut(str(report.cohort))}: must be between 0 and {expected.cohorts - 1}"
    if len(report.bits) != expected.width - COHORT_BYTES:
        width = expected.width - COHORT_BYTES
        return f"bits: {len(report.bits)} bytes; must be {width} bytes"
    return None


def _quoted(text: str) -> str:
    """Quote a client's text in a message, bounded."""
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _some(names: Sequence[str]) -> str:
    """List what is known, as far as anybody would read."""
    more = f", and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
