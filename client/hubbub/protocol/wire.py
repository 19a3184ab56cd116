"""Reports and batches, and the JSON that carries them.

A `Report` is all that ever leaves the process: it holds no value, only bits after both randomized
responses. A batch's id is drawn once and kept through every retry, which is how the collector
counts each report once.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

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
    """

    metric: str
    version: int
    cohort: int
    bits: bytes


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
    return assemble_body(batch.batch_id, [reports_to_json(batch.reports)])


def reports_to_json(reports: Iterable[Report]) -> bytes:
    """Return reports as JSON objects between commas: a piece of a body to be."""
    import json

    return ",".join(json.dumps(_as_dict(r), separators=(",", ":")) for r in reports).encode()


def assemble_body(batch_id: str, pieces: Iterable[bytes]) -> bytes:
    """Return the body of a batch from pieces that `reports_to_json` made."""
    return b'{"batch_id":"%s","reports":[%s]}' % (batch_id.encode(), b",".join(pieces))


def batch_from_json(body: bytes) -> Batch:
    """Return the batch of a body that `batch_to_json` made.

    Raises
    ------
    ValueError
        If it isn't a batch, or has more members: what isn't understood must not be left out.
    """
    import json

    document = json.loads(body)
    try:
        reports = tuple([_from_dict(**row) for row in document.pop("reports")])
        batch_id = document.pop("batch_id")
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("body: not a batch") from error
    if document or not batch_id or not isinstance(batch_id, str):
        raise ValueError("body: must have a batch_id and reports, and nothing else")
    return Batch(reports, batch_id)


def without_reports(
    body: bytes, indices: Iterable[int], batch_id: str | None = None
) -> tuple[bytes, int]:
    """Return a body without some of its reports, and how many remain; its id may be another."""
    import json

    document = json.loads(body)
    left_out = frozenset(indices)
    kept = [r for i, r in enumerate(document["reports"]) if i not in left_out]
    pieces = (json.dumps(report, separators=(",", ":")).encode() for report in kept)
    return assemble_body(batch_id or document["batch_id"], pieces), len(kept)


def _as_dict(report: Report) -> dict[str, str | int]:
    return {
        "metric": report.metric,
        "version": report.version,
        "cohort": report.cohort,
        "bits": binascii.b2a_base64(report.bits, newline=False).decode("ascii"),
    }


def _from_dict(metric: str, version: int, cohort: int, bits: str) -> Report:
    return Report(metric, version, cohort, binascii.a2b_base64(bits, strict_mode=True))
