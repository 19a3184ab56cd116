"""A self-contained HTML page of headings, tables and pictures: one file to keep or send."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ccc; text-align: left;
         vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a document of parts made by the functions below."""
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def heading(text: str) -> str:
    """Return a heading of a section."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; numbers stand on the right, everything is shown as `cell` does."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in headings)
    body = "\n".join(f"<tr>{''.join(map(_data, row))}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table>"
    )


def picture(path: Path, alternative: str) -> str:
    """Return a PNG file's picture, held in the page itself.

    Parameters
    ----------
    path : Path
    alternative : str
        What it shows, for those who can't see it.
    """
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<p><img alt="{escape(alternative)}" src="data:image/png;base64,{data}"></p>'


def cell(value: object) -> str:
    """Return a value as text: numbers with four significant digits, nothing for nan."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _data(value: object) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    kind = ' class="number"' if number else ""
    return f"<td{kind}>{escape(cell(value))}</td>"
