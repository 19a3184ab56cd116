"""Yes or no: the type "boolean"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.errors import EncodingError
from hubbub.protocol.metric_types.base import ListedValues, MetricType, Value

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

    def epsilon_permanent(self, params: RapporParams) -> float:
        """Return theorem 1's bound for values that differ in one bit."""
        return params.epsilon_permanent_of_a_bit

    def epsilon_report(self, params: RapporParams) -> float:
        """Return theorem 2's bound for values that differ in one bit."""
        return params.epsilon_report_of_a_bit

    def epsilon_after(self, params: RapporParams, reports: int) -> float:
        """Return the exact price of reports of values that differ in one bit."""
        return params.epsilon_after_of_a_bit(reports)
