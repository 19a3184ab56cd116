"""What types have in common whose values the registry lists: reports -> counts -> shares."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from hubbub.decoder.categories.decoding import decode_categories
from hubbub.decoder.categories.result import CategoriesResult
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.ratios import Ratios, filter_ratios
from hubbub.decoder.type_decoder import Categories, Job, TypeDecoder
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.params import RapporParams

_Type = TypeVar("_Type", bound=MetricType)


class CategoryDecoder(TypeDecoder[_Type]):
    """A type that has one bit a value, or one bit for two: a subclass says what they are called."""

    @abstractmethod
    def categories(self, metric_type: _Type) -> Categories:
        """Return the values."""

    def refusal(self, job: Job) -> str | None:
        """Refuse strings to look for, their method, and days."""
        what = f"metrics.{job.metric.name}.type = {job.metric.type.name!r}"
        for name in job.named("candidates", "map"):
            return f"{name}: must be left out; {what} says which values there are."
        if job.outputs.method == "likelihood":
            return (
                f"--method likelihood: {what}; its bit counts say all that whole reports do. "
                "Leave --method out."
            )
        if job.outputs.by:
            return (
                f"--by day: {what}; days can be compared for metrics of type 'string' only. "
                "Use --since and --until, a day at a time."
            )
        return None

    def decode(self, job: Job) -> CategoriesResult:
        """Invert the bit counts."""
        reports, outputs = job.reports(), job.outputs
        decoding = decode_categories(
            reports.counts,
            job.metric,
            alpha=outputs.alpha,
            correction=Correction(outputs.correction),
        )
        origin = job.provenance(reports, method="inversion")
        return CategoriesResult(
            decoding, reports.anomalies, origin, outputs.detected_only, outputs.rows
        )

    def report_ratios(self, params: RapporParams) -> tuple[Ratios, ...]:
        """Return the ratios of two values that set a bit each: both play the same part."""
        return (filter_ratios(params),)
