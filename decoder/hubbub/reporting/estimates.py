"""Estimates: the one form of what a decoder, a plan, a release or an experiment found out.

Rows in typed columns, findings about them, and people's view as data: tables, lines, sections,
pages and charts, which formats (`hubbub.reporting.writers`) print without knowing what they are
about. Columns may be computed when they are read, so that a million rows need neither a million
objects nor one huge string. Invariant: the same estimates give the same bytes in every format.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from markupsafe import Markup

from hubbub.inference import FloatArray, IntArray
from hubbub.reporting.charts import Chart
from hubbub.reporting.findings import Finding, Level

Types = Mapping[str, type]
"""A column's type by its name, in order: str, float, int or bool."""
Values = Sequence[Any] | FloatArray
Columns = Mapping[str, Values]
"""Some rows, column by column; nan where the data don't determine them."""

ROWS: Final = object()
"""Stands in a document where the rows do."""


class Heading(NamedTuple):
    """The head of a table's column; `align` is "left", "right" or "center"."""

    text: str
    align: Literal["left", "right", "center"] = "right"


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people, whose first column names the row."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: str = ""  # how many rows aren't shown; empty if none
    # A style a row for terminals ("dim", "bold" or ""); empty if all are plain.
    styles: tuple[str, ...] = ()

    @property
    def header(self) -> tuple[str, ...]:
        """The headings' texts."""
        return tuple(heading.text for heading in self.headings)


@dataclass(frozen=True, slots=True)
class Line:
    """A text of its own; `wraps` at the edge of the terminal, or goes on beyond it."""

    text: str
    wraps: bool = True


Block = Table | Line | Mapping[str, str]
"""A block that a terminal shows; a mapping is labels and their texts."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report below one heading; whatever is empty is left out."""

    title: str
    paragraphs: tuple[str, ...] = ()
    facts: Mapping[str, str] | None = None  # labels and their texts
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()  # what must not be overlooked
    # Texts and the files that they lead to, as seen from the page.
    links: Mapping[str, str] | None = None
    folded: bool = False  # whether it is shown only to those who open "For statisticians"


@dataclass(frozen=True, slots=True)
class Page:
    """A result as a page."""

    title: str
    headline: str  # what was found, in a sentence or two
    sections: Sequence[Section]  # those that are folded come last
    warnings: Sequence[str] = ()  # what must not be overlooked
    # Texts and the files that they lead to, as seen from the page.
    links: Mapping[str, str] | None = None
    tiles: bool = False  # whether sections stand side by side where there is room
    about: str = ""  # what was asked, and of which days
    all_rows: str = ""  # the file next to the page with rows that it leaves out

    @property
    def picture(self) -> tuple[Chart, ...]:
        """The charts of the first section that has any."""
        return next((each.charts for each in self.sections if each.charts), ())


def headings(first: str, *others: str) -> tuple[Heading, ...]:
    """Return the usual headings: names on the left, numbers on the right."""
    return (Heading(first, "left"), *map(Heading, others))


CHUNK: Final = 16_384
"""Rows that are in memory at once while a format writes them: some megabytes of text."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A column's values, computed when they are read."""

    compute: Callable[[IntArray], Values]  # takes rows and returns their values
    rows: IntArray  # int64, shape (n,): which rows there are

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Values:
        return self.compute(self.rows[part])


class Column(NamedTuple):
    """A column's type (str, float, int or bool) and its values; nan where data are too few."""

    type: type
    values: Values | Computed

    def only(self, rows: IntArray) -> Column:
        """Return some rows of a column that isn't computed."""
        values = self.values[:]
        if isinstance(values, np.ndarray):
            return self._replace(values=values[rows])
        return self._replace(values=[values[row] for row in rows.tolist()])


@dataclass(frozen=True, slots=True)
class Drawing:
    """Charts, one below the other; a notebook shows them."""

    charts: Sequence[Chart]  # as data; their `header` and `rows` are the numbers

    def __repr__(self) -> str:
        """Return what screen readers read."""
        return " ".join(
            f"{chart.labels.title}: {chart.labels.description}" for chart in self.charts
        )

    def _repr_html_(self) -> str:
        data = b64encode(self.svg.encode("utf-8")).decode("ascii")
        return Markup('<img alt="{}" style="max-width: 100%" src="{}">').format(
            repr(self), f"data:image/svg+xml;base64,{data}"
        )

    @property
    def svg(self) -> str:
        """The drawing as SVG, in colours for light and for dark pages."""
        return str(_format("html").svg_of(self.charts).decode("utf-8"))

    def save(self, path: str | Path) -> None:
        """Write the drawing to FILE.svg or FILE.png.

        Raises `ValueError` if the name ends in something else. Raises `OSError` if it can't be
        written.
        """
        if Path(path).suffix not in {".svg", ".png"}:
            raise ValueError(f"{path}: must end in .svg or .png")
        _format("writers").write_files(Estimates(charts=tuple(self.charts)), [str(path)])


@dataclass(frozen=True, slots=True, repr=False)
class Estimates:
    """Estimates with their errors and findings.

    Attributes
    ----------
    columns : mapping of str to Column
        Columns of one length by their names, in order. Those of all decodings: "count" and
        "proportion" with their standard errors and the ends of their 95% intervals, "p_value",
        "q_value" and "detected".
    keys : tuple of str
        Which columns name a row.
    findings : tuple of Finding
        Findings about the rows, in the order in which people read them.
    metadata : mapping of str to object
        What else programs need, as JSON has it: summary, provenance, parameters.
    view : tuple of Block
        What a terminal shows.
    page : Page, optional
        The same for people who have time; None: it has no page.
    charts : tuple of Chart
        The picture, from the top down; empty: there is none.

    Examples
    --------
    >>> from hubbub.decoder.pipeline import decode_metric
    >>> found = decode_metric("theme", metrics="metrics.toml", store="sqlite:///hubbub.db")
    >>> found.keys, len(found), list(found["detected"])
    (('category',), 3, [True, True, True])
    >>> found.findings[0].labelled
    'reports: 140,000'
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    view: tuple[Block, ...] = ()
    page: Page | None = None
    charts: tuple[Chart, ...] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())).values) if self.columns else 0

    def __getitem__(self, column: str) -> Values:
        """Return a column's values: an array, or a list of texts or truth values.

        Raises
        ------
        KeyError
            If there is no such column.
        """
        return self.columns[column].values[:]

    @property
    def types(self) -> Types:
        """The columns' types by their names."""
        return {name: column.type for name, column in self.columns.items()}

    def parts(self) -> Iterator[Columns]:
        """Yield the rows, some at a time."""
        for start in range(0, len(self), CHUNK):
            part = slice(start, start + CHUNK)
            yield {name: column.values[part] for name, column in self.columns.items()}

    def document(self) -> Mapping[str, object]:
        """Return the metadata, "findings" if there are any and, in the rows' place, `ROWS`."""
        findings = [each.as_json() for each in self.findings]
        said = {"findings": findings} if findings else {}
        return {**self.metadata, **said, **({"rows": ROWS} if self.columns else {})}

    def warned(self, findings: Sequence[Finding]) -> Estimates:
        """Return the estimates with more findings, which the page warns of."""
        if not findings:
            return self
        page = self.page
        if page is not None:
            page = replace(page, warnings=(*page.warnings, *warnings_in(findings)))
        return replace(self, findings=(*self.findings, *findings), page=page)

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return str(_format("html").as_text(self))

    def _repr_html_(self) -> str:
        return str(_format("html").as_html(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream by the Arrow PyCapsule interface.

        So `pyarrow.table`, `polars.DataFrame` and `pandas.DataFrame.from_arrow` take a result.
        What else the document holds is in the schema's metadata, as in Parquet.
        """
        batches = _format("writers").arrow_batches(self)
        capsule: object = batches.__arrow_c_stream__(requested_schema)
        return capsule

    def plot(self) -> Drawing:
        """Draw the picture, as notebooks show it."""
        return Drawing(self.picture())

    @property
    def suspicious(self) -> bool:
        """Whether reports don't look honest, which rows alone don't show."""
        return any(each.level is Level.ALARM for each in self.findings)

    def report(self) -> Page:
        """Return the page (raises NotImplementedError if there is none)."""
        if self.page is None:
            raise NotImplementedError("these estimates have no page")
        return self.page

    def picture(self) -> tuple[Chart, ...]:
        """Return the charts of a picture (raises NotImplementedError if there is none)."""
        if not self.charts:
            raise NotImplementedError("these estimates have no picture")
        return self.charts


def _format(name: str) -> Any:
    return import_module(f"hubbub.reporting.{name}")


def as_facts(findings: Sequence[Finding]) -> Mapping[str, str]:
    """Return findings with labels as labels and texts."""
    return {each.label: each.shown for each in findings if each.label}


def as_lines(findings: Sequence[Finding], *, wraps: bool = False) -> tuple[Line, ...]:
    """Return findings without labels as lines."""
    return tuple(Line(each.text, wraps) for each in findings if not each.label)


def warnings_in(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what must not be overlooked, in words."""
    return tuple(
        f"{each.label}{'' if each.label.endswith('?') else ':'} {each.shown}"
        for each in findings
        if each.level > Level.FACT
    )


def table_of(
    title: str,
    names: Sequence[tuple[str, ...]],
    columns: Mapping[str, Values],
    shown: Sequence[tuple[str, str]],
    *,
    heads: Sequence[str],
    last: tuple[Heading, Sequence[str]] | None = None,
    n_rows: int | None = None,
) -> Table:
    """Return a table for people: names on the left, numbers in their formats on the right.

    `shown`: a heading, and the format of its cells, which names `columns` as `str.format` does:
    "{prop_low:.2%} … {prop_high:.2%}"; a cell is empty where its first number is nan. `last`: a
    column that is no number, such as "detected". `n_rows`: how many rows there are in all.
    """
    values = {
        name: column.tolist() if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }
    first = [form[form.index("{") + 1 :].split(":")[0].split("}")[0] for _, form in shown]
    rows = []
    for place, name in enumerate(names):
        row = {key: column[place] for key, column in values.items()}
        cells = (
            "" if row[key] != row[key] else form.format_map(row)
            for key, (_, form) in zip(first, shown, strict=True)
        )
        rows.append((*name, *cells, *([last[1][place]] if last else [])))
    headings = [Heading(each, "left") for each in heads] + [Heading(each) for each, _ in shown]
    missing = (n_rows or 0) - len(rows)
    return Table(
        title,
        (*headings, *([last[0]] if last else [])),
        tuple(rows),
        f"{missing:,}" if missing > 0 else "",
    )
