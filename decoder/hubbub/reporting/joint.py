"""A decoded table as estimates: one row per cell, margins, and what goes together.

Columns that other decodings have, too, have the same names and meanings; before them stands one for
each field, after them a cell's departure from independence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import combinations

import numpy as np

from hubbub.inference import (
    Z_CONFIDENCE,
    AnomalyReport,
    Conditional,
    Independence,
    IntArray,
    JointDecoding,
    Margin,
    TableAnalysis,
)
from hubbub.reporting.charts import Chart, HeatMap, IntervalChart, Labels
from hubbub.reporting.estimates import Column, Computed, Estimates, Section, Table, table_of
from hubbub.reporting.findings import Finding
from hubbub.reporting.text import visible
from hubbub.reporting.wording import (
    Provenance,
    decoded_estimates,
    share_chart,
    share_columns,
    share_table,
    title_of,
)

DEPARTURES = ("expected", "residual", "residual_std_error", "residual_q_value")
"""Of a cell: the product of its margins, its excess over that, and how sure that is."""
_ON_MAP = 20  # rows and columns, the largest: labels stay legible
_MARGINS = 30  # bars, the largest: half a page
_IN_REPORT = 200  # rows, some pages; files of results have them all
_DEPARTURES = 15  # rows on a terminal, below the cells
_REFIT = (
    "Colours and numbers are refit shares: cells drawn towards independence as far as noise "
    "allows, so that the table as a whole is nearest to the truth. Estimates and intervals are "
    "below."
)
_TIMES = (
    "How many times as large a cell is as if the fields were independent, by refit shares: 1 is "
    "what independence would give."
)
_WITHIN = (
    "Shares of all reports, and shares among the clients with one value; departures are those that "
    "are sure at a false discovery rate of {alpha:g}."
)


def joint_estimates(
    decoding: JointDecoding,
    about_reports: Sequence[Finding] = (),
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
    detected_only: bool = False,
    limit: int = 40,
) -> Estimates:
    """Return which values of two or three fields go together.

    One row per cell, the last field's values changing fastest. In the metadata "margins",
    "independence" and "conditional" are null where too little is known for a table.
    """
    table, summary = decoding.table, decoding.summary
    names = " and ".join(visible(each.name) for each in decoding.fields)
    metadata: dict[str, object] = {}
    if decoding.known_rates:
        metadata["known_rates"] = decoding.known_rates._asdict()
    metadata |= dict.fromkeys(("margins", "independence", "conditional"))
    sections = [Section("Cells", tables=(_cells_table(decoding, _IN_REPORT),))]
    departures: tuple[Table, ...] = ()
    if table:
        metadata["margins"] = {each.name: _margin_json(each) for each in table.margins}
        metadata["independence"] = [asdict(each) for each in table.independence]
        metadata["conditional"] = [_conditional_json(table, each) for each in table.conditionals]
        departures = _departures_tables(decoding, table, _DEPARTURES)
        sections = [
            Section("The table", (_REFIT,), charts=_maps(table, diverging=False)),
            Section(
                "What goes together",
                (_TIMES, _WITHIN.format(alpha=summary.alpha)),
                charts=_maps(table, diverging=True),
                tables=_departures_tables(decoding, table, _IN_REPORT),
            ),
            *sections,
            Section("Margins", charts=tuple(_margin_chart(each) for each in table.margins)),
        ]
    return decoded_estimates(
        _headline(decoding),
        sections,
        provenance,
        columns=_columns(decoding, detected_only=detected_only),
        keys=tuple(each.name for each in decoding.fields),
        findings=(*_table_findings(decoding), *about_reports),
        summary=summary,
        anomalies=anomalies,
        metadata=metadata,
        view=(_cells_table(decoding, limit), *departures),
        title=f"{title_of(provenance)}: {names}",
    )


def _columns(decoding: JointDecoding, *, detected_only: bool) -> dict[str, Column]:
    cells = decoding.cells
    rows = np.flatnonzero(cells.detected) if detected_only else np.arange(len(cells.share))
    shares = (cells.share, cells.std_error, cells.low, cells.high)
    tests = {"refit": cells.refit, "p_value": cells.p_value, "q_value": cells.q_value}
    numbers = share_columns(decoding.n_reports, shares) | tests
    departures = [np.full(len(cells.share), np.nan) for _ in DEPARTURES]
    if decoding.table:
        for column, found in zip(departures, decoding.table.residuals, strict=True):
            column[decoding.rows] = found
    return {
        **{
            each.name: Column(str, Computed(partial(_values, decoding, axis), rows))
            for axis, each in enumerate(decoding.fields)
        },
        **{name: Column(float, each[rows]) for name, each in numbers.items()},
        "detected": Column(bool, cells.detected[rows].tolist()),
        **{
            name: Column(float, each[rows])
            for name, each in zip(DEPARTURES, departures, strict=True)
        },
    }


def _table_findings(decoding: JointDecoding) -> tuple[Finding, ...]:
    """Return how strongly fields go together, and which part of the reports the table covers."""
    table = decoding.table
    if table is None:
        text = "not known: too few of their values are known to be there"
        return (Finding("fields", "fields", text),)
    found = [
        Finding("independence", " and ".join(each.fields), _strength(each), each.p_value)
        for each in table.independence
    ]
    parts = [
        f"{len(own.labels):,} of {len(every.labels):,} values of {own.name}"
        for own, every in zip(table.estimates.fields, decoding.fields, strict=True)
        if len(own.labels) < len(every.labels)
    ]
    if parts:
        text = (
            f"{' and '.join(parts)}, about {table.estimates.total:.1%} of the reports; "
            "margins, and shares among clients with one value, are of these"
        )
        found.append(Finding("table_extent", "the table", text, table.estimates.total))
    return tuple(found)


def _values(decoding: JointDecoding, axis: int, rows: IntArray) -> list[str]:
    places = np.unravel_index(rows, tuple(len(each.labels) for each in decoding.fields))[axis]
    return [decoding.fields[axis].labels[i] for i in places.tolist()]


def _margin_json(margin: Margin) -> list[dict[str, object]]:
    low, high = margin.interval
    numbers = zip(
        margin.labels,
        *(each.tolist() for each in (margin.share, margin.std_error, low, high)),
        strict=True,
    )
    names = ("value", "proportion", "prop_std_error", "prop_low", "prop_high")
    return [dict(zip(names, row, strict=True)) for row in numbers]


def _conditional_json(table: TableAnalysis, found: Conditional) -> dict[str, object]:
    given, of = table.estimates.fields[found.given], table.estimates.fields[found.of]
    names = ("given", "value", "proportion", "prop_low", "prop_high")
    cells = [
        dict(zip(names, (given.labels[i], of.labels[j], share, low, high), strict=True))
        for i, rows in enumerate(zip(found.share.tolist(), found.low.tolist(), found.high.tolist(),
                                     strict=True))
        if not math.isnan(rows[0][0])
        for j, (share, low, high) in enumerate(zip(*rows, strict=True))
    ]  # fmt: skip
    return {"given": given.name, "of": of.name, "rows": cells}


def _cells_table(decoding: JointDecoding, limit: int) -> Table:
    cells = decoding.cells
    share = np.nan_to_num(cells.share, nan=-np.inf)
    order = np.lexsort((-share, ~cells.detected))
    rows = order[:limit]
    return share_table(
        "Cells, strongest first",
        tuple(each.name for each in decoding.fields),
        _names(decoding, rows),
        {
            "proportion": cells.share[rows],
            "count": cells.share[rows] * decoding.n_reports,
            "prop_low": cells.low[rows],
            "prop_high": cells.high[rows],
            "refit": cells.refit[rows],
            "q_value": cells.q_value[rows],
        },
        ["yes" if each else "" for each in cells.detected[rows].tolist()],
        (("refit", "{refit:.2%}"), ("q", "{q_value:.1e}")),
        len(order),
    )


def _names(decoding: JointDecoding, rows: IntArray) -> list[tuple[str, ...]]:
    values = (_values(decoding, axis, rows) for axis in range(len(decoding.fields)))
    return [tuple(map(visible, names)) for names in zip(*values, strict=True)]


def _departures_tables(
    decoding: JointDecoding, table: TableAnalysis, limit: int
) -> tuple[Table, ...]:
    """Return the cells that differ most surely from independence; no table if none does."""
    residuals, estimates = table.residuals, table.estimates
    order = _surest_departures(table, decoding.summary.alpha)
    if not len(order):
        return ()
    cells = order[:limit]
    numbers = {
        "share": estimates.unbiased[cells],
        "expected": residuals.expected[cells],
        "points": 100 * residuals.residual[cells],
        "give_or_take": 100 * Z_CONFIDENCE * residuals.std_error[cells],
    }
    shown = [
        ("share", "{share:.2%}"),
        ("if independent", "{expected:.2%}"),
        ("difference, points", "{points:+.2f} ± {give_or_take:.2f}"),
    ]
    if len(decoding.fields) == 2:
        row, column = np.unravel_index(cells, estimates.shape)
        places = ((row, column), (column, row))
        for each, found, place in zip(decoding.fields, table.conditionals, places, strict=True):
            within, low, high = (part[place] for part in (found.share, found.low, found.high))
            key = f"within{len(shown)}"
            numbers |= {key: within, f"{key}_low": 100 * low, f"{key}_high": 100 * high}
            form = f"{{{key}:.1%}} ({{{key}_low:.1f}} … {{{key}_high:.1f}})"
            shown.append((f"among that {each.name}", form))
    departures = table_of(
        "Departures from independence, surest first",
        _names(decoding, decoding.rows[cells]),
        numbers,
        shown,
        heads=tuple(each.name for each in decoding.fields),
        n_rows=len(order),
    )
    return (departures,)


def _surest_departures(table: TableAnalysis, alpha: float) -> IntArray:
    """Return the table's cells that depart from independence at a false discovery rate of alpha."""
    z = np.abs(table.residuals.residual / table.residuals.std_error)
    order = np.argsort(-z, kind="stable")
    return order[table.residuals.q_value[order] <= alpha]


def _strength(found: Independence) -> str:
    """Return whether fields are independent, and how strongly they go together."""
    least = 1 / (found.draws + 1)
    p_value = f"p ≤ {least:.2g}" if found.p_value <= least else f"p = {found.p_value:.2g}"
    text = f"test of independence: {p_value}"
    if math.isnan(found.cramers_v):
        return text
    values = " and ".join(f"{n:,}" for n in found.v_values)
    return (
        f"{text}; Cramér's V is {found.cramers_v:.3f} ({found.v_low:.3f} … {found.v_high:.3f}) of "
        f"{values} values, rare ones together"
    )


def _headline(decoding: JointDecoding) -> str:
    """Return what goes together most surely, in a sentence."""
    summary, table = decoding.summary, decoding.table
    found = f"{summary.detected:,} of {len(decoding.cells.share):,} cells were detected"
    asked = f"In {summary.reports:,} reports {found}"
    if table is None:
        return f"{asked}."
    order = _surest_departures(table, summary.alpha)
    more = order[table.residuals.residual[order] > 0]
    if not len(more):
        return f"{asked}, and none is surely more common than if the fields were independent."
    cell = int(more[0])
    (names,) = _names(decoding, decoding.rows[[cell]])
    fields = [
        f"{visible(each.name)} “{name}”" for each, name in zip(decoding.fields, names, strict=True)
    ]
    share, expected = table.estimates.unbiased[cell], table.residuals.expected[cell]
    if len(names) == 2:
        row, column = np.unravel_index(cell, table.estimates.shape)
        own, all_of_them = table.conditionals[0], table.margins[1].share[column]
        if not math.isnan(own.share[row, column]):
            low, high = own.low[row, column], own.high[row, column]
            return (
                f"{asked}. Of those with {fields[0]}, {own.share[row, column]:.1%} ({low:.1%} … "
                f"{high:.1%}) have {fields[1]}, which {all_of_them:.1%} of all have."
            )
    return (
        f"{asked}. {' and '.join(fields)} come together in {share:.2%} of the reports, where "
        f"independent fields would in {expected:.2%}."
    )


def _maps(table: TableAnalysis, *, diverging: bool) -> tuple[Chart, ...]:
    pairs = combinations(range(len(table.estimates.shape)), 2)
    return tuple(_map(table, *pair, diverging=diverging) for pair in pairs)


def _map(table: TableAnalysis, first: int, second: int, *, diverging: bool) -> HeatMap:
    fields, shape = table.estimates.fields, table.estimates.shape
    others = tuple(axis for axis in range(len(shape)) if axis not in {first, second})
    cells = table.refit.reshape(shape).sum(axis=others)
    rows, columns = cells.sum(axis=1), cells.sum(axis=0)
    chosen = [np.argsort(-margin, kind="stable")[:_ON_MAP] for margin in (rows, columns)]
    if diverging:
        expected = np.outer(rows, columns) / max(float(cells.sum()), np.finfo(float).tiny)
        cells = np.divide(cells, expected, out=np.full(cells.shape, np.nan), where=expected > 0)
    values = cells[np.ix_(*chosen)]
    on_rows, on_columns = (
        tuple(visible(fields[axis].labels[i]) for i in own.tolist())
        for axis, own in zip((first, second), chosen, strict=True)
    )
    x, y = fields[second].name, fields[first].name
    title = f"{y} by {x}, times what independence gives" if diverging else f"{y} by {x}"
    described = (
        f"{len(on_rows)} of {shape[first]:,} values of {y} and {len(on_columns)} of "
        f"{shape[second]:,} of {x}, the commonest."
    )
    name = f"{'ratio' if diverging else 'share'}-{first}-{second}"
    labels = Labels(name, title, described, x, y)
    if diverging:
        return HeatMap(labels, on_rows, on_columns, values, diverging=True, unit="")
    return HeatMap(labels, on_rows, on_columns, 100 * values)


def _margin_chart(margin: Margin) -> IntervalChart:
    shown = np.argsort(-margin.share, kind="stable")[:_MARGINS]
    return share_chart(
        f"margin-{margin.name}",
        margin.name,
        "share of all",
        [visible(margin.labels[i]) for i in shown.tolist()],
        [each[shown] for each in (margin.share, *margin.interval)],
        len(margin.labels),
        margin.name,
    )
