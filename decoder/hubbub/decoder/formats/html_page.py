"""Results as HTML: sections of words, facts, charts and tables -> one self-contained page.

The page needs nothing from anywhere else and no script. Everything but our own SVG is escaped by
the template engine; strings that clients may have sent come through `visible` as well, so that no
control or invisible character reaches the page.
"""

from __future__ import annotations

from functools import cache
from typing import BinaryIO

import jinja2

from hubbub.decoder.formats.drawings import draw
from hubbub.decoder.results.result import Result


def write_html(result: Result, file: BinaryIO) -> None:
    """Write a result's report as one page."""
    report = result.report()
    page = environment().get_template("page.html")
    parts = page.generate(report=report, draw=draw)
    file.writelines(part.encode("utf-8") for part in parts)


@cache
def environment() -> jinja2.Environment:
    """Return the templates, which escape whatever they are given."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("hubbub.decoder.formats"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
