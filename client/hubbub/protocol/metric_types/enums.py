"""One of a few known texts: the type "enum"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.checks import boolean, different_texts
from hubbub.protocol.errors import EncodingError, MetricError, UnknownCategoryError
from hubbub.protocol.metric_types.base import ListedValues, MetricType, Value, normal_form
from hubbub.protocol.params import MOST_BITS

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

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
        """Return the category's place among the `labels`, from 0.

        Raises `UnknownCategoryError` if the value isn't one of the categories, and there is none of
        all others. Raises `EncodingError` if it isn't a text.
        """
        if not isinstance(value, str):
            raise EncodingError(f"value of type {type(value).__name__}: must be a string")
        number = self._numbers.get(normal_form(value))
        if number is not None:
            return number
        if self.other:
            return len(self.categories)
        shown = ", ".join(self.categories[:20]) + (", ..." if self.width > 20 else "")
        raise UnknownCategoryError(f"value: must be one of the categories {shown}")
