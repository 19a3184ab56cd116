"""A decoded number as estimates: one row per statistic, a summary, a page."""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.inference.anomalies import AnomalyReport
from hubbub.inference.numbers.decoding import NumberDecoding, NumberSummary
from hubbub.inference.testing.intervals import CONFIDENCE
from hubbub.reporting.blocks import Line, Page, Section, Table
from hubbub.reporting.categories import known_rates_finding
from hubbub.reporting.charts import Interval, IntervalChart, Labels
from hubbub.reporting.estimates import (
    Column,
    Estimates,
    Finding,
    as_facts,
    table_of,
    warnings_in,
)
from hubbub.reporting.provenance import Provenance
from hubbub.reporting.wording import (
    anomaly_findings,
    epsilon_findings,
    first_charts,
    metadata_of,
    privacy_section,
    provenance_section,
    repeats_findings,
    title_of,
)


def numbers_estimates(
    decoding: NumberDecoding,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
) -> Estimates:
    """Return the mean of a number, and its variance if clients were asked for it.

    Returns "estimate" lies between the metric's ends, "unbiased" may lie beyond them. A mean is no
    count, so that the columns are named otherwise than those of shares.
    """
    findings = number_findings(decoding, anomalies)
    columns = _columns(decoding)
    table = _table(decoding, columns)
    page = Page(
        title_of(provenance),
        _headline(decoding),
        _sections(decoding, table, provenance, findings),
        warnings_in(findings),
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


def _columns(decoding: NumberDecoding) -> dict[str, Column]:
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


def _headline(decoding: NumberDecoding) -> str:
    found, summary = decoding.estimates, decoding.summary
    return (
        f"Of {summary.reports:,} reports the mean is estimated at {found.estimate[0]:.5g}, "
        f"between {found.low[0]:.5g} and {found.high[0]:.5g}."
    )


def _sections(
    decoding: NumberDecoding,
    table: Table,
    provenance: Provenance | None,
    findings: Sequence[Finding],
) -> tuple[Section, ...]:
    summary, found = decoding.summary, decoding.estimates
    ends = (found.estimate, found.low, found.high)
    # The variance has another unit, and so no place beside the mean.
    mean = Interval(decoding.statistics[0], *(float(each[0]) for each in ends))
    described = f"The mean with its {CONFIDENCE:.0%} interval."
    labels = Labels("estimates", "Estimated mean", described, "the metric's unit")
    chart = IntervalChart(labels, [mean], unit="", first="statistic")
    return (
        Section("What was found", charts=(chart,), tables=(table,)),
        Section("Summary", facts=as_facts(findings)),
        privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        provenance_section(provenance),
    )
