"""Decoded categories and numbers as estimates: one row per category or statistic, a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from hubbub.inference import (
    Z_CONFIDENCE,
    AnomalyReport,
    BoolArray,
    CategoryDecoding,
    FloatArray,
    IntArray,
    KnownRates,
    NumberDecoding,
    OrdinalEstimates,
)
from hubbub.protocol import bucket_label
from hubbub.reporting.charts import IntervalChart, Labels
from hubbub.reporting.estimates import (
    Column,
    Estimates,
    Heading,
    Section,
    Table,
    headings,
    table_of,
)
from hubbub.reporting.findings import Finding, Level
from hubbub.reporting.text import visible
from hubbub.reporting.wording import (
    BOOLEAN,
    INTERVAL,
    Provenance,
    anomaly_findings,
    decoded_estimates,
    detected_finding,
    epsilon_findings,
    forgery_finding,
    limit_line,
    percent,
    repeats_findings,
    share_chart,
    share_columns,
    share_table,
    shown_rows,
)

_MOST = 100  # bars, the largest: a page's height
_IN_HEADLINE = 3  # categories: the sentence stays on two lines


def categories_estimates(
    decoding: CategoryDecoding,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
    detected_only: bool = False,
    limit: int = 40,
) -> Estimates:
    """Return how often each category occurs, in the registry's order.

    Ordinals have "quantiles" in the metadata, and columns of their own;
    so have enums. Columns that strings have, too, have the same names and meanings.
    """
    columns = _columns(decoding)
    quantiles = (_quantile_table(decoding.ordinal),) if decoding.ordinal else ()
    rows = np.arange(len(decoding.categories))
    if detected_only:
        rows = np.flatnonzero(decoding.detected)
    metadata: dict[str, object] = {"known_rates": decoding.known_rates._asdict()}
    if decoding.ordinal:
        metadata["quantiles"] = [asdict(each) for each in decoding.ordinal.quantiles]
    tests = table_of(
        "Is anybody in this category?",
        [(visible(category),) for category in decoding.categories],
        {name: column.values[:] for name, column in columns.items()},
        (
            ("standard error", "{prop_std_error:.3%}"),
            ("p", "{p_value:.1e}"),
            ("q", "{q_value:.1e}"),
        ),
        heads=("category",),
        last=(Heading("detected"), _yes(decoding.detected)),
    )
    return decoded_estimates(
        _headline(decoding),
        (
            _found_section(decoding, columns),
            *([Section("Quantiles", tables=quantiles)] if quantiles else []),
        ),
        provenance,
        columns={name: column.only(rows) for name, column in columns.items()},
        keys=("category",),
        findings=category_findings(decoding, anomalies),
        summary=decoding.summary,
        anomalies=anomalies,
        metadata=metadata,
        view=(_shown_table(decoding, columns, detected_only, limit), *quantiles),
        more=(Section("Tests", tables=(tests,), folded=True),),
    )


def _columns(decoding: CategoryDecoding) -> dict[str, Column]:
    """Return all categories' columns. Open edges of buckets are nan.

    "behind" is how much a share is below the largest one's; nan for that one.
    """
    estimates = decoding.estimates
    shares = (estimates.share, estimates.std_error, *decoding.interval)
    numbers = share_columns(decoding.summary.reports, shares) | {
        "unbiased": estimates.unbiased,
        "p_value": np.exp(estimates.log_p_value),
        "q_value": decoding.q_value,
    }
    columns = {
        "category": Column(str, decoding.categories),
        **{name: Column(float, each) for name, each in numbers.items()},
        "detected": Column(bool, decoding.detected.tolist()),
    }
    own: dict[str, FloatArray] = {}
    if decoding.ranked:
        largest = int(np.argmax(estimates.share))
        weights = -np.eye(len(decoding.categories))
        weights[:, largest] += 1.0
        behind, error = estimates.contrast(weights)
        behind[largest] = error[largest] = np.nan
        own |= {"behind": behind, "behind_std_error": error}
    if decoding.ordinal:
        edges = np.array(decoding.bounds)
        edges[np.isinf(edges)] = np.nan
        low, high = decoding.ordinal.interval
        own |= {"bucket_low": edges[:, 0], "bucket_high": edges[:, 1]}
        own |= {"cumulative": decoding.ordinal.cumulative, "cum_low": low, "cum_high": high}
    return columns | {name: Column(float, each) for name, each in own.items()}


def _headline(decoding: CategoryDecoding) -> str:
    """Return the largest shares in a sentence; of a boolean that of true, with its interval."""
    shares, of = decoding.estimates.share, f"from {decoding.summary.reports:,} reports"
    if decoding.categories == BOOLEAN:
        low, high = (percent(float(end[1])) for end in decoding.interval)
        return f"{percent(float(shares[1]))} ({low} to {high}), estimated {of}."
    order = np.argsort(-shares, kind="stable")[:_IN_HEADLINE].tolist()
    named = [f"{visible(decoding.categories[i])} {percent(float(shares[i]))}" for i in order]
    largest = "The largest are " if len(shares) > len(order) else ""
    return f"{largest}{', '.join(named)}; estimated {of}."


def _found_section(decoding: CategoryDecoding, columns: Mapping[str, Column]) -> Section:
    """Return all categories as a table and the largest as a chart."""
    shares, rows = decoding.estimates.share, shown_rows(decoding.categories)
    table = _share_table(decoding, columns, rows, "Categories", "category")
    top = rows
    if len(rows) > _MOST:
        top = np.sort(np.argsort(-shares, kind="stable")[:_MOST])
    chart = share_chart(
        "estimates",
        "Estimated shares",
        f"share of the {decoding.summary.repeats.estimand}",
        [visible(decoding.categories[row]) for row in top.tolist()],
        [each[top] for each in (shares, *decoding.interval)],
        len(rows),
        "category",
    )
    return Section("What was found", charts=(chart,), tables=(table,))


def _shown_table(
    decoding: CategoryDecoding, columns: Mapping[str, Column], detected_only: bool, limit: int
) -> Table:
    """Return the largest categories, or buckets in their order."""
    rows = shown_rows(decoding.categories)
    order = rows[np.argsort(-decoding.estimates.share[rows], kind="stable")]
    if detected_only:
        order = order[decoding.detected[order]]
    title, head, rows, more = "Categories, largest first", "category", order[:limit], []
    if decoding.ordinal:
        title, head, rows = "Buckets, in order", "bucket", np.sort(rows)
        more.append(("up to here", "{cumulative:.2%}"))
        more.append((INTERVAL, "{cum_low:.2%} … {cum_high:.2%}"))
    if decoding.ranked:
        # A difference of shares is shown in points, with half the width of its interval.
        points = Column(float, 100 * np.asarray(columns["behind"].values))
        errors = 100 * Z_CONFIDENCE * np.asarray(columns["behind_std_error"].values)
        columns = {**columns, "points": points, "give_or_take": Column(float, errors)}
        more.append(("points behind the largest", "{points:.2f} ± {give_or_take:.2f}"))
    more.append(("q", "{q_value:.1e}"))
    return _share_table(decoding, columns, rows, title, head, more, len(order))


def _share_table(
    decoding: CategoryDecoding,
    columns: Mapping[str, Column],
    rows: IntArray,
    title: str,
    head: str,
    more: Sequence[tuple[str, str]] = (),
    n_rows: int | None = None,
) -> Table:
    names = [(visible(decoding.categories[row]),) for row in rows.tolist()]
    numbers = {name: column.only(rows).values[:] for name, column in columns.items()}
    detected = _yes(decoding.detected[rows])
    return share_table(title, (head,), names, numbers, detected, more, n_rows)


def _yes(truths: BoolArray) -> list[str]:
    return ["yes" if each else "" for each in truths.tolist()]


def _quantile_table(ordinal: OrdinalEstimates) -> Table:
    """Return the quantiles: the bucket of each, and the edges that it lies between."""
    rows = []
    for each in ordinal.quantiles:
        anything = math.isinf(each.low) and math.isinf(each.high)
        between = "anything" if anything else bucket_label(each.low, each.high)
        bucket = bucket_label(each.bucket_low, each.bucket_high)
        rows.append((f"{each.level:.0%}", bucket, between))
    return Table("Quantiles", headings("share below", "bucket", INTERVAL), tuple(rows))


def category_findings(
    decoding: CategoryDecoding, anomalies: AnomalyReport | None = None
) -> tuple[Finding, ...]:
    """Return the summary: what was asked, how, and what else there is."""
    summary, limit = decoding.summary, decoding.summary.detection_limit
    return (
        Finding("reports", "reports", f"{summary.reports:,}", summary.reports),
        *repeats_findings(summary.repeats),
        *epsilon_findings(summary.epsilon_report, summary.epsilon_permanent),
        Finding("categories", "categories", f"{summary.categories:,}", summary.categories),
        detected_finding(summary.detected, summary.correction, summary.alpha),
        Finding("detection_limit", "detection limit", limit_line(limit), limit),
        *anomaly_findings(anomalies),
        known_rates_finding(decoding.known_rates),
        forgery_finding(summary.forged_share, summary.forgery_shift),
    )


def known_rates_finding(rates: KnownRates, cells: str = "categories") -> Finding:
    """Return whether bits whose rate is known before any report have that rate."""
    parts = []
    if rates.unused_bits:
        parts.append(
            f"{rates.unused_bits} unused bits are set in {rates.unused_rate:.3%} of the reports, "
            f"{rates.expected_unused_rate:.3%} expected"
        )
    if not math.isnan(rates.own_bits_set):
        parts.append(
            f"a report has {rates.own_bits_set:.3f} of the {cells}' bits set, "
            f"{rates.expected_own_bits_set:.3f} expected"
        )
    text = "; ".join(parts)
    found = Finding("known_rates", "bits of known rate", f"{text}, consistent with honest clients")
    if rates.suspicious:
        only_if = (
            "honest clients never send others"
            if math.isinf(rates.clients_must_send)
            else f"honest only if some client sent more than {rates.clients_must_send:,.0f} "
            "reports, or if f, p and q aren't those of these reports"
        )
        text = f"{text}; {only_if}"
        return found._replace(level=Level.ALARM, text=text, value=rates.clients_must_send)
    return found


def numbers_estimates(
    decoding: NumberDecoding,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
) -> Estimates:
    """Return the mean of a number, and its variance if clients were asked for it.

    "estimate" lies between the metric's ends, "unbiased" may lie beyond them.
    """
    found, summary = decoding.estimates, decoding.summary
    ends = (found.estimate, found.low, found.high)
    numbers = {
        "estimate": found.estimate,
        "std_error": found.std_error,
        "low": found.low,
        "high": found.high,
        "unbiased": found.unbiased,
    }
    table = table_of(
        "Statistics of the population",
        [(each,) for each in decoding.statistics],
        numbers,
        (
            ("estimate", "{estimate:.5g}"),
            ("standard error", "{std_error:.2g}"),
            (INTERVAL, "{low:.5g} … {high:.5g}"),
        ),
        heads=("statistic",),
    )
    # The variance has another unit, and so no place next to the mean.
    mean, low, high = (each[:1] for each in ends)
    described = f"The mean with its {INTERVAL}."
    labels = Labels("estimates", "Estimated mean", described, "the metric's unit")
    names = decoding.statistics[:1]
    chart = IntervalChart(labels, names, mean, low, high, unit="", first="statistic")
    return decoded_estimates(
        f"The mean is {mean[0]:.5g} ({low[0]:.5g} to {high[0]:.5g}), estimated from "
        f"{summary.reports:,} reports.",
        (Section("What was found", charts=(chart,), tables=(table,)),),
        provenance,
        columns={
            "statistic": Column(str, list(decoding.statistics)),
            **{name: Column(float, values) for name, values in numbers.items()},
        },
        keys=("statistic",),
        findings=number_findings(decoding, anomalies),
        summary=summary,
        anomalies=anomalies,
        metadata={"known_rates": decoding.known_rates._asdict()},
        view=(table,),
    )


def number_findings(
    decoding: NumberDecoding, anomalies: AnomalyReport | None = None
) -> tuple[Finding, ...]:
    """Return the summary: what was asked, how, and what else there is."""
    summary = decoding.summary
    ends = [summary.lowest, summary.highest]
    range_ = f"{ends[0]:.6g} to {ends[1]:.6g}; numbers beyond count as the nearer end"
    forged = (
        f"if {summary.forged_share:.0%} of these reports were forged, the estimated mean could "
        f"move by at most {summary.forgery_shift:.3g}"
    )
    return (
        Finding("reports", "reports", f"{summary.reports:,}", summary.reports),
        *epsilon_findings(summary.epsilon_report, summary.epsilon_permanent),
        *repeats_findings(summary.repeats),
        Finding("range", "numbers from", range_, ends),
        *anomaly_findings(anomalies),
        known_rates_finding(decoding.known_rates, "cells"),
        Finding("if_forged", "if forged", forged, summary.forgery_shift),
    )
