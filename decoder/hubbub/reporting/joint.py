"""A decoded table as a result: a row a cell, margins, and what goes together.

Columns that other decodings have, too, have the same names and meanings; before them comes one a
field, after them what is said of a cell's departure from independence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.joint.analysis import Margin, TableAnalysis
from hubbub.inference.joint.decoding import JointDecoding
from hubbub.inference.joint.independence import Independence
from hubbub.inference.joint.table import Conditional
from hubbub.inference.testing.intervals import CONFIDENCE
from hubbub.reporting.charts import Chart, HeatMap, IntervalChart, Labels, in_percent
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
)
from hubbub.reporting.text import visible
from hubbub.reporting.wording import (
    SHARE_COLUMNS,
    DecodedResult,
    privacy_section,
    provenance_section,
    warnings_of,
)

TESTS = ("refit", "p_value", "q_value")
DEPARTURES = ("expected", "residual", "residual_std_error", "residual_q_value")
"""Of a cell: the product of its margins, by how much it is larger, and how sure that is."""
_INTERVAL = f"{CONFIDENCE:.0%} interval"
_CHUNK = 16_384
_ON_MAP = 20
_MARGINS = 30
_IN_REPORT = 200
_DEPARTURES = 15
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


@dataclass(frozen=True, slots=True, repr=False)
class JointResult(DecodedResult[JointDecoding]):
    """Which values of two or three fields go together.

    Attributes
    ----------
    facts : mapping of str to str
        The summary's lines about the reports, by what they are about.
    """

    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def types(self) -> Types:
        """The columns: one a field, the usual ones, and a cell's departure."""
        fields = dict.fromkeys((each.name for each in self.decoding.fields), str)
        numbers = dict.fromkeys((*SHARE_COLUMNS, *TESTS), float)
        return {**fields, **numbers, "detected": bool, **dict.fromkeys(DEPARTURES, float)}

    def parts(self) -> Iterator[Columns]:
        """Yield the cells, the last field's values changing fastest."""
        decoding, cells = self.decoding, self.decoding.cells
        chosen = np.arange(len(cells.share))
        if self.detected_only:
            chosen = np.flatnonzero(cells.detected)
        departures = _departures(decoding)
        shares = (cells.share, cells.std_error, cells.low, cells.high)
        for start in range(0, len(chosen), _CHUNK):
            rows = chosen[start : start + _CHUNK]
            columns = [
                *_values(decoding, rows),
                *(numbers[rows] * decoding.n_reports for numbers in shares),
                *(numbers[rows] for numbers in (*shares, cells.refit)),
                *(numbers[rows] for numbers in (cells.p_value, cells.q_value)),
                cells.detected[rows].tolist(),
                *(numbers[rows] for numbers in departures),
            ]
            yield dict(zip(self.types, columns, strict=True))

    def document(self) -> Mapping[str, object]:
        """Return "summary", "scrutiny", "provenance", "rows", and what the table says.

        "margins", "independence" and "conditional" are null where too little is known for a table;
        "known_rates" is that of cells with a bit each.
        """
        decoding, table = self.decoding, self.decoding.table
        document = self.document_head(decoding.summary)
        if decoding.known_rates:
            document["known_rates"] = decoding.known_rates._asdict()
        said: dict[str, object] = dict.fromkeys(("margins", "independence", "conditional"))
        if table:
            said["margins"] = {each.name: _margin_json(each) for each in table.margins}
            said["independence"] = [asdict(each) for each in table.independence]
            said["conditional"] = [_conditional_json(table, each) for each in table.conditionals]
        return {**document, **said, "rows": ROWS}

    def blocks(self) -> Iterator[Block]:
        """Yield the strongest cells, the surest departures from independence, and the summary."""
        yield _cells_table(self.decoding, self.limit)
        yield Line("")
        if self.decoding.table:
            yield _departures_table(self.decoding, self.decoding.table, _DEPARTURES)
            yield Line("")
        yield self._lines()

    @property
    def suspicious(self) -> bool:
        """Whether single reports look forged, or bits of known rate have another one."""
        rates = self.decoding.known_rates
        found = bool(self.anomalies and self.anomalies.suspicious)
        return found or bool(rates and rates.suspicious)

    def report(self) -> Report:
        """Return the table as a map, what goes together, margins, and where it comes from."""
        decoding, table, facts = self.decoding, self.decoding.table, self._lines()
        sections = [Section("Cells", tables=(_cells_table(decoding, _IN_REPORT),))]
        if table:
            within = _WITHIN.format(alpha=decoding.summary.alpha)
            sections = [
                Section("The table", (_REFIT,), charts=_share_maps(table)),
                Section(
                    "What goes together",
                    (_TIMES, within),
                    charts=_ratio_maps(table),
                    tables=(_departures_table(decoding, table, _IN_REPORT),),
                ),
                *sections,
                Section("Margins", charts=tuple(_margin_chart(each) for each in table.margins)),
            ]
        summary = decoding.summary
        sections += [
            Section("Summary", facts=facts),
            privacy_section(summary.epsilon_report, summary.epsilon_permanent),
            provenance_section(self.provenance),
        ]
        names = " and ".join(visible(each.name) for each in decoding.fields)
        title = f"What the reports{self.of_metric} say of {names}"
        return Report(title, _headline(decoding), sections, warnings_of(facts))

    def _lines(self) -> dict[str, str]:
        """Return the summary's lines, with those about the fields."""
        table, lines = self.decoding.table, {}
        if table is None:
            lines["fields"] = "not assessable: too few of their values are known to be there"
        else:
            lines = {" and ".join(each.fields): _strength(each) for each in table.independence}
            lines |= _extent(self.decoding, table)
        return {**lines, **self.facts}


def _values(decoding: JointDecoding, rows: IntArray) -> list[list[str]]:
    """Return each field's values of some cells."""
    shape = tuple(len(each.labels) for each in decoding.fields)
    places = np.unravel_index(rows, shape)
    return [
        [each.labels[i] for i in own.tolist()]
        for each, own in zip(decoding.fields, places, strict=True)
    ]


def _departures(decoding: JointDecoding) -> list[FloatArray]:
    """Return the columns `DEPARTURES`, each of shape (n,); nan outside of the table."""
    found = [np.full(len(decoding.cells.share), np.nan) for _ in DEPARTURES]
    if decoding.table:
        for column, numbers in zip(found, decoding.table.residuals, strict=True):
            column[decoding.rows] = numbers
    return found


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
    cells, n_reports = decoding.cells, decoding.n_reports
    share = np.nan_to_num(cells.share, nan=-np.inf)
    order = np.lexsort((-share, ~cells.detected))
    shown = order[:limit]
    rows = [
        (
            *map(visible, names),
            f"{cells.share[i] * n_reports:,.0f}",
            f"{cells.low[i] * n_reports:,.0f} … {cells.high[i] * n_reports:,.0f}",
            f"{cells.share[i]:.3%}",
            f"{cells.refit[i]:.3%}",
            f"{cells.q_value[i]:.1e}",
            "yes" if cells.detected[i] else "",
        )
        for i, *names in zip(shown.tolist(), *_values(decoding, shown), strict=True)
    ]
    heads = _field_heads(decoding)
    heads += tuple(map(Heading, ("count", _INTERVAL, "share", "refit", "q")))
    styles = tuple("" if cells.detected[i] else "dim" for i in shown.tolist())
    left_out = f"{len(order) - len(shown):,}" if len(order) > len(shown) else ""
    title = "Cells, strongest first"
    return Table(title, (*heads, Heading("detected", "center")), tuple(rows), left_out, styles)


def _field_heads(decoding: JointDecoding) -> tuple[Heading, ...]:
    return tuple(Heading(each.name, "left") for each in decoding.fields)


def _departures_table(decoding: JointDecoding, table: TableAnalysis, limit: int) -> Table:
    """Return the cells that differ most surely from independence, and what is said of them."""
    residuals, estimates = table.residuals, table.estimates
    order = surest_departures(table, decoding.summary.alpha)
    rows = []
    for i, *names in zip(
        order[:limit].tolist(), *_values(decoding, decoding.rows[order[:limit]]), strict=True
    ):
        error = residuals.std_error[i]
        rows.append(
            (
                *map(visible, names),
                f"{estimates.unbiased[i]:.3%}",
                f"{residuals.expected[i]:.3%}",
                f"{100 * residuals.residual[i]:+.3f} ± {196 * error:.3f}",
                *_within(table, i),
                f"{residuals.q_value[i]:.1e}",
            )
        )
    heads = _field_heads(decoding)
    heads += tuple(map(Heading, ("share", "if independent", "difference, points")))
    if len(decoding.fields) == 2:
        heads += tuple(Heading(f"among that {each.name}") for each in decoding.fields)
    left_out = f"{len(order) - limit:,}" if len(order) > limit else ""
    title = "Departures from independence, surest first"
    return Table(title, (*heads, Heading("q")), tuple(rows), left_out)


def surest_departures(table: TableAnalysis, alpha: float) -> IntArray:
    """Return the table's cells that depart from independence at a false discovery rate of alpha."""
    z = np.abs(table.residuals.residual / table.residuals.std_error)
    order = np.argsort(-z, kind="stable")
    return order[table.residuals.q_value[order] <= alpha]


def _within(table: TableAnalysis, cell: int) -> Iterator[str]:
    """Yield the cell's share of its row, and of its column; nothing of three fields."""
    if len(table.estimates.shape) > 2:
        return
    row, column = np.unravel_index(cell, table.estimates.shape)
    for found, place in zip(table.conditionals, ((row, column), (column, row)), strict=True):
        share, low, high = found.share[place], found.low[place], found.high[place]
        yield "" if math.isnan(share) else f"{share:.1%} ({100 * low:.1f} … {100 * high:.1f})"


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


def _extent(decoding: JointDecoding, table: TableAnalysis) -> dict[str, str]:
    """Return how much of the reports the table is of, unless that is all."""
    pairs = zip(table.estimates.fields, decoding.fields, strict=True)
    parts = [
        f"{len(own.labels):,} of {len(every.labels):,} values of {own.name}"
        for own, every in pairs
        if len(own.labels) < len(every.labels)
    ]
    if not parts:
        return {}
    return {
        "the table": f"{' and '.join(parts)}, about {table.estimates.total:.1%} of the reports; "
        "margins, and shares among clients with one value, are of these"
    }


def _headline(decoding: JointDecoding) -> str:
    """Return what goes together most surely, in a sentence."""
    summary, table = decoding.summary, decoding.table
    found = f"{summary.detected:,} of {len(decoding.cells.share):,} cells were detected"
    asked = f"In {summary.reports:,} reports {found}"
    if table is None:
        return f"{asked}."
    order = surest_departures(table, summary.alpha)
    more = order[table.residuals.residual[order] > 0]
    if not len(more):
        return f"{asked}, and none is surely more common than if the fields were independent."
    cell = int(more[0])
    names = [own[0] for own in _values(decoding, decoding.rows[[cell]])]
    fields = [
        f"{visible(each.name)} “{visible(name)}”"
        for each, name in zip(decoding.fields, names, strict=True)
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


def _share_maps(table: TableAnalysis) -> tuple[Chart, ...]:
    """Draw the shares of each two fields, of the commonest values."""
    return tuple(_map(table, first, second, diverging=False) for first, second in _pairs(table))


def _ratio_maps(table: TableAnalysis) -> tuple[Chart, ...]:
    """Draw how many times as large cells are as if fields were independent."""
    return tuple(_map(table, first, second, diverging=True) for first, second in _pairs(table))


def _pairs(table: TableAnalysis) -> list[tuple[int, int]]:
    n = len(table.estimates.shape)
    return [(first, second) for first in range(n) for second in range(first + 1, n)]


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
    margins = (100 * rows[chosen[0]], 100 * columns[chosen[1]])
    return HeatMap(labels, on_rows, on_columns, 100 * values, *margins)


def _margin_chart(margin: Margin) -> IntervalChart:
    shown = np.argsort(-margin.share, kind="stable")[:_MARGINS]
    names = [visible(margin.labels[i]) for i in shown.tolist()]
    low, high = margin.interval
    intervals = in_percent(names, margin.share[shown], low[shown], high[shown])
    described = (
        f"{len(shown)} of {len(margin.labels):,} values of {margin.name}, the commonest, with "
        f"{CONFIDENCE:.0%} intervals."
    )
    labels = Labels(f"margin-{margin.name}", margin.name, described, "share of the reports")
    return IntervalChart(labels, intervals)
