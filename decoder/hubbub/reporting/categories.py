"""Decoded categories and numbers as estimates: one row per category or statistic, a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from hubbub.inference import (
    CONFIDENCE,
    Z_CONFIDENCE,
    AnomalyReport,
    CategoryDecoding,
    FloatArray,
    KnownRates,
    NumberDecoding,
    NumberSummary,
    OrdinalEstimates,
)
from hubbub.protocol import bucket_label
from hubbub.reporting.charts import Interval, IntervalChart, Labels, in_percent
from hubbub.reporting.estimates import (
    Block,
    Column,
    Estimates,
    Finding,
    Heading,
    Level,
    Line,
    Page,
    Section,
    Table,
    as_facts,
    headings,
    table_of,
    warnings_in,
)
from hubbub.reporting.text import visible
from hubbub.reporting.wording import (
    BOOLEAN,
    SHARE_COLUMNS,
    Provenance,
    about_of,
    anomaly_findings,
    detected_finding,
    epsilon_findings,
    first_charts,
    forgery_finding,
    limit_finding,
    metadata_of,
    percent,
    privacy_section,
    provenance_section,
    repeats_findings,
    shown_rows,
    title_of,
)

_INTERVAL = f"{CONFIDENCE:.0%} interval"
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

    Ordinals have "quantiles" and "inner_mean" (or null) in the metadata, and columns of their own;
    so have enums. Columns that strings have, too, have the same names and meanings.
    """
    findings = category_findings(decoding, anomalies)
    columns = _columns(decoding)
    page = Page(
        title_of(provenance),
        _headline(decoding),
        _sections(decoding, columns, provenance, findings),
        warnings_in(findings),
        about=about_of(provenance),
    )
    tables = [_shown_table(decoding, columns, detected_only, limit)]
    if decoding.ordinal:
        tables.append(_quantile_table(decoding.ordinal))
    view: list[Block] = [block for table in tables for block in (table, Line(""))]
    rows = np.flatnonzero(decoding.detected) if detected_only else slice(None)
    return Estimates(
        columns={name: column.only(rows) for name, column in columns.items()},
        keys=("category",),
        findings=findings,
        metadata=_metadata(decoding, anomalies, provenance),
        view=(*view, as_facts(findings)),
        page=page,
        charts=first_charts(page),
    )


def _metadata(
    decoding: CategoryDecoding, anomalies: AnomalyReport | None, provenance: Provenance | None
) -> dict[str, object]:
    metadata = metadata_of(decoding.summary, anomalies, provenance)
    metadata["known_rates"] = decoding.known_rates._asdict()
    if decoding.ordinal:
        mean = decoding.ordinal.inner_mean
        metadata["quantiles"] = [asdict(each) for each in decoding.ordinal.quantiles]
        metadata["inner_mean"] = mean and asdict(mean)
    return metadata


def _columns(decoding: CategoryDecoding) -> dict[str, Column]:
    """Return all categories' columns. Open edges of buckets are nan.

    "behind" is how much a share is below the largest one's; nan for that one.
    """
    estimates, n_reports = decoding.estimates, decoding.summary.reports
    shares = (estimates.share, estimates.std_error, *decoding.interval)
    numbers = dict(
        zip(SHARE_COLUMNS, (*(n_reports * each for each in shares), *shares), strict=True)
    )
    numbers["unbiased"] = estimates.unbiased
    numbers["p_value"] = np.exp(estimates.log_p_value)
    numbers["q_value"] = decoding.q_value
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


def _sections(
    decoding: CategoryDecoding,
    columns: Mapping[str, Column],
    provenance: Provenance | None,
    findings: Sequence[Finding],
) -> tuple[Section, ...]:
    summary = decoding.summary
    quantiles: tuple[Section, ...] = ()
    if decoding.ordinal:
        quantiles = (Section("Quantiles", tables=(_quantile_table(decoding.ordinal),)),)
    return (
        _shares(decoding, columns),
        *quantiles,
        privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        _tests(decoding, columns),
        Section("Summary", facts=as_facts(findings), folded=True),
        provenance_section(provenance),
    )


def _shown_table(
    decoding: CategoryDecoding, columns: Mapping[str, Column], detected_only: bool, limit: int
) -> Table:
    """Return the largest categories, or buckets in their order."""
    ordinal = decoding.ordinal
    rows = shown_rows(decoding.categories)
    order = rows[np.argsort(-decoding.estimates.share[rows], kind="stable")]
    if detected_only:
        order = order[decoding.detected[order]]
    rows = np.sort(order[:limit]) if ordinal else order[:limit]
    shown = [
        ("count", "{count:,.0f}"),
        ("share", "{proportion:.3%}"),
        (_INTERVAL, "{prop_low:.2%} … {prop_high:.2%}"),
    ]
    numbers = {name: column.only(rows).values[:] for name, column in columns.items()}
    if ordinal:
        shown.append(("up to here", "{cumulative:.2%}"))
        shown.append((_INTERVAL, "{cum_low:.2%} … {cum_high:.2%}"))
    if decoding.ranked:
        numbers["points"] = 100 * np.asarray(numbers["behind"])
        numbers["give_or_take"] = 100 * Z_CONFIDENCE * np.asarray(numbers["behind_std_error"])
        shown.append(("points behind the largest", "{points:.2f} ± {give_or_take:.2f}"))
    shown.append(("q", "{q_value:.1e}"))
    found = decoding.detected[rows].tolist()
    return table_of(
        "Buckets, in order" if ordinal else "Categories, largest first",
        [(visible(decoding.categories[row]),) for row in rows.tolist()],
        numbers,
        shown,
        heads=("bucket" if ordinal else "category",),
        last=(Heading("detected", "center"), ["yes" if each else "" for each in found]),
        n_rows=len(order),
        styles=["" if each else "dim" for each in found],
    )


def _between(low: float, high: float) -> str:
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
    heads = headings("share below", "bucket", _INTERVAL)
    return Table("Quantiles", heads, rows)


def category_findings(
    decoding: CategoryDecoding, anomalies: AnomalyReport | None = None
) -> tuple[Finding, ...]:
    """Return the summary: what was asked, how, and what else there is."""
    summary = decoding.summary
    return (
        Finding("reports", "reports", f"{summary.reports:,}", summary.reports),
        *repeats_findings(summary.repeats),
        *epsilon_findings(summary.epsilon_report, summary.epsilon_permanent),
        Finding("categories", "categories", f"{summary.categories:,}", summary.categories),
        detected_finding(summary.detected, summary.correction, summary.alpha),
        limit_finding(summary.detection_limit),
        *([_mean(decoding.ordinal, decoding.bounds)] if decoding.ordinal else []),
        *anomaly_findings(anomalies),
        known_rates_finding(decoding.known_rates),
        forgery_finding(summary.forged_share, summary.forgery_shift),
    )


def _mean(ordinal: OrdinalEstimates, bounds: tuple[tuple[float, float], ...]) -> Finding:
    mean = ordinal.inner_mean
    if mean is None:
        text = "not known: too few values are known to lie between two edges"
        return Finding("mean", "mean", text)
    inner = bucket_label(bounds[0][1], bounds[-1][0])
    text = (
        f"{mean.mean:.4g} of the values in {inner}, if each is at its bucket's middle; "
        f"{mean.low:.4g} … {mean.high:.4g} wherever in the buckets they are"
    )
    return Finding("mean", "mean", text, mean.mean)


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


def _shares(decoding: CategoryDecoding, columns: Mapping[str, Column]) -> Section:
    """Return all categories as a table, and the largest as a chart."""
    chosen = shown_rows(decoding.categories)
    table = table_of(
        "Categories",
        [(visible(decoding.categories[i]),) for i in chosen.tolist()],
        {name: column.only(chosen).values[:] for name, column in columns.items()},
        (
            ("share", "{proportion:.2%}"),
            (_INTERVAL, "{prop_low:.2%} … {prop_high:.2%}"),
            ("as a number of reports", "{count:,.0f}"),
        ),
        heads=("category",),
    )
    if len(chosen) > _MOST:
        order = np.argsort(-decoding.estimates.share, kind="stable")
        chosen = np.sort(order[:_MOST])
    names = [visible(decoding.categories[i]) for i in chosen.tolist()]
    low, high = decoding.interval
    intervals = in_percent(names, decoding.estimates.share[chosen], low[chosen], high[chosen])
    described = f"Bars are {CONFIDENCE:.0%} intervals."
    if len(chosen) == _MOST:
        described += f" The {_MOST} largest of {len(decoding.categories):,} categories."
    axis = f"share of the {decoding.summary.repeats.estimand}"
    labels = Labels("estimates", "Estimated shares", described, axis)
    chart = IntervalChart(labels, intervals, first="category")
    return Section("What was found", charts=(chart,), tables=(table,))


def _tests(decoding: CategoryDecoding, columns: Mapping[str, Column]) -> Section:
    """Return how sure it is that anybody is in each category."""
    table = table_of(
        "Is anybody in this category?",
        [(visible(name),) for name in decoding.categories],
        {name: column.values[:] for name, column in columns.items()},
        (
            ("standard error", "{prop_std_error:.3%}"),
            ("p", "{p_value:.1e}"),
            ("q", "{q_value:.1e}"),
        ),
        heads=("category",),
        last=(Heading("detected"), ["yes" if each else "" for each in decoding.detected]),
    )
    return Section("Tests", tables=(table,), folded=True)


def numbers_estimates(
    decoding: NumberDecoding,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
) -> Estimates:
    """Return the mean of a number, and its variance if clients were asked for it.

    "estimate" lies between the metric's ends, "unbiased" may lie beyond them.
    """
    findings = number_findings(decoding, anomalies)
    columns = _number_columns(decoding)
    table = _table(decoding, columns)
    page = Page(
        title_of(provenance),
        _number_headline(decoding),
        _number_sections(decoding, table, provenance, findings),
        warnings_in(findings),
        about=about_of(provenance),
    )
    metadata = metadata_of(decoding.summary, anomalies, provenance)
    return Estimates(
        columns=columns,
        keys=("statistic",),
        findings=findings,
        metadata=metadata | {"known_rates": decoding.known_rates._asdict()},
        view=(table, Line(""), as_facts(findings)),
        page=page,
        charts=first_charts(page),
    )


def number_findings(
    decoding: NumberDecoding, anomalies: AnomalyReport | None = None
) -> tuple[Finding, ...]:
    """Return the summary: what was asked, how, and what else there is."""
    summary = decoding.summary
    return (
        Finding("reports", "reports", f"{summary.reports:,}", summary.reports),
        *epsilon_findings(summary.epsilon_report, summary.epsilon_permanent),
        *repeats_findings(summary.repeats),
        _range(summary),
        *anomaly_findings(anomalies),
        known_rates_finding(decoding.known_rates, "cells"),
        _forgery(summary),
    )


def _range(summary: NumberSummary) -> Finding:
    text = f"{summary.lowest:.6g} to {summary.highest:.6g}; numbers beyond count as the nearer end"
    return Finding("range", "numbers from", text, [summary.lowest, summary.highest])


def _forgery(summary: NumberSummary) -> Finding:
    text = (
        f"if {summary.forged_share:.0%} of these reports were forged, the estimated mean could "
        f"move by at most {summary.forgery_shift:.3g}"
    )
    return Finding("if_forged", "if forged", text, summary.forgery_shift)


def _number_columns(decoding: NumberDecoding) -> dict[str, Column]:
    found = decoding.estimates
    numbers = {
        "estimate": found.estimate,
        "std_error": found.std_error,
        "low": found.low,
        "high": found.high,
        "unbiased": found.unbiased,
    }
    return {
        "statistic": Column(str, list(decoding.statistics)),
        **{name: Column(float, values) for name, values in numbers.items()},
    }


def _table(decoding: NumberDecoding, columns: dict[str, Column]) -> Table:
    return table_of(
        "Statistics of the population",
        [(each,) for each in decoding.statistics],
        {name: column.values[:] for name, column in columns.items()},
        (
            ("estimate", "{estimate:.5g}"),
            ("standard error", "{std_error:.2g}"),
            (f"{CONFIDENCE:.0%} interval", "{low:.5g} … {high:.5g}"),
        ),
        heads=("statistic",),
    )


def _number_headline(decoding: NumberDecoding) -> str:
    found, summary = decoding.estimates, decoding.summary
    return (
        f"The mean is {found.estimate[0]:.5g} ({found.low[0]:.5g} to {found.high[0]:.5g}), "
        f"estimated from {summary.reports:,} reports."
    )


def _number_sections(
    decoding: NumberDecoding,
    table: Table,
    provenance: Provenance | None,
    findings: Sequence[Finding],
) -> tuple[Section, ...]:
    summary, found = decoding.summary, decoding.estimates
    ends = (found.estimate, found.low, found.high)
    # The variance has another unit, and so no place next to the mean.
    mean = Interval(decoding.statistics[0], *(float(each[0]) for each in ends))
    described = f"The mean with its {CONFIDENCE:.0%} interval."
    labels = Labels("estimates", "Estimated mean", described, "the metric's unit")
    chart = IntervalChart(labels, [mean], unit="", first="statistic")
    return (
        Section("What was found", charts=(chart,), tables=(table,)),
        privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        Section("Summary", facts=as_facts(findings), folded=True),
        provenance_section(provenance),
    )
