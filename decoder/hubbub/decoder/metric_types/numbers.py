"""The type "number": a mean, and perhaps a variance, instead of shares."""

from __future__ import annotations

from hubbub.decoder.options import DecodeOptions
from hubbub.decoder.type_decoder import Evidence, Observer, TypeDecoder
from hubbub.inference.numbers.decoding import decode_numbers
from hubbub.protocol.errors import Option, OptionError
from hubbub.protocol.metric_types.numbers import NumberType
from hubbub.protocol.metrics import Metric
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.numbers import number_findings, numbers_estimates


class NumberDecoder(TypeDecoder[NumberType]):
    """Weights of cells, whose mean is that of the numbers."""

    theorem = "the piecewise mechanism on a grid (Wang et al. 2019), as RAPPOR's theorem {}"

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse strings to look for, and their method: there is nothing to detect."""
        what = f"metrics.{metric.name}.type = {metric.type.name!r}"
        for name in options.given("candidates", "map"):
            raise OptionError(name, f": must be left out; {what}, whose reports hold no names.")
        if options.estimate.method == "likelihood":
            raise OptionError(
                Option("method", "likelihood"),
                f": {what} is decoded from the counts of its cells. Leave ",
                Option("method"),
                " out.",
            )

    def estimate(self, evidence: Evidence, observer: Observer) -> Estimates:  # noqa: ARG002
        """Weigh the cells' counts, perhaps day by day."""
        options, reports = evidence.options, evidence.reports
        if options.by:
            return _estimate_days(evidence)
        decoding = decode_numbers(
            reports.counts,
            evidence.metric,
            alpha=options.alpha,
            correction=evidence.correction,
            repeats=evidence.repeats,
        )
        return numbers_estimates(decoding, reports.anomalies, evidence.made_by("weights of cells"))


def _estimate_days(evidence: Evidence) -> Estimates:
    from hubbub.inference.trends.numbers import decode_number_days  # noqa: PLC0415 - seldom
    from hubbub.reporting.trends import trends_estimates  # noqa: PLC0415

    options, reports = evidence.options, evidence.reports
    trends = decode_number_days(
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
        evidence.made_by("weights of cells, day by day"),
        findings=number_findings(trends.pooled, reports.anomalies),
        limit=options.rows,
    )
