"""Hold one name in two normal forms, in data and in lists of keys.

Noise is next to nothing (epsilon 400), so figures are exact but with a probability below 1e-80.
"""

from __future__ import annotations

import csv
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from evaluation.attacks.outcome import Outcome
from hubbub.release import Dataset

NAME = "José"
FORMS = [unicodedata.normalize(form, NAME) for form in ("NFC", "NFD")]
EACH = 200
"""People who hold the name in one form."""


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Yield how many keys one name is sold as, how many people are missed, and what is refused."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "people.csv"
        with data.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["user", "name"])
            lines.writerows([f"u{i}", FORMS[i % 2]] for i in range(2 * EACH))
        with Dataset.create(
            data, ledger=Path(folder) / "l.db", user_column="user", epsilon=1600, delta="0.1"
        ) as people:
            found = people.histogram("name", epsilon=400, delta="1e-6")
            yield Outcome("keys that one name is sold as", len(found), 1)
            listed = people.histogram("name", epsilon=400, bins=FORMS[1:], total=True)
            missed = 2 * EACH - float(listed["value"][0])
            yield Outcome("people missed by a key in another form than theirs", missed, 0)
            both = people.histogram("name", epsilon=400, bins=FORMS, total=True)
            yield Outcome("keys that a list with both forms is answered by", len(both), 1)
    _ = quick  # it takes a second
