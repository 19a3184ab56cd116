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
from hubbub.decoder.central import read_release
from hubbub.inference.errors import InputError
from hubbub.release.dataset import Dataset
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.writers import write_files

NAME = "José"
FORMS = [unicodedata.normalize(form, NAME) for form in ("NFC", "NFD")]
EACH = 200
"""People who hold the name in one form."""


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Yield how many keys one name is sold as, how many people are missed, and what is refused."""
    with tempfile.TemporaryDirectory() as folder:
        data, release = Path(folder) / "people.csv", Path(folder) / "release.json"
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
            paid = people.candidates("name", epsilon=400, delta="1e-6", counted=True)
            yield Outcome("releases refused by --blend, names found", refused(paid, release), 0)
            paid = people.histogram("name", epsilon=400, bins=FORMS, total=True)
            yield Outcome("releases refused by --blend, names listed", refused(paid, release), 0)
    _ = quick  # it takes a second


def refused(result: Estimates, path: Path) -> int:
    """Return 1 if what was paid for can't be blended."""
    write_files(result, [str(path)])
    try:
        read_release(path)
    except InputError:
        return 1
    return 0
