"""A mechanism: a private function of data, made without any.

So what it costs is known, and paid, before data are touched. Invariant: nothing that a mechanism
says of itself (cost, name, theorem) depends on data; only its rows do, and they hold the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from hubbub.release.noise import Cost

_Data = TypeVar("_Data")


class Row(NamedTuple):
    """A released number or name."""

    key: str  # of what; empty for a number of the whole table
    value: float | str
    # The value is at most so far from the one without noise in 95% of releases; nan if the value is
    # no number or that can't be said without looking at the data.
    radius: float = math.nan
    variance: float = math.nan  # of the value's noise; nan as the radius


@dataclass(frozen=True, slots=True)
class Mechanism(Generic[_Data]):
    """What releases rows from data; each call draws new noise, and costs anew."""

    name: str
    theorem: str  # formula and source of the privacy that it has
    cost: Cost  # of one call
    release: Callable[[_Data], tuple[Row, ...]]  # rows from data

    def __call__(self, data: _Data) -> tuple[Row, ...]:
        """Return rows with noise."""
        return self.release(data)
