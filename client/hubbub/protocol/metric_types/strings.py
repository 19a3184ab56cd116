"""Texts that no list holds: the type "string"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.bloom import bloom_bits
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.params import check_integer

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams


MOST_COHORTS = 1024
"""The decoder has m k equations; more cohorts cost memory and tell candidates apart no better."""


class StringType(MetricType):
    """Any text, in a Bloom filter of its cohort."""

    __slots__ = ()
    name = "string"
    keys = ("k", "h", "m")

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:  # noqa: ARG003
        """Return the type, which the table doesn't change."""
        return cls()

    def filter_size(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return k, h and m as the table has them (raises ParameterError for too many cohorts)."""
        check_integer("m", table["m"], 1, MOST_COHORTS)
        return {key: table[key] for key in self.keys}

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the Bloom filter (raises EncodingError for what isn't a text of up to 64 KiB)."""
        return bloom_bits(value, cohort, params)

    def true_bits(self, params: RapporParams) -> range:
        """Return 1 to h, for hashes may collide."""
        return range(1, params.h + 1)
