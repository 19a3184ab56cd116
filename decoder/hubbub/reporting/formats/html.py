"""Results as HTML: a self-contained page, or what a notebook shows below a cell.

A page needs nothing from anywhere else and no script. Everything but our own SVG is escaped by the
template engine; strings that clients may have sent come through `hubbub.reporting.text.visible` as
well, so that no control or invisible character reaches the page. A notebook shows what a terminal
does, so never more rows than that; a drawing is an image that holds its own styles, so that neither
the page's touch it nor the other way round.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from markupsafe import Markup

from hubbub.reporting.blocks import Block, Line, Table
from hubbub.reporting.charts import Chart
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.drawings import draw
from hubbub.reporting.formats.picture import svg_of, write_picture
from hubbub.reporting.formats.terminal import plain_console, show
from hubbub.reporting.text import shortened

if TYPE_CHECKING:
    import jinja2

_COLUMNS = 60
"""Of a string that names a row or a chart; those of a longer one are in its `title`."""
_TEXT_WIDTH = 120  # columns that a notebook shows without wrapping
_REST = "tables made of the result hold them all"


def write_html(result: Estimates, file: BinaryIO) -> None:
    """Write a result's report as one page."""
    report = result.report()
    page = environment().get_template("page.html")
    parts = page.generate(report=report, draw=draw)
    file.writelines(part.encode("utf-8") for part in parts)


@cache
def environment() -> jinja2.Environment:
    """Return the templates, which escape whatever they are given."""
    import jinja2  # noqa: PLC0415 - most results are never a page

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("hubbub.reporting.formats"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["shortened"] = partial(shortened, most=_COLUMNS)
    return templates


def as_html(result: Estimates) -> str:
    """Return a result's tables and facts."""
    return (
        environment()
        .get_template("notebook.html")
        .render(parts=_parts(result.blocks()), rest=_REST)
    )


def _parts(blocks: Iterable[Block]) -> Iterable[tuple[str, Block]]:
    for block in blocks:
        if isinstance(block, Table):
            yield "table", block
        elif not isinstance(block, Line):
            yield "facts", block
        elif block.text.strip():
            yield "line", block


def as_text(result: Estimates) -> str:
    """Return what a terminal would show."""
    file = io.StringIO()
    show(result.blocks(), plain_console(_TEXT_WIDTH, file), _REST)
    return file.getvalue().rstrip()


@dataclass(frozen=True, slots=True)
class Drawing:
    """Charts, one below the other; a notebook shows them.

    Attributes
    ----------
    charts : sequence of Chart
        As data; their `header` and `rows` are the numbers.
    """

    charts: Sequence[Chart]

    def __repr__(self) -> str:
        """Return what screen readers read."""
        return " ".join(
            f"{chart.labels.title}: {chart.labels.description}" for chart in self.charts
        )

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg.encode("utf-8")).decode("ascii")
        return Markup('<img alt="{}" style="width: 100%; max-width: 45rem" src="{}">').format(
            repr(self), f"data:image/svg+xml;base64,{data}"
        )

    @property
    def svg(self) -> str:
        """The drawing as SVG, in colours for light and for dark pages."""
        return svg_of(self.charts).decode("utf-8")

    def save(self, path: str | Path) -> None:
        """Write the drawing to FILE.svg or FILE.png; PNG needs matplotlib.

        Raises
        ------
        ValueError
            If the name ends in something else.
        OSError, PlanError
            If it can't be written, or matplotlib isn't installed.
        """
        if Path(path).suffix not in {".svg", ".png"}:
            raise ValueError(f"{path}: must end in .svg or .png")
        write_picture(Path(path), self.charts)
