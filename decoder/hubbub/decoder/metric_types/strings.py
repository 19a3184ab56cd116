"""The type "string": any text, looked for among candidates."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from hubbub.decoder.candidates import CandidateLists, hashed_lists
from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.type_decoder import DecodeInput, Observer, TypeDecoder
from hubbub.inference import LIKELIHOOD, Candidates, Choice, Decoding, Method, decode, overlooked
from hubbub.inference.counts import CohortCounts
from hubbub.protocol import Metric, StringType
from hubbub.reporting import (
    Estimates,
    Finding,
    overlooked_finding,
    string_findings,
    strings_estimates,
)

if TYPE_CHECKING:
    from hubbub.inference import Comparison, Groups


class StringDecoder(TypeDecoder[StringType]):
    """Regression on bit counts or the likelihood of whole reports; also day by day."""

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:
        """Read the list."""
        return hashed_lists(options, metric)

    def choice(
        self, metric: Metric, candidates: CandidateLists, options: DecodeOptions
    ) -> Choice | None:
        """Return the choice between bit counts and whole reports."""
        return Choice(Method(options.method), metric.params, len(candidates.strings))

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:
        """Estimate how often each candidate occurs, perhaps day by day."""
        if data.options.by:
            return _estimate_days(data, observer)
        decoding, _ = _decode(data, data.reports.counts, observer)
        provenance = data.made_by(decoding.summary.method)
        anomalies, detected_only, rows = data.shown
        estimates = strings_estimates(decoding, anomalies, provenance, detected_only, rows)
        return estimates.warned(_overlooked(data, decoding))

    def compare(
        self, data: DecodeInput, groups: Groups, observer: Observer
    ) -> Comparison[Decoding]:
        """Detect strings in both groups together, and compare their shares by bit counts."""
        from hubbub.inference import compare_strings  # noqa: PLC0415 - seldom

        pooled, listed = _decode(data, groups.together, observer)
        return compare_strings(
            groups,
            pooled,
            listed,
            alpha=data.options.alpha,
            correction=data.correction,
            sequential=data.options.sequential,
        )


def _decode(
    data: DecodeInput, counts: CohortCounts, observer: Observer
) -> tuple[Decoding, Candidates]:
    """Decode counts, and whole reports if they were kept; also return the candidates."""
    listed, params = data.candidates.hashed, data.metric.params
    if listed is None or data.choice is None:
        raise TypeError("a metric of strings needs hashed candidates")
    counted = decode(
        counts,
        params,
        listed,
        alpha=data.options.alpha,
        correction=data.correction,
        repeats=data.repeats,
    )
    with observer.likelihood_progress() as passed:
        return data.choice.complete(counted, data.reports.whole, listed, passed), listed


def _overlooked(data: DecodeInput, decoding: Decoding) -> tuple[Finding, ...]:
    share = overlooked(data.reports.counts, data.metric.params, data.repeats)
    if share > decoding.summary.detection_limit and share > np.nansum(decoding.constrained_share):
        return (overlooked_finding(share),)
    return ()


def _estimate_days(data: DecodeInput, observer: Observer) -> Estimates:
    """Follow the strings that are detected in all days together."""
    from hubbub.inference import days_with_enough, decode_whole_days, follow  # noqa: PLC0415 - seldom
    from hubbub.reporting import trends_estimates  # noqa: PLC0415

    reports, least = data.reports, data.options.min_reports
    enough = days_with_enough(reports.by_day, least)
    pooled, listed = _decode(data, reduce(add, enough.values()), observer)
    trends, used = None, "least squares"
    if pooled.summary.method == LIKELIHOOD:
        trends = decode_whole_days(
            reports.by_day, reports.whole_by_day, pooled, listed, min_reports=least
        )
    if trends is None:
        trends = follow(reports.by_day, pooled, listed, min_reports=least)
    else:
        used = "likelihood"
    estimates = trends_estimates(
        trends,
        reports.anomalies,
        data.made_by(f"{used}, day by day"),
        findings=string_findings(pooled, reports.anomalies),
        limit=data.options.rows,
        looks=data.options.looks,
    )
    return estimates.warned(_overlooked(data, pooled))
