"""Variable types: what a value of each type looks like in bits.

A type turns a value into the integer whose set bits the two responses then blur, and tells how
many bits it needs. What a maintainer must not break: the same value gives the same bits everywhere
and for ever (docs/protocol, section 3), and no message quotes a value.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_right
from typing import ClassVar, SupportsFloat

from hubbub.client.bloom import bloom_bits
from hubbub.client.errors import EncodingError, UnknownCategoryError
from hubbub.client.params import RapporParams

Value = str | bool | int | float | SupportsFloat
"""What apps may record; `SupportsFloat` stands for other numbers: numpy's scalars, Decimal."""


class _Kind:
    """What all types share: two are equal if the same values give the same bits."""

    __slots__ = ()
    name: ClassVar[str]

    def definition(self) -> dict[str, object]:
        """Return what, besides the parameters, reports of this type depend on."""
        return {}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.definition() == other.definition()

    def __hash__(self) -> int:
        return hash((self.name, repr(self.definition())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.definition()})"


class StringKind(_Kind):
    """Any text, in a Bloom filter of its cohort."""

    __slots__ = ()
    name = "string"

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the Bloom filter."""
        return bloom_bits(value, cohort, params)


class EnumKind(_Kind):
    """One of a few known texts, one bit each.

    Parameters
    ----------
    categories : tuple of str
        2 to 1024, different also in their NFC forms.
    """

    __slots__ = ("_bits", "categories")
    name = "enum"

    def __init__(self, categories: tuple[str, ...]) -> None:
        self.categories = categories
        self._bits = {_normal(category): 1 << i for i, category in enumerate(categories)}

    @property
    def width(self) -> int:
        """Number of bits that values can set."""
        return len(self.categories)

    def bits(self, value: Value, _cohort: int, _params: RapporParams) -> int:
        """Return the category's bit.

        Raises
        ------
        UnknownCategoryError
            If the value isn't one of the categories.
        EncodingError
            If it isn't a text.
        """
        if not isinstance(value, str):
            raise EncodingError(f"value of type {type(value).__name__}: must be a string")
        try:
            return self._bits[_normal(value)]
        except KeyError:
            shown = ", ".join(self.categories[:20]) + (", ..." if self.width > 20 else "")
            raise UnknownCategoryError(f"value: must be one of the categories {shown}") from None

    def definition(self) -> dict[str, object]:
        """Return the categories."""
        return {"categories": list(self.categories)}


class BooleanKind(_Kind):
    """Yes or no, in a single bit."""

    __slots__ = ()
    name = "boolean"
    width = 1

    def bits(self, value: Value, _cohort: int, _params: RapporParams) -> int:
        """Return 1 for True, 0 for False (raises EncodingError for anything else)."""
        if value is True or value is False:
            return int(value)
        if type(value).__name__ in _NUMPY_BOOLEANS and type(value).__module__ == "numpy":
            return int(bool(value))
        raise EncodingError(f"value of type {type(value).__name__}: must be True or False")


class OrdinalKind(_Kind):
    """A number, in the bucket where it falls.

    Parameters
    ----------
    edges : tuple of float
        Strictly ascending; each opens the bucket above it. One bucket more than edges.
    """

    __slots__ = ("edges",)
    name = "ordinal"

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges

    @property
    def width(self) -> int:
        """Number of bits that values can set."""
        return len(self.edges) + 1

    def bits(self, value: Value, _cohort: int, _params: RapporParams) -> int:
        """Return the bucket's bit (raises EncodingError for what isn't a number)."""
        number = _plain_number(value)
        if number != number:  # noqa: PLR0124 (math.isnan can't take every integer)
            raise EncodingError("value: must be a number, not NaN")
        return 1 << bisect_right(self.edges, number)

    def definition(self) -> dict[str, object]:
        """Return the edges."""
        return {"edges": list(self.edges)}


Kind = StringKind | EnumKind | BooleanKind | OrdinalKind


_NUMPY_BOOLEANS = frozenset({"bool", "bool_"})


def _plain_number(value: object) -> float:
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


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)
