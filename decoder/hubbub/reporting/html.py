"""Results as pages, notebook cells and pictures.

A page needs nothing from anywhere else and no script. Everything but our own SVG is escaped by the
template engine; strings that clients may have sent come through `hubbub.reporting.text.visible` as
well, so that no control or invisible character reaches the page. A notebook shows what a terminal
does, so never more rows than that; a drawing is an image that holds its own styles: SVG those for
light, dark and print, PNG those for light.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, BinaryIO

import vl_convert
from markupsafe import Markup

from hubbub.reporting.charts import Chart
from hubbub.reporting.drawings import WIDTH, draw
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.text import plain_console, shortened, show

if TYPE_CHECKING:
    import jinja2

_COLUMNS = 60
"""Columns of a string that names a row or a chart; longer ones are in its `title`."""
_TEXT_WIDTH = 120  # columns that a notebook shows without wrapping
_TITLE, _COLUMNS_OF_TITLE = 34.0, 50
_TITLED = Markup(
    '<text x="8" y="{:g}" fill="var(--ink)" font-family="Arial, Helvetica, sans-serif" '
    'font-size="15" font-weight="bold">{}</text>\n'
)
_DOCUMENT = Markup(
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:g} {1:g}" width="{0:g}" '
    'height="{1:g}">\n<style>{2}</style>\n<rect width="100%" height="100%" fill="var(--paper)"/>\n'
    "{3}\n</svg>\n"
)
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
        loader=jinja2.PackageLoader("hubbub.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["shortened"] = partial(shortened, most=_COLUMNS)
    return templates


def write_svg(result: Estimates, file: BinaryIO) -> None:
    """Draw a result's picture as SVG."""
    file.write(svg_of(result.picture()))


def svg_of(charts: Sequence[Chart]) -> bytes:
    """Return charts as one SVG document, one below the other, each below its title."""
    width, bottom, parts = WIDTH, 0.0, []
    for chart in charts:
        svg = draw(chart).replace("<svg", Markup('<svg y="{:g}"').format(bottom + _TITLE), 1)
        wide, high = re.findall(r"[\d.]+", svg.partition(" viewBox=")[2])[2:4]
        title = shortened(chart.labels.title, _COLUMNS_OF_TITLE)
        parts.append(_TITLED.format(bottom + _TITLE - 10, title) + svg)
        width, bottom = max(width, float(wide)), bottom + _TITLE + float(high)
    style = Markup(_palette() + "svg { background: var(--paper); }")  # noqa: S704 - ours
    return _DOCUMENT.format(width, bottom, style, Markup("\n").join(parts)).encode("utf-8")


def write_png(result: Estimates, file: BinaryIO) -> None:
    """Draw a result's picture as `svg_of`, but as PNG in the colours for light pages."""
    svg = svg_of(result.picture()).decode("utf-8")
    svg = re.sub("<style>.*?</style>", "", svg, flags=re.DOTALL)
    light = dict(re.findall(r"--(\w+): (#\w+)", _palette().partition("@media")[0]))
    file.write(
        vl_convert.svg_to_png(re.sub(r"var\(--(\w+)\)", lambda name: light[name[1]], svg), 2)
    )


@cache
def _palette() -> str:
    file = files("hubbub.reporting") / "templates" / "palette.css"
    return file.read_text(encoding="utf-8")


def as_html(result: Estimates) -> str:
    """Return a result's tables and facts."""
    return environment().get_template("notebook.html").render(parts=result.view, rest=_REST)


def as_text(result: Estimates) -> str:
    """Return what a terminal would show."""
    file = io.StringIO()
    show(result.view, plain_console(_TEXT_WIDTH, file), _REST)
    return file.getvalue().rstrip()
