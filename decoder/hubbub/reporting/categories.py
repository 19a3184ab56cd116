"""Decoded categories as a result: a row a category, a summary, a report.

Columns that strings have, too, have the same names and meanings (`hubbub.reporting.strings`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from hubbub.inference.anomalies import AnomalyReport
from hubbub.inference.arrays import IntArray
from hubbub.inference.categories.decoding import CategoryDecoding, KnownRates
from hubbub.inference.categories.ordinal import OrdinalEstimates
from hubbub.inference.testing.intervals import CONFIDENCE, Z_CONFIDENCE
from hubbub.protocol.metric_types.ordinals import bucket_label
from hubbub.reporting.charts import IntervalChart, Labels, in_percent
from hubbub.reporting.result import (
    ROWS,
    Block,
    Columns,
    Heading,
    Line,
    Report,
    Section,
    Table,
    Types,
    columns_of,
    headings,
)
from hubbub.reporting.text import visible
from hubbub.reporting.wording import (
    SHARE_COLUMNS,
    SUSPICIOUS,
    DecodedResult,
    anomaly_lines,
    detected_line,
    epsilon_lines,
    forgery_line,
    limit_line,
    privacy_section,
    provenance_section,
    warnings_of,
)

_Row = dict[str, str | float | bool]
_INTERVAL = f"{CONFIDENCE:.0%} interval"
_MOST = 100


@dataclass(frozen=True, slots=True, repr=False)
class CategoriesResult(DecodedResult[CategoryDecoding]):
    """How often each category occurs, in the registry's order."""

    @property
    def types(self) -> Types:
        """The columns, of which enums and ordinals have some of their own."""
        return {name: type(value) for name, value in next(_rows(self.decoding)).items()}

    def parts(self) -> Iterator[Columns]:
        """Yield the rows."""
        yield columns_of(self.types, list(_rows(self.decoding, detected_only=self.detected_only)))

    def document(self) -> Mapping[str, object]:
        """Return "summary", "scrutiny", "provenance", "known_rates" and "rows".

        Ordinals have "quantiles" and "inner_mean" (or null) as well.
        """
        decoding = self.decoding
        document = self.document_head(decoding.summary)
        document["known_rates"] = decoding.known_rates._asdict()
        if decoding.ordinal:
            mean = decoding.ordinal.inner_mean
            document["quantiles"] = [asdict(each) for each in decoding.ordinal.quantiles]
            document["inner_mean"] = mean and asdict(mean)
        return document | {"rows": ROWS}

    def blocks(self) -> Iterator[Block]:
        """Yield the largest categories (buckets in their order) and the summary."""
        decoding, limit = self.decoding, self.limit
        order = np.argsort(-decoding.estimates.share, kind="stable")
        if self.detected_only:
            order = order[decoding.detected[order]]
        shown = np.sort(order[:limit]) if decoding.ordinal else order[:limit]
        left_out = f"{len(order) - limit:,}" if len(order) > limit else ""
        yield replace(_table(decoding, shown), left_out=left_out)
        yield Line("")
        if decoding.ordinal:
            yield _quantile_table(decoding.ordinal)
            yield Line("")
        yield summary_lines(decoding, self.anomalies)

    @property
    def suspicious(self) -> bool:
        """Whether single reports look forged, or bits of known rate have another one."""
        found = bool(self.anomalies and self.anomalies.suspicious)
        return self.decoding.known_rates.suspicious or found

    def report(self) -> Report:
        """Return the report, made of the same parts as that of strings."""
        decoding, summary = self.decoding, self.decoding.summary
        facts = summary_lines(decoding, self.anomalies)
        sections = [
            _shares(decoding),
            Section("Summary", facts=facts),
            privacy_section(summary.epsilon_report, summary.epsilon_permanent),
            provenance_section(self.provenance),
        ]
        if decoding.ordinal:
            quantiles = tuple(
                (
                    f"{each.level:.0%}",
                    bucket_label(each.bucket_low, each.bucket_high),
                    _between(each.low, each.high),
                )
                for each in decoding.ordinal.quantiles
            )
            heads = headings("share below", "bucket", _INTERVAL)
            table = Table("Quantiles", heads, quantiles)
            sections.insert(1, Section("Quantiles", tables=(table,)))
        largest = int(np.argmax(decoding.estimates.share))
        headline = (
            f"Of {summary.reports:,} reports an estimated "
            f"{decoding.estimates.share[largest]:.1%} are "
            f"“{visible(decoding.categories[largest])}”, the largest of {summary.categories:,} "
            f"categories; {summary.detected:,} were detected."
        )
        title = f"What the reports{self.of_metric} say"
        return Report(title, headline, sections, warnings_of(facts))


def _rows(decoding: CategoryDecoding, *, detected_only: bool = False) -> Iterator[_Row]:
    """Yield a row a category; keys are the columns. Open edges of buckets are nan.

    "behind" is how much a share is below the largest one's; nan for that one.
    """
    estimates, n_reports = decoding.estimates, decoding.summary.reports
    largest = int(np.argmax(estimates.share))
    weights = -np.eye(len(decoding.categories))
    weights[:, largest] += 1.0
    behind, behind_error = estimates.contrast(weights)
    behind[largest] = behind_error[largest] = np.nan
    for index, category in enumerate(decoding.categories):
        if detected_only and not decoding.detected[index]:
            continue
        share, std_error = float(estimates.share[index]), float(estimates.std_error[index])
        low, high = float(decoding.interval.low[index]), float(decoding.interval.high[index])
        shares = (share, std_error, low, high)
        counts = (value * n_reports for value in shares)
        row: _Row = {
            "category": category,
            **dict(zip(SHARE_COLUMNS, (*counts, *shares), strict=True)),
            "unbiased": float(estimates.unbiased[index]),
            "p_value": math.exp(estimates.log_p_value[index]),
            "q_value": float(decoding.q_value[index]),
            "detected": bool(decoding.detected[index]),
        }
        if decoding.ranked:
            row |= {
                "behind": float(behind[index]),
                "behind_std_error": float(behind_error[index]),
            }
        if decoding.ordinal:
            row |= {
                "bucket_low": _edge(decoding.bounds[index][0]),
                "bucket_high": _edge(decoding.bounds[index][1]),
                "cumulative": float(decoding.ordinal.cumulative[index]),
                "cum_low": float(decoding.ordinal.interval.low[index]),
                "cum_high": float(decoding.ordinal.interval.high[index]),
            }
        yield row


def _edge(edge: float) -> float:
    return math.nan if math.isinf(edge) else edge


def _table(decoding: CategoryDecoding, indices: IntArray) -> Table:
    ordinal = decoding.ordinal
    heads = headings("bucket" if ordinal else "category", "count", "share", _INTERVAL)
    if ordinal:
        heads += (Heading("up to here"), Heading(_INTERVAL))
    if decoding.ranked:
        heads += (Heading("points behind the largest"),)
    every, rows = list(_rows(decoding)), []
    for index in indices.tolist():
        row = every[index]
        cells = [
            visible(str(row["category"])),
            f"{row['count']:,.0f}",
            f"{row['proportion']:.3%}",
            f"{row['prop_low']:.2%} … {row['prop_high']:.2%}",
        ]
        if ordinal:
            cells.append(f"{row['cumulative']:.2%}")
            cells.append(f"{row['cum_low']:.2%} … {row['cum_high']:.2%}")
        if decoding.ranked:
            behind, error = float(row["behind"]), float(row["behind_std_error"])
            text = f"{100 * behind:.2f} ± {100 * Z_CONFIDENCE * error:.2f}"
            cells.append("" if math.isnan(behind) else text)
        rows.append((*cells, f"{row['q_value']:.1e}", "yes" if row["detected"] else ""))
    return Table(
        "Buckets, in order" if ordinal else "Categories, largest first",
        (*heads, Heading("q"), Heading("detected", "center")),
        tuple(rows),
        styles=tuple("" if decoding.detected[index] else "dim" for index in indices),
    )


def _between(low: float, high: float) -> str:
    """Return an interval whose ends are edges or infinite."""
    return "anything" if math.isinf(low) and math.isinf(high) else bucket_label(low, high)


def _quantile_table(ordinal: OrdinalEstimates) -> Table:
    """Return the quantiles: the bucket of each, and the edges that it lies between."""
    rows = tuple(
        (
            f"{each.level:.0%}",
            bucket_label(each.bucket_low, each.bucket_high),
            _between(each.low, each.high),
        )
        for each in ordinal.quantiles
    )
    heads = tuple(map(Heading, ("share below", "bucket", _INTERVAL)))
    return Table("Quantiles", heads, rows)


def summary_lines(
    decoding: CategoryDecoding, anomalies: AnomalyReport | None = None
) -> dict[str, str]:
    """Return the summary's lines by what they are about."""
    summary = decoding.summary
    lines = {
        "reports": f"{summary.reports:,}",
        **epsilon_lines(summary.epsilon_report, summary.epsilon_permanent),
        "categories": f"{summary.categories:,}",
        "detected": detected_line(summary.detected, summary.correction, summary.alpha),
        "detection limit": limit_line(summary.detection_limit),
    }
    if decoding.ordinal:
        lines["mean"] = _mean(decoding.ordinal, decoding.bounds)
    if anomalies:
        lines |= anomaly_lines(anomalies)
    lines["bits of known rate"] = _known(decoding.known_rates)
    lines["if forged"] = forgery_line(summary.forged_share, summary.forgery_shift)
    return lines


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
    text = "; ".join(parts)
    if rates.suspicious:
        return (
            f"{SUSPICIOUS}{text}; honest only if some client sent more than "
            f"{rates.clients_must_send:,.0f} reports"
        )
    return f"{text}, as honest clients' might"


def _shares(decoding: CategoryDecoding) -> Section:
    rows = tuple(
        (
            visible(name),
            f"{decoding.estimates.share[i] * decoding.summary.reports:,.0f}",
            f"{decoding.estimates.share[i]:.3%}",
            f"{decoding.interval.low[i]:.3%} … {decoding.interval.high[i]:.3%}",
            f"{decoding.q_value[i]:.1e}",
            "yes" if decoding.detected[i] else "",
        )
        for i, name in enumerate(decoding.categories)
    )
    heads = headings("category", "count", "share", _INTERVAL, "q", "detected")
    chosen = np.arange(len(decoding.categories))
    if len(chosen) > _MOST:
        order = np.argsort(-decoding.estimates.share, kind="stable")
        chosen = np.sort(order[:_MOST])
    names = [visible(decoding.categories[i]) for i in chosen.tolist()]
    low, high = decoding.interval
    intervals = in_percent(names, decoding.estimates.share[chosen], low[chosen], high[chosen])
    described = (
        f"{len(chosen)} of {len(decoding.categories):,} categories with "
        f"{CONFIDENCE:.0%} intervals, in the registry's order."
    )
    labels = Labels("estimates", "Estimated shares", described, "share of the population")
    chart = IntervalChart(labels, intervals)
    return Section("What was found", charts=(chart,), tables=(Table("Categories", heads, rows),))
