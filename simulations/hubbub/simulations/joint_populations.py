"""Populations of several fields with known truth: which tuples of values clients hold, how often.

Each field has made-up values, whose shares are those of a family. Fields are independent but for a
share of the clients who hold the partners of their first field's value. Invariant: tuples are in
the order of cells, in which the last field changes fastest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.joint.table import FieldLabels
from hubbub.protocol.metric_types.joint import JointType
from hubbub.simulations.populations import PopulationError, family_shares

FIELD_NAMES = ("first", "second", "third")
_STRINGS = "s"
_BOOLEAN = (False, True)
_LABELS: dict[str | bool, str] = {False: "false", True: "true"}
_FEWEST_VALUES, _MOST_CELLS = 2, 100_000
HASHED = {"k": 128, "m": 64}
"""Size of tuples that are hashed, unless given: the RAPPOR paper's k, and the largest of its m."""


@dataclass(frozen=True, slots=True)
class FieldSize:
    """How many values a field has, and whether they are strings: candidates of a listed field."""

    values: int
    strings: bool = False

    def __str__(self) -> str:
        return f"{self.values}{_STRINGS if self.strings else ''}"


@dataclass(frozen=True, slots=True)
class JointPopulation:
    """Tuples of values and the probability that a client holds each."""

    metric_type: JointType  # of the metric that they are values of
    # Values of each field, in the order of its digits, or of its candidates.
    listed: tuple[tuple[str | bool, ...], ...]
    values: tuple[dict[str, str | bool], ...]  # all tuples, as an app records them
    shares: FloatArray  # shape (n,); sum to 1

    @property
    def fields(self) -> tuple[FieldLabels, ...]:
        """The fields as results show them."""
        return tuple(
            FieldLabels(field.name, tuple(_LABELS.get(value, str(value)) for value in values))
            for field, values in zip(self.metric_type.fields, self.listed, strict=True)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each field has."""
        return tuple(map(len, self.listed))


def parse_sizes(text: str) -> tuple[FieldSize, ...]:
    """Read sizes such as 100x20 or, with a field of 1,000 strings, 1000sx2.

    Raises `PopulationError` if they are no such sizes, or too many cells in all.
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
    size: Mapping[str, int] | None = None,
    prefix: str = "",
) -> JointPopulation:
    """Make up fields and the shares of all their tuples.

    `family`: of each field's shares, as `family_shares` takes it. `partners`: share of the clients
    who hold the partner of their first field's value in all other fields. Partners are drawn: each
    value of the first field has one in each other field. `size`: k, h and m as metrics.toml may
    give them; with strings at least k and m. `prefix`: of all strings, so that different runs have
    different ones. Raises `MetricError` if the fields and k, h and m make no metric. Raises
    `PopulationError` if there is no such family.
    """
    names = FIELD_NAMES[: len(sizes)]
    listed = tuple(_listed(*each, prefix) for each in zip(names, sizes, strict=True))
    tables = [
        {"name": name, **_field_table(each, values)}
        for name, each, values in zip(names, sizes, listed, strict=True)
    ]
    return JointPopulation(
        JointType.from_table("joint", {"fields": tables, **(size or {})}),
        listed,
        tuple(dict(zip(names, held, strict=True)) for held in itertools.product(*listed)),
        _tuple_shares(
            [family_shares(family, len(values)) for values in listed], partners, rng
        ).ravel(),
    )


def _tuple_shares(
    margins: Sequence[FloatArray], partners: float, rng: np.random.Generator
) -> FloatArray:
    first, *others = margins
    shares = reduce(np.multiply.outer, margins)
    places = (np.arange(len(first)), *(rng.integers(len(each), size=len(first)) for each in others))
    tied = np.zeros(shares.shape)
    tied[places] = first
    return np.asarray((1 - partners) * shares + partners * tied)


def _field_table(size: FieldSize, listed: Sequence[str | bool]) -> dict[str, object]:
    if size.strings:
        return {"type": "string"}
    return {"type": "boolean"} if listed == _BOOLEAN else {"type": "enum", "categories": [*listed]}


def _listed(name: str, size: FieldSize, prefix: str) -> tuple[str | bool, ...]:
    if size.strings:
        return tuple(f"{prefix}{name} {i}" for i in range(1, size.values + 1))
    if size.values == len(_BOOLEAN):
        return _BOOLEAN
    return tuple(f"{name} {i}" for i in range(1, size.values + 1))
