"""Text for people's screens: strings that clients may have sent, and tables of them.

Invariant: no control or invisible character reaches a terminal or a page. Only screens shorten
strings; files for programs hold them as they are.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from hubbub.reporting.estimates import Block, Line, Table

_MARKS = 4
"""Most combining marks that count as part of their letter; some scripts need three."""


def visible(string: str) -> str:
    """Return a string as people may see it: control characters escaped, nothing invisible."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in string
    )
    return f'"{shown}"' if shown != shown.strip() or not shown else shown


def shortened(text: str, most: int) -> str:
    """Return a text, or both ends of one that takes more columns of a terminal than `most`.

    Both ends, because addresses often begin alike and file names often end alike. Letters keep
    their combining marks; wide letters take two columns.
    """
    if columns(text) <= most:
        return text
    letters = _letters(text)
    first = _fitting(letters, most // 2)
    last = _fitting(reversed(letters), (most - 1) // 2)
    return "".join([*first, "…", *reversed(last)])


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(_width, _letters(text)))


def _letters(text: str) -> list[str]:
    """Cut a text into letters with their combining marks."""
    letters: list[str] = []
    for c in text:
        if letters and unicodedata.category(c) in {"Mn", "Me"} and len(letters[-1]) <= _MARKS:
            letters[-1] += c
        else:
            letters.append(c)
    return letters


def _fitting(letters: Iterable[str], most: int) -> list[str]:
    """Return as many of the first letters as fit in so many columns."""
    taken: list[str] = []
    for letter in letters:
        most -= _width(letter)
        if most < 0:
            break
        taken.append(letter)
    return taken


def _width(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter[0]) in {"W", "F"} else 1


_LEAST = 16  # columns of a name; fewer would be unreadable
_BORDERS = 3
"""Columns between two cells."""


def stdout_console(width: int = 120) -> Console:
    """Return the terminal, or plain lines of a fixed width where output isn't one."""
    return Console() if sys.stdout.isatty() else plain_console(width)


def plain_console(width: int = 120, file: TextIO | None = None) -> Console:
    """Return plain lines of a fixed width, on standard output if there is no file."""
    return Console(width=width, file=file, force_jupyter=False)  # which rich would write to


def show(blocks: Iterable[Block], console: Console, rest: str = "--output writes them all") -> None:
    """Print blocks one below the other, none of it as markup; `rest`: where further rows are."""
    for block in blocks:
        if isinstance(block, Line):
            console.print(Text(block.text), soft_wrap=not block.wraps)
        elif isinstance(block, Table):
            grid = Grid(title=Text(block.title, style="table.title"), title_justify="left")
            name, *numbers = block.headings
            grid.add_column(name.text, overflow="fold", justify=name.align)
            for heading in numbers:
                grid.add_column(heading.text, justify=heading.align)
            others_of = zip(block.header[1:], *(row[1:] for row in block.rows), strict=True)
            needed = sum(max(map(cell_len, cells)) + _BORDERS for cells in others_of)
            room = max(console.width - needed - _BORDERS - 1, _LEAST)
            styles = block.styles or ("",) * len(block.rows)
            for (first, *others), style in zip(block.rows, styles, strict=True):
                shown = Text(shortened(first, room), overflow="fold")
                grid.add_row(shown, *map(Text, others), style=style)
            console.print(grid)
            if block.left_out:
                console.print(Text(f"\n… and {block.left_out} more; {rest}"))
        else:
            facts = Grid(show_header=False, box=None, pad_edge=False)
            for label, text in block.items():
                facts.add_row(Text(label), Text(text))
            console.print(facts)
