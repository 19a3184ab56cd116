"""The base of metric types: a class that turns values into bits and states their privacy.

A type turns a value into the integer whose set bits the two responses then blur. Invariants: the
same value gives the same bits everywhere and always (docs/protocol, section 3), and no message
quotes a value.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, SupportsFloat

from hubbub.protocol.errors import MetricError
from hubbub.protocol.params import ByDefinition

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

Value = str | bool | int | float | SupportsFloat | Mapping[str, object]
"""Values that apps may record. `SupportsFloat` stands for other numbers (as of numpy or Decimal); a
mapping has the fields of a joint metric, whose types are checked when it is recorded."""


class ListedValues(NamedTuple):
    """The values of a type whose values the registry lists."""

    labels: tuple[str, ...]
    edges: tuple[float, ...] = ()
    ranked: bool = False


class MetricType(ByDefinition, ABC):
    """One type of variable; two are equal if the same values give the same bits."""

    __slots__ = ()
    keys: ClassVar[tuple[str, ...]] = ()
    optional_keys: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the type from its table in metrics.toml, which has all `keys` (MetricError)."""

    @property
    def width(self) -> int | None:
        """Number of bits that values can set, one a category; None: a Bloom filter's k."""
        return None

    def filter_size(self, table: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return k, h and m of a metric with this table: by default one bit per category."""
        width = self.width
        if width is None:
            raise NotImplementedError(f"{self.name}: a type without categories has a filter size")
        return {"k": -(-width // 8) * 8, "h": 1, "m": 1}

    @abstractmethod
    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the integer whose set bits stand for a value (EncodingError if it isn't one)."""

    def listed_values(self) -> ListedValues:
        """Return the values, if the registry lists them (MetricError if not)."""
        raise MetricError(f"type {self.name!r}: must be a type with categories")

    def true_bits(self, params: RapporParams) -> range:  # noqa: ARG002
        """Return how many bits a value may set before any noise; no value of others is encoded."""
        return range(1, 2)

    def parts(self) -> tuple[str, ...]:
        """Return which parts of a value its reports may be about, in words; empty: always all."""
        return ()

    def part(self, cohort: int) -> str:  # noqa: ARG002
        """Return the one of `parts` that reports in a cohort are about, if there are any."""
        return ""

    def field_names(self) -> tuple[str, ...]:
        """Return the fields that travel together as one value; empty: a value has no fields."""
        return ()

    def epsilon_after(self, params: RapporParams, reports: float) -> float:
        """Return the bound on what so many reports of one value reveal; infinite: all of them.

        By default that of values with at most h bits each.
        """
        return params.epsilon_after(reports)

    def drawn_bits(
        self,
        value: Value,
        cohort: int,
        params: RapporParams,
        coins: Callable[[int], bytes],  # noqa: ARG002
    ) -> int:
        """Return `bits`; a type whose bits are up to chance draws them with coins."""
        return self.bits(value, cohort, params)


def normal_form(text: str) -> str:
    """Return the one form (NFC) of texts that look the same."""
    return unicodedata.normalize("NFC", text)
