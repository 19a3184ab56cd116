"""The type "number": a mean, and perhaps a variance, instead of shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.type_decoder import (
    DecodeInput,
    Observer,
    TypeDecoder,
    estimate_days,
    refuse_lists_and_reports,
)
from hubbub.inference import decode_numbers
from hubbub.protocol import Metric, NumberType
from hubbub.reporting import Estimates, number_findings, numbers_estimates

if TYPE_CHECKING:
    from hubbub.inference import Comparison, Groups, NumberDecoding


class NumberDecoder(TypeDecoder[NumberType]):
    """Weights of cells, whose mean is that of the numbers."""

    theorem = "the piecewise mechanism on a grid (Wang et al. 2019), as RAPPOR's theorem {}"

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse strings to look for, and their method: there is nothing to detect."""
        refuse_lists_and_reports(
            metric,
            options,
            ", whose reports hold no names",
            " is decoded from the counts of its cells",
        )

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:  # noqa: ARG002
        """Weigh the cells' counts, perhaps day by day."""
        options, reports = data.options, data.reports
        if options.by:
            from hubbub.inference import decode_number_days  # noqa: PLC0415 - seldom

            return estimate_days(data, decode_number_days, number_findings, "weights of cells")
        decoding = decode_numbers(
            reports.counts,
            data.metric,
            alpha=options.alpha,
            correction=data.correction,
            repeats=data.repeats,
        )
        return numbers_estimates(decoding, reports.anomalies, data.made_by("weights of cells"))

    def compare(
        self,
        data: DecodeInput,
        groups: Groups,
        observer: Observer,  # noqa: ARG002
    ) -> Comparison[NumberDecoding]:
        """Compare the means, and perhaps the variances."""
        from hubbub.inference import compare_numbers  # noqa: PLC0415 - seldom

        options = data.options
        return compare_numbers(
            groups,
            data.metric,
            alpha=options.alpha,
            correction=data.correction,
            sequential=options.sequential,
        )
