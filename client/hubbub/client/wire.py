"""Reports and batches, and the JSON that carries them.

A `Report` is all that ever leaves the process: it holds no value, only bits after both randomized
responses. A batch's id is drawn once and kept through every retry, which is how the collector
counts each report once.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Report:
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Reports that travel, and are acknowledged, together."""

    reports: tuple[Report, ...]
    batch_id: str = field(default_factory=new_batch_id)


def batch_to_json(batch: Batch) -> bytes:
    """Return the body of POST /v1/reports (docs/protocol, section 7)."""
    body = {"batch_id": batch.batch_id, "reports": [_as_dict(r) for r in batch.reports]}
    return json.dumps(body, separators=(",", ":")).encode()


def _as_dict(report: Report) -> dict[str, str | int]:
    return {
        "metric": report.metric,
        "version": report.version,
        "cohort": report.cohort,
        "bits": base64.b64encode(report.bits).decode("ascii"),
    }
