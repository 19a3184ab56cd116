"""One of a few known texts: the type "enum".

Yes or no: the type "boolean".

Numbers in buckets: the type "ordinal".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.errors import EncodingError
from hubbub.protocol.metric_types.base import ListedValues, MetricType, Value

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams
import itertools
import math
from bisect import bisect_right

from hubbub.protocol.checks import ascending_numbers, boolean, different_texts
from hubbub.protocol.errors import MetricError, UnknownCategoryError
from hubbub.protocol.metric_types.base import normal_form
from hubbub.protocol.params import MOST_BITS

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

    def epsilon_permanent(self, params: RapporParams) -> float:
        """Return theorem 1's bound for values that differ in one bit."""
        return params.epsilon_permanent_of_a_bit

    def epsilon_report(self, params: RapporParams) -> float:
        """Return theorem 2's bound for values that differ in one bit."""
        return params.epsilon_report_of_a_bit

    def epsilon_after(self, params: RapporParams, reports: int) -> float:
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
