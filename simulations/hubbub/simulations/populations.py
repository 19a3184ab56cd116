"""Populations with known truth: which values there are, and how often each is held."""

from __future__ import annotations

import importlib.resources
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import FloatArray

_FIRST_NAMES = ("dist.male.first", "dist.female.first")
_SURNAMES = "dist.all.last"


@dataclass(frozen=True, slots=True)
class Population:
    """Values and the probability that a client holds each.

    Attributes
    ----------
    values : tuple of str, length v
    shares : float64 array, shape (v,)
        Sum to 1.
    """

    values: tuple[str, ...]
    shares: FloatArray


def census_first_names() -> Population:
    """Return the first names of the 1990 US census with their frequencies, half men, half women."""
    weights: dict[str, float] = defaultdict(float)
    for table in _FIRST_NAMES:
        rows = _census_table(table)
        total = sum(percent for _, percent in rows)
        for name, percent in rows:
            weights[name] += percent / total
    shares = np.array(list(weights.values()))
    return Population(tuple(weights), shares / shares.sum())


def census_names() -> tuple[str, ...]:
    """Return every first name and surname of the 1990 US census, each once."""
    tables = (*_FIRST_NAMES, _SURNAMES)
    return tuple(dict.fromkeys(name for table in tables for name, _ in _census_table(table)))


def _census_table(table: str) -> list[tuple[str, float]]:
    """Read rows such as "JAMES 3.318 3.318 1": name, percent, cumulative percent, rank."""
    text = importlib.resources.files("names").joinpath(table).read_text(encoding="ascii")
    fields = (line.split() for line in text.splitlines())
    return [(name.capitalize(), float(percent)) for name, percent, *_ in fields]
