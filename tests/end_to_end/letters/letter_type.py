"""A type that hubbub doesn't have, on the protocol's side: one letter of a to z."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from hubbub.protocol import EncodingError, ListedValues, MetricType, Value

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol import RapporParams


class LetterType(MetricType):
    __slots__ = ()
    name = "letter"

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:  # noqa: ARG003
        return cls()

    @property
    def width(self) -> int:
        return len(ascii_lowercase)

    def listed_values(self) -> ListedValues:
        return ListedValues(tuple(ascii_lowercase))

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
        if not isinstance(value, str) or len(value) != 1 or value not in ascii_lowercase:
            raise EncodingError("value: must be a letter of a to z")
        return 1 << ascii_lowercase.index(value)
