"""Numbers in buckets: the type "ordinal"."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.checks import ascending_numbers
from hubbub.protocol.errors import EncodingError
from hubbub.protocol.metric_types.base import ListedValues, MetricType, Value
from hubbub.protocol.params import MOST_BITS

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams


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
