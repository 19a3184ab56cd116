"""One of a few known texts: the type "enum"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.errors import EncodingError, UnknownCategoryError
from hubbub.protocol.metric_types.base import MOST_BITS, MetricType, Value, normal_form

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams


class EnumType(MetricType):
    """One of a few known texts, one bit each.

    Parameters
    ----------
    categories : tuple of str
        2 to 1024, different also in their NFC forms.
    """

    __slots__ = ("_bits", "categories")
    name = "enum"
    keys = ("categories",)

    def __init__(self, categories: tuple[str, ...]) -> None:
        self.categories = categories
        self._bits = {normal_form(category): 1 << i for i, category in enumerate(categories)}

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the categories."""
        from hubbub.protocol.checks import different_texts

        return cls(different_texts(f"{where}.categories", table["categories"], 2, MOST_BITS))

    @property
    def width(self) -> int:
        """Number of categories."""
        return len(self.categories)

    def definition(self) -> dict[str, object]:
        """Return the categories."""
        return {"categories": list(self.categories)}

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
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
            return self._bits[normal_form(value)]
        except KeyError:
            shown = ", ".join(self.categories[:20]) + (", ..." if self.width > 20 else "")
            raise UnknownCategoryError(f"value: must be one of the categories {shown}") from None
