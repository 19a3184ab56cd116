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
    """A released number or name.

    Attributes
    ----------
    key : str
        Of what; empty for a number of the whole table.
    value : float or str
    radius : float
        The value is at most so far from the one without noise in 95% of releases; nan if the value
        is no number or that can't be said without looking at the data.
    variance : float
        Of the value's noise; nan as the radius.
    """

    key: str
    value: float | str
    radius: float = math.nan
    variance: float = math.nan


@dataclass(frozen=True, slots=True)
class Mechanism(Generic[_Data]):
    """What releases rows from data; each call draws new noise, and costs anew.

    Attributes
    ----------
    name : str
    theorem : str
        Formula and source of the privacy that it has.
    cost : Cost
        Of one call.
    release : callable
        Rows from data.
    """

    name: str
    theorem: str
    cost: Cost
    release: Callable[[_Data], tuple[Row, ...]]

    def __call__(self, data: _Data) -> tuple[Row, ...]:
        """Return rows with noise."""
        return self.release(data)
