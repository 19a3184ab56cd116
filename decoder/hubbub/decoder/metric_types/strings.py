"""The type "string": texts that nobody listed, looked for among candidates."""

from __future__ import annotations

from hubbub.decoder.decoding import decode
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.likelihood.choice import Choice, Method
from hubbub.decoder.ratios import Ratios, filter_ratios
from hubbub.decoder.results.result import Result
from hubbub.decoder.results.strings import StringsResult, summary_lines
from hubbub.decoder.trends.decoding import decode_days
from hubbub.decoder.trends.result import TrendsResult
from hubbub.decoder.type_decoder import Job, TypeDecoder
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.params import RapporParams


class StringDecoder(TypeDecoder[StringType]):
    """Regression on bit counts or the likelihood of whole reports; also day by day."""

    def decode(self, job: Job) -> Result:
        """Estimate how often each candidate occurs."""
        listed, outputs = job.candidates(), job.outputs
        correction = Correction(outputs.correction)
        if outputs.by:
            by_day, reports = job.reports_by_day()
            trends = decode_days(
                by_day,
                job.metric.params,
                listed,
                alpha=outputs.alpha,
                correction=correction,
                min_reports=outputs.min_reports,
            )
            origin = job.provenance(
                reports, method="least squares, day by day", strings=trends.pooled.candidates
            )
            facts = summary_lines(trends.pooled, reports.anomalies)
            return TrendsResult(trends, reports.anomalies, origin, limit=outputs.rows, facts=facts)
        choice = Choice(Method(outputs.method), job.metric.params, len(listed))
        reports = job.reports(choice.spool_for)
        counted = decode(
            reports.counts, job.metric.params, listed, alpha=outputs.alpha, correction=correction
        )
        with job.pass_counter() as passed:
            decoding = choice.complete(counted, reports.whole, listed, passed)
        origin = job.provenance(
            reports, method=decoding.summary.method, strings=decoding.candidates
        )
        return StringsResult(
            decoding, reports.anomalies, origin, outputs.detected_only, outputs.rows
        )

    def report_ratios(self, params: RapporParams) -> tuple[Ratios, ...]:
        """Return the ratios of two filters without a common bit: both play the same part."""
        return (filter_ratios(params),)
