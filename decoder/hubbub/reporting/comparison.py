"""A comparison as estimates: one row per string, category or statistic, differences first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hubbub.inference import Comparison, IntArray, SampleRatio
from hubbub.inference.comparison import POWER
from hubbub.reporting.charts import IntervalChart, Labels
from hubbub.reporting.estimates import Column, Estimates, Heading, Section, Table, table_of
from hubbub.reporting.findings import Finding, Level
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.wording import (
    BOOLEAN,
    ERROR_RATES,
    INTERVAL,
    Provenance,
    decoded_estimates,
    estimand_finding,
    percent,
    shown_rows,
    title_of,
)

_IN_HEADLINE = 60  # characters of a string: the headline stays on two lines
_NAMED = 3  # rows that the headline names
_ON_CHART = 40  # bars: a page's height
_STATISTIC = "statistic"
_INDEPENDENT = (
    "Intervals take the groups' clients to be different people. Where the same clients are in "
    "both, what they keep (their values and permanent responses) cancels, and intervals are wider "
    "than they need be."
)


def comparison_estimates(
    comparison: Comparison[Any],
    labels: tuple[str, str],
    findings: Sequence[Finding] = (),
    provenance: Provenance | None = None,
    limit: int = 40,
) -> Estimates:
    """Return both groups' shares side by side, their differences and their ratios."""
    columns = _columns(comparison)
    rows = shown_rows(comparison.names)
    order = rows[np.lexsort((rows, comparison.p_value[rows]))]
    table = _table(comparison, columns, order, len(order))
    return decoded_estimates(
        _headline(comparison),
        (
            Section(
                "What differs",
                charts=_charts(comparison, labels, order),
                tables=(table,),
            ),
            Section("Whose reports these are", (_INDEPENDENT,), folded=True),
        ),
        provenance,
        columns=columns,
        keys=(comparison.kind,),
        findings=(*_findings(comparison, labels), *findings),
        metadata={
            "comparison": {
                "control": labels[0],
                "treatment": labels[1],
                "control_reports": comparison.reports[0],
                "treatment_reports": comparison.reports[1],
                "alpha": comparison.alpha,
                "correction": comparison.correction.value,
                "sequential": comparison.widening is not None,
            },
        },
        view=(_table(comparison, columns, order, limit),),
        title=f"{title_of(provenance)}: {labels[1]} against {labels[0]}",
    )


def _findings(comparison: Comparison[Any], labels: tuple[str, str]) -> Iterator[Finding]:
    """Yield who was compared with whom, how many rows differ, and whether one may look again."""
    sides = ("control", "treatment")
    for side, label, reports in zip(sides, labels, comparison.reports, strict=True):
        yield Finding(f"{side}_reports", side, f"{label}: {reports:,} reports", reports)
    differs = comparison.differs[shown_rows(comparison.names)]
    count = int(np.count_nonzero(differs))
    rate = ERROR_RATES[comparison.correction]
    text = f"{count:,} of {len(differs):,} rows at a {rate} of at most {comparison.alpha:g}"
    yield Finding("differs", "differ", text, count)
    least = comparison.least_difference[np.isfinite(comparison.least_difference)]
    if comparison.kind != _STATISTIC and len(least):
        middle = float(np.median(least))
        text = (
            f"in a typical row, a difference of {100 * middle:.2g} percentage points is found with "
            f"probability {POWER:g}"
        )
        yield Finding("least_difference", "least difference", text, middle)
    wider = comparison.widening
    if wider is not None and np.isfinite(wider):
        text = (
            "look as often as you like while reports come in, and stop when you like: all of this "
            f"holds at every look, with intervals {wider:.2f} times as wide as for a single look"
        )
        yield Finding("looks", "looks", text, wider)
    yield estimand_finding(comparison.pooled.summary.repeats)
    if not len(comparison.names):
        nothing = "no string was detected in both groups together, so there is nothing to compare"
        yield Finding("nothing_compared", "note", nothing, level=Level.WARNING)


def ratio_finding(ratio: SampleRatio) -> Finding:
    """Return whether the groups are as large as they were assigned to be."""
    found = (
        f"the treatment has {ratio.found:.4g} times the control's reports; "
        f"{ratio.assigned:.4g} times were assigned (p = {ratio.p_value:.2g})"
    )
    if not ratio.mismatches:
        return Finding("sample_ratio", "sample ratio", found, ratio.found)
    text = (
        f"{found}: something keeps clients of one group from reporting, so differences may "
        "only show who is left"
    )
    return Finding("sample_ratio", "sample ratio", text, ratio.found, Level.WARNING)


def _columns(comparison: Comparison[Any]) -> dict[str, Column]:
    """Return all columns; of strings in the order of their pooled shares."""
    numbers = {
        "control": comparison.control.value,
        "control_std_error": comparison.control.std_error,
        "treatment": comparison.treatment.value,
        "treatment_std_error": comparison.treatment.std_error,
        "difference": comparison.difference.value,
        "difference_std_error": comparison.difference.std_error,
        "low": comparison.low,
        "high": comparison.high,
        "ratio": comparison.ratio,
        "ratio_low": comparison.ratio_low,
        "ratio_high": comparison.ratio_high,
        "p_value": comparison.p_value,
        "q_value": comparison.q_value,
        "least_difference": comparison.least_difference,
    }
    return {
        comparison.kind: Column(str, list(comparison.names)),
        **{name: Column(float, values) for name, values in numbers.items()},
        "differs": Column(bool, comparison.differs.tolist()),
    }


def _table(
    comparison: Comparison[Any], columns: dict[str, Column], order: IntArray, limit: int
) -> Table:
    """Return the surest differences first."""
    rows = order[:limit]
    shown = {name: column.only(rows).values[:] for name, column in columns.items()}
    form, plain, unit = "+.5g", ".5g", ""
    if comparison.kind != _STATISTIC:
        form, plain, unit = "+.3f", ".3%", " (pp)"
        shown |= {name: 100 * np.asarray(shown[name]) for name in ("difference", "low", "high")}
    return table_of(
        "Differences between the groups",
        [(visible(comparison.names[row]),) for row in rows.tolist()],
        {name: values for name, values in shown.items() if name != comparison.kind},
        (
            ("control", f"{{control:{plain}}}"),
            ("treatment", f"{{treatment:{plain}}}"),
            (f"difference{unit}", f"{{difference:{form}}}"),
            (INTERVAL, f"{{low:{form}}} … {{high:{form}}}"),
            ("ratio", "{ratio:.3g} ({ratio_low:.3g} … {ratio_high:.3g})"),
            ("q-value", "{q_value:.2g}"),
        ),
        heads=(comparison.kind,),
        last=(
            Heading("differs", "center"),
            ["yes" if comparison.differs[row] else "" for row in rows.tolist()],
        ),
        n_rows=len(order),
    )


def _headline(comparison: Comparison[Any]) -> str:
    """Return what differs most surely, in a sentence."""
    rows = shown_rows(comparison.names)
    changed = rows[comparison.differs[rows]]
    if not len(changed):
        return "No difference between the groups is seen."
    surest = changed[np.argsort(comparison.p_value[changed], kind="stable")][:_NAMED]
    named = "; ".join(_difference_text(comparison, row) for row in surest.tolist())
    more = len(changed) - len(surest)
    return f"{named}{f'; and {more:,} more rows differ' if more else ''}."


def _difference_text(comparison: Comparison[Any], row: int) -> str:
    """Return a row's difference in words: "dark: 34.1% → 38.0% (3.1 to 4.7 points more)"."""
    names, share = comparison.names, comparison.kind != _STATISTIC
    sides = (float(each.value[row]) for each in (comparison.control, comparison.treatment))
    before, after = (percent(each) if share else f"{each:.4g}" for each in sides)
    scale, unit = (100.0, " points") if share else (1.0, "")
    ends = scale * np.array([comparison.low[row], comparison.high[row]])
    more = comparison.difference.value[row] > 0
    low, high = (f"{each:.2g}" for each in (ends if more else -ends[::-1]))
    name = shortened(visible(names[row]), _IN_HEADLINE)
    name = "" if tuple(names) == BOOLEAN else f"{name}: "
    return f"{name}{before} → {after} ({low} to {high}{unit} {'more' if more else 'less'})"


def _charts(
    comparison: Comparison[Any], labels: tuple[str, str], order: IntArray
) -> tuple[IntervalChart, ...]:
    """Draw the surest differences; a mean and a variance have no unit in common."""
    is_statistic = comparison.kind == _STATISTIC
    rows = order[np.isfinite(comparison.low[order])][: 1 if is_statistic else _ON_CHART]
    if not len(rows):
        return ()
    ends = (comparison.difference.value, comparison.low, comparison.high)
    scale, short, unit = 100.0, " pp", "difference (percentage points)"
    if is_statistic:
        scale, short, unit = 1.0, "", "the metric's unit"
    difference, low, high = (scale * each[rows] for each in ends)
    names = [visible(comparison.names[row]) for row in rows.tolist()]
    described = (
        f"{labels[1]} less {labels[0]}, with {INTERVAL}s of each row by itself: the "
        f"{len(rows):,} surest differences, the surest first."
    )
    words = Labels("differences", "Differences", described, unit)
    return (IntervalChart(words, names, difference, low, high, short, comparison.kind),)
