"""Strings that clients may have sent -> what people see of them.

Invariant: no control or invisible character reaches a terminal or a page. Only screens shorten
strings; files for programs hold them as they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

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
