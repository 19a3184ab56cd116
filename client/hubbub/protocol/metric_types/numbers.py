"""A bounded number whose mean is asked: the type "number".

A value becomes a position on a grid, one of its two neighbours there by a coin, so that the mean of
positions is the mean of values. The response (`Window`) then blurs the position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.checks import boolean, finite, integer
from hubbub.protocol.errors import EncodingError, MetricError
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.metric_types.enums import plain_number
from hubbub.protocol.params import MOST_BITS

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

_COIN_BYTES, _COIN_DIGITS = 8, 53  # of doubles: what Python and JavaScript compare alike
_UNUSED_DIGITS = 64 - _COIN_DIGITS  # of the 64 that are drawn


class NumberType(MetricType):
    """A number between two bounds; what is beyond them counts as the bound.

    `low` and `high`: the bounds, low < high. `cells` and `window`: outputs of the response, and how
    many of them are around a position. `variance`: whether half of the clients, those in cohort 1,
    report the square of where their value is between the bounds, so that the population's variance
    can be estimated.
    """

    __slots__ = ("cells", "high", "low", "variance", "window")
    name = "number"
    keys = ("low", "high", "cells", "window", "q")
    optional_keys = ("variance",)

    def __init__(
        self, low: float, high: float, cells: int, window: int, variance: bool = False
    ) -> None:
        self.low, self.high = low, high
        self.cells, self.window = cells, window
        self.variance = variance

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the bounds, the size of the response, and whether the variance is asked."""
        low = finite(f"{where}.low", table["low"])
        high = finite(f"{where}.high", table["high"])
        if not low < high or math.isinf(high - low):
            raise MetricError.of(f"{where}.high", high, f"more than low = {low!r}")
        cells = integer(f"{where}.cells", table["cells"], 2, MOST_BITS)
        window = integer(f"{where}.window", table["window"], 1, cells - 1)
        return cls(
            low, high, cells, window, boolean(f"{where}.variance", table.get("variance", False))
        )

    @property
    def width(self) -> int:
        """Number of cells."""
        return self.cells

    @property
    def positions(self) -> int:
        """Steps of the grid, d - w: positions are 0 to this number."""
        return self.cells - self.window

    def filter_size(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return one bit per cell, and a cohort for the square if that is asked."""
        return {**super().filter_size(table), "m": 2 if self.variance else 1}

    def definition(self) -> dict[str, object]:
        """Return the bounds, the size of the response, and `variance`."""
        return {
            "low": self.low,
            "high": self.high,
            "cells": self.cells,
            "window": self.window,
            "variance": self.variance,
        }

    def unit(self, value: Value) -> float:
        """Return where a value is between the bounds, in [0, 1] (EncodingError)."""
        number = plain_number(value)
        if number != number:  # noqa: PLR0124 (math.isnan can't take every integer)
            raise EncodingError("value: must be a number, not NaN")
        if number <= self.low:
            return 0.0
        if number >= self.high:
            return 1.0
        return min(max((float(number) - self.low) / (self.high - self.low), 0.0), 1.0)

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
        """Return the bit of the position at or below the value (raises as `unit`)."""
        below, _ = self._place(value, cohort)
        return 1 << below

    def drawn_bits(
        self,
        value: Value,
        cohort: int,
        params: RapporParams,  # noqa: ARG002
        coins: Callable[[int], bytes],
    ) -> int:
        """Return the bit of one of the two neighbours on the grid (raises as `unit`)."""
        below, rest = self._place(value, cohort)
        coin = int.from_bytes(coins(_COIN_BYTES), "little") >> _UNUSED_DIGITS
        return 1 << below + (coin < rest * 2.0**_COIN_DIGITS)

    def _place(self, value: Value, cohort: int) -> tuple[int, float]:
        unit = self.unit(value)
        place = (unit * unit if cohort == 1 else unit) * self.positions
        below = min(int(place), self.positions - 1)
        return below, place - below
