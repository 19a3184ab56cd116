"""The type "string": texts that nobody listed, looked for among candidates."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

from hubbub.decoder.type_decoder import Job, TypeDecoder
from hubbub.inference.decoding import LIKELIHOOD, Decoding, decode
from hubbub.inference.likelihood.choice import ASKED_FOR, SCREENED, Choice, Method
from hubbub.inference.ratios import Ratios, filter_ratios
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.params import RapporParams
from hubbub.reporting.result import Result
from hubbub.reporting.strings import string_findings, strings_estimates


class StringDecoder(TypeDecoder[StringType]):
    """Regression on bit counts or the likelihood of whole reports; also day by day."""

    blends = True

    def decode(self, job: Job) -> Result:
        """Estimate how often each candidate occurs."""
        if job.uses_streaming_screen():
            return _decode_screened(job)
        listed, outputs, release = job.candidates(), job.outputs, job.release()
        correction = Correction(outputs.correction)
        choice = Choice(Method(outputs.method), job.metric.params, len(listed))
        if outputs.by:
            from hubbub.inference.trends.decoding import (  # noqa: PLC0415 - seldom
                days_with_enough,
                follow,
            )
            from hubbub.inference.trends.whole_reports import decode_whole_days  # noqa: PLC0415
            from hubbub.reporting.trends import trends_estimates  # noqa: PLC0415

            daily, reports = job.reports_by_day(choice.spool_for)
            enough = days_with_enough(daily.by_day, outputs.min_reports)
            counted = decode(
                reduce(add, enough.values()),
                job.metric.params,
                listed,
                alpha=outputs.alpha,
                correction=correction,
            )
            with job.pass_counter() as passed:
                pooled = choice.complete(counted, daily.whole, listed, passed)
            trends = None
            if pooled.summary.method == LIKELIHOOD:
                trends = decode_whole_days(
                    daily.by_day,
                    daily.whole_by_day,
                    pooled,
                    listed,
                    min_reports=outputs.min_reports,
                )
            used = "likelihood" if trends else "least squares"
            if trends is None:
                trends = follow(daily.by_day, pooled, listed, min_reports=outputs.min_reports)
            origin = job.provenance(
                reports, method=f"{used}, day by day", strings=pooled.candidates
            )
            findings = string_findings(pooled, reports.anomalies)
            return trends_estimates(
                trends, reports.anomalies, origin, findings=findings, limit=outputs.rows
            )
        reports = job.reports(choice.spool_for)
        counted = decode(
            reports.counts, job.metric.params, listed, alpha=outputs.alpha, correction=correction
        )
        with job.pass_counter() as passed:
            decoding = choice.complete(counted, reports.whole, listed, passed)
        origin = job.provenance(
            reports, method=decoding.summary.method, strings=decoding.candidates
        )
        if release is not None:
            from hubbub.inference.blending.decoding import blend  # noqa: PLC0415 - seldom
            from hubbub.reporting.blending import (  # noqa: PLC0415
                blended_estimates,
                population_line,
            )

            blending = blend(decoding, release)
            if blending.summary.differs:
                job.note(f"same population? {population_line(blending.summary)}")
            return blended_estimates(
                blending, reports.anomalies, origin, outputs.detected_only, outputs.rows
            )
        return strings_estimates(
            decoding, reports.anomalies, origin, outputs.detected_only, outputs.rows
        )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of two filters without a common bit: both play the same part."""
        return (filter_ratios(params, reports),)


def _decode_screened(job: Job) -> Result:
    """Estimate how often the detected strings of a list occur that isn't in memory."""
    outputs = job.outputs
    reason = ASKED_FOR if outputs.method == Method.REGRESSION else SCREENED
    if outputs.by:
        from hubbub.inference.trends.decoding import (  # noqa: PLC0415 - seldom
            days_with_enough,
            follow,
        )
        from hubbub.reporting.trends import trends_estimates  # noqa: PLC0415

        daily, reports = job.reports_by_day()
        enough = days_with_enough(daily.by_day, outputs.min_reports)
        found = job.screened(reduce(add, enough.values()))
        pooled = _because(found.decoding, reason)
        trends = follow(daily.by_day, pooled, found.candidates, min_reports=outputs.min_reports)
        origin = job.provenance(reports, method="least squares, day by day")
        findings = string_findings(pooled, reports.anomalies)
        return trends_estimates(
            trends, reports.anomalies, origin, findings=findings, limit=outputs.rows
        )
    reports = job.reports()
    decoding = _because(job.screened(reports.counts).decoding, reason)
    origin = job.provenance(reports, method=decoding.summary.method)
    return strings_estimates(decoding, reports.anomalies, origin, True, outputs.rows)


def _because(decoding: Decoding, reason: str) -> Decoding:
    return replace(decoding, summary=replace(decoding.summary, method_reason=reason))
