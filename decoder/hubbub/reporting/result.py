"""A result: what a command found out, as data that any format can write.

Rows have typed columns and come in parts, so that a million of them need neither a million objects
nor one huge string. Besides them a result has a document for programs, blocks for a terminal, and
for people a report or a picture. Formats (`hubbub.reporting.formats`) write these; they don't know
what the result is about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from hubbub.inference.arrays import FloatArray
from hubbub.reporting.charts import Chart

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
    """A table for people, whose first column names the row.

    Attributes
    ----------
    left_out : str
        How many rows aren't shown; empty if none.
    styles : tuple of str
        A style a row for terminals ("dim", "bold", "italic" or ""); empty if all are plain.
    """

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: str = ""
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
"""What a terminal shows below each other; a mapping is labels and their texts."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report below one heading; whatever is empty is left out.

    Attributes
    ----------
    facts : mapping of str to str
        Labels and their texts.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    facts: Mapping[str, str] | None = None
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A result as a page.

    Attributes
    ----------
    headline : str
        What was found, in a sentence or two.
    warnings : sequence of str
        What must not be overlooked.
    """

    title: str
    headline: str
    sections: Sequence[Section]
    warnings: Sequence[str] = ()

    @property
    def charts(self) -> tuple[Chart, ...]:
        """All charts, from the top down."""
        return tuple(chart for section in self.sections for chart in section.charts)


class Drawing(Protocol):
    """Charts that a notebook shows (`hubbub.reporting.formats.notebook.Drawing`)."""

    @property
    def charts(self) -> Sequence[Chart]:
        """As data; their `header` and `rows` are the numbers."""

    @property
    def svg(self) -> str:
        """The drawing as SVG."""

    def save(self, path: str | Path) -> None:
        """Write the drawing to FILE.svg or FILE.png."""

    def _repr_html_(self) -> str: ...


class Result(ABC):
    """What a command found out.

    Invariant: the same result gives the same bytes in every format.
    """

    __slots__ = ()

    @property
    def types(self) -> Types:
        """The columns of the rows; none if it has no rows."""
        return {}

    def parts(self) -> Iterable[Columns]:
        """Return the rows, some at a time."""
        return ()

    @abstractmethod
    def document(self) -> Mapping[str, object]:
        """Return everything as JSON has it, with `ROWS` in the rows' place, if they have one."""

    @abstractmethod
    def blocks(self) -> Iterable[Block]:
        """Return what a terminal shows."""

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return str(_format("notebook").as_text(self))

    def _repr_html_(self) -> str:
        """Return what Jupyter shows."""
        return str(_format("notebook").as_html(self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream by the Arrow PyCapsule interface.

        So `pyarrow.table`, `polars.DataFrame` and `pandas.DataFrame.from_arrow` take a result.
        What else the document holds is in the schema's metadata, as in Parquet.
        """
        batches = _format("data_files").arrow_batches(self)
        capsule: object = batches.__arrow_c_stream__(requested_schema)
        return capsule

    def plot(self) -> Drawing:
        """Draw the picture, as notebooks show it."""
        drawing: Drawing = _format("notebook").Drawing(self.picture())
        return drawing

    @property
    def suspicious(self) -> bool:
        """Whether reports don't look honest, which rows alone don't show."""
        return False

    def report(self) -> Report:
        """Return the page."""
        raise NotImplementedError(f"{type(self).__name__} has no report")

    def picture(self) -> tuple[Chart, ...]:
        """Return the charts of a picture, from the top down."""
        raise NotImplementedError(f"{type(self).__name__} has no picture")


def _format(name: str) -> Any:
    """Return a module of `hubbub.reporting.formats`: formats know results, not results formats."""
    return import_module(f"hubbub.reporting.formats.{name}")


def columns_of(types: Types, rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Return rows as columns."""
    return {name: [row[name] for row in rows] for name in types}


def headings(first: str, *others: str) -> tuple[Heading, ...]:
    """Return the usual headings: names on the left, numbers on the right."""
    return (Heading(first, "left"), *map(Heading, others))
