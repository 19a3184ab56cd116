"""Texts that no list holds, hashed into Bloom filters: the types "string" and "open-string".

(value, cohort) -> positions in the filter is the one hash that everyone shares. Client, decoder and
every client in another language must always agree on it to the bit; docs/protocol holds the test
vectors. Only 32-bit arithmetic is used, so that languages without wide integers can follow.

An open string is found prefix by prefix: a client's cohort fixes one step, and its reports depend
on the value up to that step only: on its first bytes, or at the last step on all of it (Wang, Li,
Jha: "Locally differentially private heavy hitter identification", arXiv 1708.06674). Invariant: a
cohort belongs to one step, so a client that keeps its cohort answers one question, and the epsilons
are those of a single string.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mmh3

from hubbub.protocol.checks import ascending_integers
from hubbub.protocol.errors import EncodingError, MetricError
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.params import MOST_COHORTS, check_integer

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

MAX_VALUE_BYTES = 65_536  # the protocol's bound (section 2): hashing stays below a millisecond
_MASK = 0xFFFFFFFF  # arithmetic modulo 2^32
_FIRST_WORDS = struct.Struct("<II").unpack_from
MOST_COHORTS_OF_STRINGS = 1024
"""The decoder has m k equations; more cohorts cost memory and separate candidates no better."""
MOST_STEPS = 8
"""Each step has its own clients: with eight, an eighth of them."""
LONGEST_STEP = 64
"""Longer strings differ before their 64th byte, and the last step asks the whole text."""
TERMINATOR = b"\xff"
"""Follows a value where it is cut: no UTF-8 has this byte, so "at" isn't the beginning of "ate"."""


def canonical_bytes(value: object) -> bytes:
    """Return the bytes of a text: UTF-8 of its NFC form (EncodingError, without the value)."""
    if not isinstance(value, str):
        raise EncodingError(f"value of type {type(value).__name__}: must be a string")
    try:
        data = (value if value.isascii() else unicodedata.normalize("NFC", value)).encode()
    except UnicodeEncodeError:
        raise EncodingError("value: must be Unicode text without lone surrogates") from None
    if len(data) > MAX_VALUE_BYTES:
        raise EncodingError(
            f"value of {len(data)} bytes: must be at most {MAX_VALUE_BYTES} bytes of UTF-8"
        )
    return data


def hash_words(data: bytes) -> tuple[int, int]:
    """Return the first two little-endian 32-bit words of MurmurHash3_x86_128 with seed 0."""
    first, second = _FIRST_WORDS(mmh3.hash_bytes(data, 0, False))
    return first, second


def bit_positions(value: object, cohort: int, params: RapporParams) -> tuple[int, ...]:
    """Return the h positions, not necessarily distinct, that a value sets in a cohort's filter."""
    return byte_positions(canonical_bytes(value), cohort, params)


def byte_positions(data: bytes, cohort: int, params: RapporParams) -> tuple[int, ...]:
    """Return the positions of any bytes; of a value's canonical bytes, these are the value's."""
    x, second = hash_words(data)
    step = second | 1
    x += cohort * params.h * step
    positions = []
    for _ in range(params.h):
        positions.append(_fmix32(x & _MASK) % params.k)
        x += step
    return tuple(positions)


def bloom_bits(value: object, cohort: int, params: RapporParams) -> int:
    """Return the Bloom filter as an integer whose bit j is bit j of the filter."""
    bits = 0
    for position in bit_positions(value, cohort, params):
        bits |= 1 << position
    return bits


def _fmix32(x: int) -> int:
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)


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
        check_integer("m", table["m"], 1, MOST_COHORTS_OF_STRINGS)
        return {key: table[key] for key in self.keys}

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the Bloom filter (raises EncodingError for what isn't a text of up to 64 KiB)."""
        return bloom_bits(value, cohort, params)

    def true_bits(self, params: RapporParams) -> range:
        """Return 1 to h, for hashes may collide."""
        return range(1, params.h + 1)


class OpenStringType(MetricType):
    """Any text, of which a client reports the beginning up to one step.

    `steps`: lengths of the prefixes, in bytes of UTF-8, ascending. After them comes the last step,
    the whole value, so there is one step more than lengths. `cohorts`: cohorts a step. Cohort c of
    the metric is cohort ``c % cohorts`` of step ``c // cohorts``.
    """

    __slots__ = ("cohorts", "steps")
    name = "open-string"
    keys = ("steps", "k", "m")
    optional_keys = ("h",)

    def __init__(self, steps: tuple[int, ...], cohorts: int) -> None:
        self.steps = steps
        self.cohorts = cohorts

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the steps, and the cohorts of each."""
        steps = ascending_integers(f"{where}.steps", table["steps"], MOST_STEPS, 1, LONGEST_STEP)
        h, m, most = table.get("h", 1), table["m"], MOST_COHORTS // (len(steps) + 1)
        if isinstance(h, bool) or h != 1:
            raise MetricError.of(f"{where}.h", h, "1, or left out, for an open-string")
        if isinstance(m, bool) or not isinstance(m, int) or not 1 <= m <= most:
            raise MetricError.of(
                f"{where}.m",
                m,
                f"an integer between 1 and {most}, the cohorts of each of {len(steps) + 1} steps",
            )
        return cls(steps, m)

    def filter_size(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return k as the table has it, one hash, and the cohorts of all steps."""
        return {"k": table["k"], "h": 1, "m": (len(self.steps) + 1) * self.cohorts}

    def definition(self) -> dict[str, object]:
        """Return the steps, and the cohorts of each."""
        return {"steps": list(self.steps), "cohorts": self.cohorts}

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the Bloom filter of the prefix at the cohort's step (EncodingError)."""
        hashed = self.prefix(canonical_bytes(value), cohort // self.cohorts)
        (position,) = byte_positions(hashed, self.hashed_cohort(cohort), params)
        return 1 << position

    def hashed_cohort(self, cohort: int) -> int:
        """Return the number with which a cohort's filters are hashed, another for each.

        The last step's are 0 to ``cohorts - 1``, as of a string metric; the others' follow.
        """
        return (cohort + self.cohorts) % ((len(self.steps) + 1) * self.cohorts)

    def parts(self) -> tuple[str, ...]:
        """Return a beginning for each step, and the whole."""
        return (*map(_beginning, self.steps), "the whole")

    def part(self, cohort: int) -> str:
        """Return the beginning that is reported in a cohort, or the whole."""
        return self.parts()[cohort // self.cohorts]

    def prefix(self, value: bytes, step: int) -> bytes:
        """Return what is hashed of a value's canonical bytes at a step: 0 to ``len(steps)``.

        A value that ends before the step is followed by the terminator. A cut may split a
        character.
        """
        if step == len(self.steps):
            return value
        length = self.steps[step]
        return (value[:length] + TERMINATOR)[:length]

    def step_params(self, params: RapporParams) -> RapporParams:
        """Return the parameters of one step's reports: as the metric's, with `cohorts` cohorts."""
        return params._replace(m=self.cohorts)


def _beginning(length: int) -> str:
    of_bytes = "byte (a letter," if length == 1 else f"{length} bytes (letters,"
    return f"only the first {of_bytes} for plain English text)"
