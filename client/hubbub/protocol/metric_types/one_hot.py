"""Values with a bit each: the types "enum", "boolean", "ordinal" (numbers in buckets) and "number".

A number whose mean is asked becomes a position on a grid, one of its two neighbours there by a
coin, so that the mean of positions is the mean of values. The response (`Window`) then blurs the
position.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.checks import ascending_numbers, boolean, different_texts, finite, integer
from hubbub.protocol.errors import EncodingError, MetricError, UnknownCategoryError
from hubbub.protocol.metric_types.base import ListedValues, MetricType, Value, normal_form
from hubbub.protocol.params import MOST_BITS

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

_NUMPY_BOOLEANS = frozenset({"bool", "bool_"})


class BooleanType(MetricType):
    """Yes or no, in a single bit: two values differ in one bit, where others differ in two."""

    __slots__ = ()
    name = "boolean"

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:  # noqa: ARG003
        """Return the type, which the table doesn't change."""
        return cls()

    @property
    def width(self) -> int:
        """Return 1: the bit of True."""
        return 1

    def listed_values(self) -> ListedValues:
        """Return false and true."""
        return ListedValues(("false", "true"))

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
        """Return 1 for True, 0 for False (raises EncodingError for anything else)."""
        return self.number(value)

    def number(self, value: object) -> int:
        """Return 1 for True, 0 for False (raises EncodingError for anything else)."""
        if value is True or value is False:
            return int(value)
        if type(value).__name__ in _NUMPY_BOOLEANS and type(value).__module__ == "numpy":
            return int(bool(value))
        raise EncodingError(f"value of type {type(value).__name__}: must be True or False")

    def true_bits(self, params: RapporParams) -> range:  # noqa: ARG002
        """Return 0 or 1."""
        return range(2)

    def epsilon_after(self, params: RapporParams, reports: float) -> float:
        """Return the exact price of reports of values that differ in one bit."""
        return params.epsilon_after_of_a_bit(reports)


class OrdinalType(MetricType):
    """A number, in the bucket where it falls.

    `edges`: strictly ascending; each opens the bucket above it. One bucket more than edges.
    """

    __slots__ = ("edges",)
    name = "ordinal"
    keys = ("edges",)

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the edges."""
        return cls(ascending_numbers(f"{where}.edges", table["edges"], 1, MOST_BITS - 1))

    @property
    def width(self) -> int:
        """Number of buckets."""
        return len(self.edges) + 1

    def definition(self) -> dict[str, object]:
        """Return the edges."""
        return {"edges": list(self.edges)}

    def listed_values(self) -> ListedValues:
        """Return the buckets, such as "[10, 20)", and the edges between them."""
        buckets = (bucket_label(*bucket) for bucket in bucket_bounds(self.edges))
        return ListedValues(tuple(buckets), self.edges)

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
        """Return the bucket's bit (raises EncodingError for what isn't a number)."""
        return 1 << self.number(value)

    def number(self, value: object) -> int:
        """Return the bucket's number, from 0 (raises EncodingError for what isn't a number)."""
        number = plain_number(value)
        if number != number:  # noqa: PLR0124 (math.isnan can't take every integer)
            raise EncodingError("value: must be a number, not NaN")
        return bisect_right(self.edges, number)


def bucket_label(low: float, high: float) -> str:
    """Return a bucket in the usual notation, such as "[10, 20)" or "< 10"."""
    if math.isinf(low):
        return f"< {_number_label(high)}"
    if math.isinf(high):
        return f">= {_number_label(low)}"
    return f"[{_number_label(low)}, {_number_label(high)})"


def bucket_bounds(edges: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return every bucket's lower and upper edge, infinite where it is open."""
    return list(itertools.pairwise((-math.inf, *edges, math.inf)))


def _number_label(edge: float) -> str:
    return repr(int(edge)) if edge.is_integer() and abs(edge) < 1e15 else repr(edge)


def plain_number(value: object) -> float:
    """Return what compares exactly with floats: any real number, as numpy's and Decimal are."""
    if type(value) is float or type(value) is int:
        return value
    from decimal import Decimal
    from numbers import Real

    if isinstance(value, Decimal):
        if value.is_snan():
            return math.nan
        return value  # type: ignore[return-value]
    if isinstance(value, Real) and not isinstance(value, bool):
        item = getattr(value, "item", None)  # numpy's own comparisons may round
        return item() if item else value  # type: ignore[return-value]
    raise EncodingError(f"value of type {type(value).__name__}: must be a number, not NaN")


OTHER = "other"
"""Label of the category of all texts that aren't listed."""


class EnumType(MetricType):
    """One of a few known texts, one bit each.

    `categories`: 2 to 4096, different also in their NFC forms. `other`: whether one more category,
    the last, stands for all other texts; 1 to 4095 are then listed.
    """

    __slots__ = ("_numbers", "categories", "other")
    name = "enum"
    keys = ("categories",)
    optional_keys = ("other",)

    def __init__(self, categories: tuple[str, ...], other: bool = False) -> None:
        self.categories = categories
        self.other = other
        self._numbers = {normal_form(category): i for i, category in enumerate(categories)}

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the categories, and whether there are others."""
        other = boolean(f"{where}.other", table.get("other", False))
        fewest, most = (1, MOST_BITS - 1) if other else (2, MOST_BITS)
        categories = different_texts(f"{where}.categories", table["categories"], fewest, most)
        if other and OTHER in categories:
            raise MetricError.about(
                f"{where}.categories",
                f"{where}.categories: must not hold {OTHER!r}, which other = true adds as the last",
            )
        return cls(categories, other)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return what each bit stands for: the categories, and perhaps "other"."""
        return (*self.categories, OTHER) if self.other else self.categories

    @property
    def width(self) -> int:
        """Number of categories, with that of all others."""
        return len(self.categories) + self.other

    def definition(self) -> dict[str, object]:
        """Return the categories, and `other` if there are any."""
        others = {"other": True} if self.other else {}
        return {"categories": list(self.categories), **others}

    def listed_values(self) -> ListedValues:
        """Return the registry's texts, and perhaps that of all others."""
        return ListedValues(self.labels, ranked=True)

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
        """Return the category's bit (raises as `number`)."""
        return 1 << self.number(value)

    def number(self, value: object) -> int:
        """Return the category's place among the `labels`, from 0 (UnknownCategoryError)."""
        if not isinstance(value, str):
            raise EncodingError(f"value of type {type(value).__name__}: must be a string")
        number = self._numbers.get(normal_form(value))
        if number is not None:
            return number
        if self.other:
            return len(self.categories)
        shown = ", ".join(self.categories[:20]) + (", ..." if self.width > 20 else "")
        raise UnknownCategoryError(f"value: must be one of the categories {shown}")


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
