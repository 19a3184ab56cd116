"""Types whose values the registry lists: reports -> counts -> shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.type_decoder import (
    DecodeInput,
    Observer,
    TypeDecoder,
    estimate_days,
    refuse_lists_and_reports,
)
from hubbub.inference import Ratios, decode_categories
from hubbub.protocol import Metric, MetricType, RapporParams
from hubbub.reporting import Estimates, categories_estimates, category_findings

if TYPE_CHECKING:
    from hubbub.inference import CategoryDecoding, Comparison, Groups
from hubbub.inference import bit_ratios
from hubbub.protocol import BooleanType

_Type = TypeVar("_Type", bound=MetricType)


class CategoryDecoder(TypeDecoder[_Type]):
    """A type with one bit for each value that the registry lists, or one bit for two."""

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse strings to look for, and their method."""
        refuse_lists_and_reports(
            metric,
            options,
            " says which values there are",
            "; its bit counts say all that whole reports do",
        )

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:  # noqa: ARG002
        """Invert the bit counts, perhaps day by day."""
        options, reports = data.options, data.reports
        if options.by:
            from hubbub.inference import decode_category_days  # noqa: PLC0415 - seldom

            return estimate_days(data, decode_category_days, category_findings, "inversion")
        decoding = decode_categories(
            reports.counts,
            data.metric,
            alpha=options.alpha,
            correction=data.correction,
            repeats=data.repeats,
        )
        anomalies, detected_only, rows = data.shown
        provenance = data.made_by("inversion")
        return categories_estimates(decoding, anomalies, provenance, detected_only, rows)

    def compare(
        self,
        data: DecodeInput,
        groups: Groups,
        observer: Observer,  # noqa: ARG002
    ) -> Comparison[CategoryDecoding]:
        """Compare the shares of all categories."""
        from hubbub.inference import compare_categories  # noqa: PLC0415 - seldom

        options = data.options
        return compare_categories(
            groups,
            data.metric,
            alpha=options.alpha,
            correction=data.correction,
            sequential=options.sequential,
        )


class BooleanDecoder(CategoryDecoder[BooleanType]):
    """The two values differ in one bit, where those of other types differ in two or more."""

    theorem = (
        "the exact law of one randomized bit (Warner 1965), as RAPPOR's theorem {} for one bit"
    )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of true against false, and of false against true."""
        ratios = bit_ratios(params, reports)
        return ratios, ratios.swapped()
