"""What a reader of a category decoding must know besides its rows."""

from __future__ import annotations

import math

from rich.table import Table

from hubbub.decoder.categories.decoding import CategoryDecoding, CategorySummary
from hubbub.decoder.categories.known_rates import KnownRates
from hubbub.decoder.categories.ordinal import OrdinalEstimates, bucket_label
from hubbub.decoder.inference.intervals import CONFIDENCE
from hubbub.decoder.output.summary import (
    ERROR_RATES,
    SUSPICIOUS,
    forgery_line,
    limit_line,
    lines_table,
    scrutiny_lines,
)
from hubbub.decoder.reports.scrutiny import Findings


def summary_table(decoding: CategoryDecoding, findings: Findings | None = None) -> Table:
    """Return the summary as two columns, with the scrutiny's findings if there are any."""
    return lines_table(summary_lines(decoding, findings))


def summary_lines(decoding: CategoryDecoding, findings: Findings | None = None) -> dict[str, str]:
    """Return the summary's lines by what they are about."""
    lines = _estimation(decoding.summary)
    if decoding.ordinal:
        lines["mean"] = _mean(decoding.ordinal, decoding.bounds)
    if findings:
        lines |= scrutiny_lines(findings)
    lines["bits of known rate"] = _known(decoding.known_rates)
    lines["if forged"] = forgery_line(decoding.summary.forged_share, decoding.summary.forgery_shift)
    return lines


def quantile_table(ordinal: OrdinalEstimates) -> Table:
    """Return the quantiles: the bucket of each, and the edges that it lies between."""
    table = Table(title="Quantiles", title_justify="left")
    table.add_column("share below", justify="right")
    table.add_column("bucket", justify="right")
    table.add_column(f"{CONFIDENCE:.0%} interval", justify="right")
    for quantile in ordinal.quantiles:
        unbounded = math.isinf(quantile.low) and math.isinf(quantile.high)
        table.add_row(
            f"{quantile.level:.0%}",
            bucket_label(quantile.bucket_low, quantile.bucket_high),
            "anything" if unbounded else bucket_label(quantile.low, quantile.high),
        )
    return table


def _estimation(summary: CategorySummary) -> dict[str, str]:
    return {
        "reports": f"{summary.reports:,}",
        "epsilon of one report": f"{summary.epsilon_report:.4g}",
        "epsilon for life (one value)": f"{summary.epsilon_permanent:.4g}",
        "categories": f"{summary.categories:,}",
        "detected": f"{summary.detected:,} at a {ERROR_RATES[summary.correction]} of at most "
        f"{summary.alpha:g}",
        "detection limit": limit_line(summary.detection_limit),
    }


def _mean(ordinal: OrdinalEstimates, bounds: tuple[tuple[float, float], ...]) -> str:
    mean = ordinal.inner_mean
    if mean is None:
        return "not assessable: too few values are known to lie between two edges"
    inner = bucket_label(bounds[0][1], bounds[-1][0])
    return (
        f"{mean.mean:.4g} of the values in {inner}, if each is at its bucket's middle; "
        f"{mean.low:.4g} … {mean.high:.4g} wherever in the buckets they are"
    )


def _known(rates: KnownRates) -> str:
    parts = []
    if rates.unused_bits:
        parts.append(
            f"{rates.unused_bits} unused bits are set in {rates.unused_rate:.3%} of the reports, "
            f"{rates.expected_unused_rate:.3%} expected"
        )
    if not math.isnan(rates.own_bits_set):
        parts.append(
            f"a report has {rates.own_bits_set:.3f} of the categories' bits set, "
            f"{rates.expected_own_bits_set:.3f} expected"
        )
    told = "; ".join(parts)
    if rates.suspicious:
        return (
            f"{SUSPICIOUS}{told}; honest only if some client sent more than "
            f"{rates.clients_must_send:,.0f} reports"
        )
    return f"{told}, as honest clients' might"
