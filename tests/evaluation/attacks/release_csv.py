"""Let one person's cell of a CSV file hide or make up other people's rows.

The file has one line per person, and one of them lacks the quotes that RFC 4180 asks for.
Either it is refused, or everybody is counted once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from evaluation.attacks.outcome import Outcome
from hubbub.release import DataError
from hubbub.release.tables import Role, load

PEOPLE = 100
CELLS = {
    "a stray quote": ('x,"a',),
    "a quote in two lines": ('x,"a', 'y,b"'),
    "a quote within a cell": ('x,a"b',),
    "text after a quote": ('x,"a"b',),
    "carriage returns within a cell": ("x,a\rz1,b\rz2,b",),
}


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Yield by how many people the number of those who were counted is wrong, without an error."""
    people = [f"u{i},Rome" for i in range(PEOPLE)]
    for what, cells in CELLS.items():
        half = PEOPLE // 2
        lines = ["user,city", *people[:half]]
        for cell in cells:
            lines += [cell, *people[half : half + 10]]
            half += 10
        lines += people[half:]
        wrong = abs(counted("\n".join(lines) + "\n") - (PEOPLE + len(cells)))
        yield Outcome(f"people lost or made up without an error, {what}", wrong, 0)
    _ = quick  # it takes milliseconds


def counted(text: str) -> int:
    """Return how many people have a row, or all if the file is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            return len(load(path, "user", {"city": Role.KEYS}).names)
        except DataError:
            return len([line for line in text.split("\n")[1:] if line])
