"""Counts day by day -> estimates of each day, for every type that is decoded from counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hubbub.decoder.type_decoder import Evidence
    from hubbub.inference.anomalies import AnomalyReport
    from hubbub.inference.trends.decoding import Trends
    from hubbub.reporting.estimates import Estimates, Finding

_Decoding = TypeVar("_Decoding")


def estimate_days(
    evidence: Evidence,
    decode_days: Callable[..., Trends[_Decoding]],
    findings: Callable[[_Decoding, AnomalyReport | None], tuple[Finding, ...]],
    way: str,
) -> Estimates:
    """Decode each day, and say what changed.

    `evidence`: reports by day, and options. `decode_days`: takes counts by day, the metric, and the
    options of changes. `findings`: returns what is said of the decoding of all days together.
    `way`: how counts are decoded, for the provenance.
    """
    from hubbub.reporting.trends import trends_estimates  # noqa: PLC0415 - seldom

    options, reports = evidence.options, evidence.reports
    trends = decode_days(
        reports.by_day,
        evidence.metric,
        alpha=options.alpha,
        correction=evidence.correction,
        min_reports=options.min_reports,
        repeats=evidence.repeats,
    )
    return trends_estimates(
        trends,
        reports.anomalies,
        evidence.made_by(f"{way}, day by day"),
        findings=findings(trends.pooled, reports.anomalies),
        limit=options.rows,
    )
