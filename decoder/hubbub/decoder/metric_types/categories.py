"""What types have in common whose values the registry lists: reports -> counts -> shares."""

from __future__ import annotations

from typing import TypeVar

from hubbub.decoder.type_decoder import Job, TypeDecoder
from hubbub.inference.categories.decoding import decode_categories
from hubbub.inference.ratios import Ratios, filter_ratios
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.params import RapporParams
from hubbub.reporting.categories import CategoriesResult, category_findings
from hubbub.reporting.result import Result

_Type = TypeVar("_Type", bound=MetricType)


class CategoryDecoder(TypeDecoder[_Type]):
    """A type with one bit for each value that the registry lists, or one bit for two."""

    def refusal(self, job: Job) -> str | None:
        """Refuse strings to look for, and their method."""
        what = f"metrics.{job.metric.name}.type = {job.metric.type.name!r}"
        for name in job.named("candidates", "map"):
            return f"{name}: must be left out; {what} says which values there are."
        if job.outputs.method == "likelihood":
            return (
                f"--method likelihood: {what}; its bit counts say all that whole reports do. "
                "Leave --method out."
            )
        return None

    def decode(self, job: Job) -> Result:
        """Invert the bit counts."""
        outputs, correction = job.outputs, Correction(job.outputs.correction)
        if outputs.by:
            from hubbub.inference.trends.categories import (  # noqa: PLC0415 - seldom
                decode_category_days,
            )
            from hubbub.reporting.trends import trends_estimates  # noqa: PLC0415

            daily, reports = job.reports_by_day()
            trends = decode_category_days(
                daily.by_day,
                job.metric,
                alpha=outputs.alpha,
                correction=correction,
                min_reports=outputs.min_reports,
            )
            origin = job.provenance(reports, method="inversion, day by day")
            findings = category_findings(trends.pooled, reports.anomalies)
            return trends_estimates(
                trends, reports.anomalies, origin, findings=findings, limit=outputs.rows
            )
        reports = job.reports()
        decoding = decode_categories(
            reports.counts, job.metric, alpha=outputs.alpha, correction=correction
        )
        origin = job.provenance(reports, method="inversion")
        return CategoriesResult(
            decoding, reports.anomalies, origin, outputs.detected_only, outputs.rows
        )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of two values that set a bit each: both play the same part."""
        return (filter_ratios(params, reports),)
