"""Results as HTML: sections of words, facts, charts and tables -> one self-contained page.

The page needs nothing from anywhere else and no script. Everything but our own SVG is escaped by
the template engine; strings that clients may have sent come through `results.text.visible` as
well, so that no control or invisible character reaches the page.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, BinaryIO

from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.drawings import draw
from hubbub.reporting.text import shortened

if TYPE_CHECKING:
    import jinja2

_COLUMNS = 60
"""Of a string that names a row or a chart; those of a longer one are in its `title`."""


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
