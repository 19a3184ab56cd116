"""From a request's body to a checked batch, ready to be stored.

Two steps: msgspec checks the shape (JSON and MessagePack into the same structs), then each report
is checked against the registry. A batch is taken whole or refused whole, and a refusal names the
report and the field, never the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from hubbub.client.metrics import Registry
from hubbub.collector.errors import BatchError
from hubbub.collector.store import COHORT_BYTES, MetricVersion, NewBatch

_BATCH_ID = r"^[0-9a-f]{32}\Z"
_AT_REPORT = re.compile(r"reports\[(\d+)\]")
_AT_PATH = re.compile(r"(?P<fault>.*) - at `(?P<path>[^`]*)`", re.DOTALL)


class _Report(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    metric: str
    version: int
    cohort: int
    bits: bytes


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch_id: Annotated[str, msgspec.Meta(pattern=_BATCH_ID)]
    reports: Annotated[list[_Report], msgspec.Meta(min_length=1)]


_Decoder = msgspec.json.Decoder[_Batch] | msgspec.msgpack.Decoder[_Batch]

_DECODERS: Mapping[str, _Decoder] = {
    "application/json": msgspec.json.Decoder(_Batch),
    "application/msgpack": msgspec.msgpack.Decoder(_Batch),
}


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the registry demands of one metric's reports."""

    key: MetricVersion
    cohorts: int
    width: int


class BatchReader:
    """Reads and checks batches against one registry."""

    def __init__(self, registry: Registry) -> None:
        self._expected = {
            name: _Expected(
                MetricVersion(name, metric.version), metric.params.m, metric.params.k // 8
            )
            for name, metric in registry.items()
        }

    def read(self, body: bytes, content_type: str) -> NewBatch:
        """Return the batch in a body.

        Raises
        ------
        BatchError
            415 for another media type, 400 for a body that isn't JSON or MessagePack, 422 for a
            report that doesn't fit its metric.
        """
        batch = _decode(body, content_type)
        records: dict[MetricVersion, list[bytes]] = {}
        faults: dict[int, str] = {}
        for index, report in enumerate(batch.reports):
            expected = self._expected.get(report.metric)
            fault = _fault(report, expected) if expected else self._unknown(report.metric)
            if fault or expected is None:
                faults[index] = f"reports[{index}].{fault}"
                continue
            record = report.cohort.to_bytes(COHORT_BYTES, "little") + report.bits
            records.setdefault(expected.key, []).append(record)
        if faults:
            raise BatchError(422, next(iter(faults.values())), faults)
        return NewBatch(bytes.fromhex(batch.batch_id), records)

    def _unknown(self, metric: str) -> str:
        return f"metric = {_quoted(metric)}: must be one of: {', '.join(sorted(self._expected))}"


def _decode(body: bytes, content_type: str) -> _Batch:
    decoder = _DECODERS.get(content_type)
    if decoder is None:
        raise BatchError(
            415, f"Content-Type = {_quoted(content_type)}: must be one of: {', '.join(_DECODERS)}"
        )
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        detail = _shape_fault(str(error))
        at_report = _AT_REPORT.match(detail)
        raise BatchError(422, detail, {int(at_report[1]): detail} if at_report else None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BatchError(400, f"body: not valid {content_type}: {error}") from error


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
    if report.version != expected.key.version:
        return f"version = {report.version}: must be {expected.key.version}"
    if not 0 <= report.cohort < expected.cohorts:
        return f"cohort = {report.cohort}: must be between 0 and {expected.cohorts - 1}"
    if len(report.bits) != expected.width:
        return f"bits: {len(report.bits)} bytes; must be {expected.width} bytes"
    return None


def _quoted(text: str) -> str:
    """Quote a client's text in a message, bounded."""
    return repr(text if len(text) <= 80 else text[:80] + "…")
