"""Populations of several fields with known truth: which tuples of values clients hold, how often.

Each field has made-up values, whose shares are those of a family. Fields are independent but for a
share of the clients who hold the partners of their first field's value. Invariant: tuples are in
the order of cells, in which the last field changes fastest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.joint import Field, FieldType, JointType
from hubbub.protocol.metric_types.strings import StringType
from hubbub.simulations.populations import PopulationError, family_shares

FIELD_NAMES = ("first", "second", "third")
_STRINGS = "s"
_BOOLEAN = (False, True)
_FEWEST_VALUES, _MOST_CELLS = 2, 100_000


@dataclass(frozen=True, slots=True)
class FieldSize:
    """How many values a field has, and whether they are strings: candidates of a listed field."""

    values: int
    strings: bool = False

    def __str__(self) -> str:
        return f"{self.values}{_STRINGS if self.strings else ''}"


@dataclass(frozen=True, slots=True)
class JointPopulation:
    """Tuples of values and the probability that a client holds each.

    Attributes
    ----------
    metric_type : JointType
        Of the metric that they are values of.
    listed : tuple of tuples
        Values of each field, in the order of its digits, or of its candidates.
    values : tuple of dict, length n
        All tuples, as an app records them.
    shares : float64 array, shape (n,)
        Sum to 1.
    """

    metric_type: JointType
    listed: tuple[tuple[str | bool, ...], ...]
    values: tuple[dict[str, str | bool], ...]
    shares: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each field has."""
        return tuple(map(len, self.listed))

    def candidates(self) -> dict[str, tuple[str, ...]]:
        """Return the candidates of each field of strings."""
        return {
            field.name: tuple(map(str, values))
            for field, values in zip(self.metric_type.fields, self.listed, strict=True)
            if field.type.name == "string"
        }


def parse_sizes(text: str) -> tuple[FieldSize, ...]:
    """Read sizes such as 100x20 or, with a field of 1,000 strings, 1000sx2.

    Raises
    ------
    PopulationError
        If they are no such sizes, or too many cells in all.
    """
    parts = [part.strip() for part in text.lower().replace("×", "x").split("x")]
    numbers = [part.removesuffix(_STRINGS) for part in parts]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise PopulationError(
            f"fields {text!r}: must be numbers of values, such as 100x20, or 1000sx2 with a field "
            "of strings"
        )
    sizes = tuple(
        FieldSize(int(number), part != number) for number, part in zip(numbers, parts, strict=True)
    )
    if not 1 < len(sizes) <= len(FIELD_NAMES):
        raise PopulationError(f"fields {text!r}: {len(sizes)} fields; must be 2 or 3")
    cells = math.prod(size.values for size in sizes)
    if min(size.values for size in sizes) < _FEWEST_VALUES or cells > _MOST_CELLS:
        raise PopulationError(
            f"fields {text!r}: each must have at least {_FEWEST_VALUES} values, and all together "
            f"at most {_MOST_CELLS} cells"
        )
    return sizes


def joint_population(
    sizes: Sequence[FieldSize],
    family: str,
    partners: float,
    rng: np.random.Generator,
    *,
    hashed: bool = False,
    prefix: str = "",
) -> JointPopulation:
    """Make up fields and the shares of all their tuples.

    Parameters
    ----------
    family : str
        Of each field's shares, as `family_shares` takes it.
    partners : float
        Share of the clients who hold the partner of their first field's value in all other fields.
        Partners are drawn: each value of the first field has one in each other field.
    hashed : bool
        Whether tuples are hashed although no field has strings.
    prefix : str
        Of all strings, so that different runs have different ones.

    Raises
    ------
    PopulationError
        If there is no such family.
    """
    shape = [size.values for size in sizes]
    listed = tuple(
        _listed(name, size, prefix) for name, size in zip(FIELD_NAMES, sizes, strict=False)
    )
    names = FIELD_NAMES[: len(sizes)]
    types = map(_field_type, sizes, listed)
    return JointPopulation(
        JointType(tuple(map(Field, names, types)), hashed),
        listed,
        tuple(dict(zip(names, held, strict=True)) for held in itertools.product(*listed)),
        _tuple_shares([family_shares(family, n) for n in shape], partners, rng).ravel(),
    )


def _tuple_shares(
    margins: Sequence[FloatArray], partners: float, rng: np.random.Generator
) -> FloatArray:
    """Return the shares of all tuples, one dimension a field."""
    first, *others = margins
    shares = margins[0]
    for margin in others:
        shares = np.multiply.outer(shares, margin)
    places = (np.arange(len(first)), *(rng.integers(len(each), size=len(first)) for each in others))
    tied = np.zeros(shares.shape)
    tied[places] = first
    return np.asarray((1 - partners) * shares + partners * tied)


def _field_type(size: FieldSize, listed: Sequence[str | bool]) -> FieldType:
    if size.strings:
        return StringType()
    return BooleanType() if listed == _BOOLEAN else EnumType(tuple(map(str, listed)))


def _listed(name: str, size: FieldSize, prefix: str) -> tuple[str | bool, ...]:
    """Return a field's values: of two that are no strings, false and true."""
    if size.strings:
        return tuple(f"{prefix}{name} {i}" for i in range(1, size.values + 1))
    if size.values == len(_BOOLEAN):
        return _BOOLEAN
    return tuple(f"{name} {i}" for i in range(1, size.values + 1))
