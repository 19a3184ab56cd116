"""Hide a value among rows that hold none.

Each person has ten rows, one of which holds a value; one row per person counts. Noise is next to
nothing (epsilon 400), so figures are exact but with a probability below 1e-80.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from evaluation.attacks.outcome import Outcome
from hubbub.release import Dataset
from hubbub.reporting import Estimates

PEOPLE, ROWS, EPSILON = 1_000, 10, 400
QUERIES: dict[str, Callable[[Dataset], Estimates]] = {
    "count": lambda people: people.count("city", epsilon=EPSILON),
    "histogram": lambda people: people.histogram("city", epsilon=EPSILON, delta="1e-6"),
    "histogram of a public key": lambda people: people.histogram(
        "site", epsilon=EPSILON, bins=["a.example"]
    ),
    "histogram of buckets": lambda people: people.histogram("age", epsilon=EPSILON, edges=[0]),
    "sum": lambda people: people.sum("age", epsilon=EPSILON),
}


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Yield by how many of a thousand people, who all hold the value, a query is wrong."""
    held = [i % ROWS == i // ROWS % ROWS for i in range(PEOPLE * ROWS)]
    table = {
        "user": [i // ROWS for i in range(PEOPLE * ROWS)],
        "city": ["Rome" if holds else None for holds in held],
        "site": ["a.example" if holds else "b.example" for holds in held],
        "age": [1.0 if holds else None for holds in held],
    }
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "people.parquet"
        parquet.write_table(pa.table(table), data)
        with Dataset.create(
            data,
            ledger=Path(folder) / "l.db",
            user_column="user",
            bounds={"age": (0, 1)},
            epsilon=EPSILON * len(QUERIES),
            delta="0.1",
        ) as people:
            for name, query in QUERIES.items():
                found = max(map(float, query(people)["value"]))
                yield Outcome(f"of 1,000 people missed, {name}", round(PEOPLE - found), 0)
    _ = quick  # it takes a second
