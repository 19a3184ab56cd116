"""What people see of estimates, as data: tables, lines, sections and pages.

Formats (`hubbub.reporting.formats`) print these without knowing what they are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

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
    """A table for people, whose first column names the row."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: str = ""  # how many rows aren't shown; empty if none
    # A style a row for terminals ("dim", "bold", "italic" or ""); empty if all are plain.
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
    """A part of a report below one heading; whatever is empty is left out."""

    title: str
    paragraphs: tuple[str, ...] = ()
    facts: Mapping[str, str] | None = None  # labels and their texts
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()  # what must not be overlooked
    # Texts and the files that they lead to, as seen from the page.
    links: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A result as a page."""

    title: str
    headline: str  # what was found, in a sentence or two
    sections: Sequence[Section]
    warnings: Sequence[str] = ()  # what must not be overlooked
    # Texts and the files that they lead to, as seen from the page.
    links: Mapping[str, str] | None = None
    tiles: bool = False  # whether sections stand beside each other where there is room

    @property
    def charts(self) -> tuple[Chart, ...]:
        """All charts, from the top down."""
        return tuple(chart for section in self.sections for chart in section.charts)


def headings(first: str, *others: str) -> tuple[Heading, ...]:
    """Return the usual headings: names on the left, numbers on the right."""
    return (Heading(first, "left"), *map(Heading, others))
