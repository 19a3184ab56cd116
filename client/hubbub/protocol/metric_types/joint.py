"""Several fields as one value, so that it can be seen which go together: the type "joint".

The tuple of all fields is what a client reports: one value, under one epsilon, whichever field
changes. If all tuples are known and few, each has a bit of its own; otherwise tuples are hashed as
strings are. Invariant: different tuples have different cells, or different bytes that are hashed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hubbub.protocol import checks as check
from hubbub.protocol.errors import EncodingError, MetricError, ParameterError
from hubbub.protocol.metric_types.base import ListedValues, MetricType, Value
from hubbub.protocol.metric_types.one_hot import BooleanType, EnumType, OrdinalType
from hubbub.protocol.metric_types.strings import (
    MOST_COHORTS_OF_STRINGS,
    StringType,
    byte_positions,
    canonical_bytes,
)
from hubbub.protocol.params import MOST_BITS, check_integer

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

FieldType = EnumType | BooleanType | OrdinalType | StringType
FIELD_TYPES: dict[str, type[FieldType]] = {
    "enum": EnumType,
    "boolean": BooleanType,
    "ordinal": OrdinalType,
    "string": StringType,
}
"""Field types by name."""
FIELD_KEYS: dict[str, tuple[str, ...]] = {
    "enum": ("categories", "other"),
    "boolean": (),
    "ordinal": ("edges",),
    "string": (),
}
"""The keys of a field's table besides its name and type."""
FEWEST_FIELDS, MOST_FIELDS = 2, 3
"""One field is a metric of its own type; four would have too many cells to be seen in noise."""
RESULT_COLUMNS = (
    "count", "std_error", "count_low", "count_high", "proportion", "prop_std_error", "prop_low",
    "prop_high", "refit", "p_value", "q_value", "detected", "group", "given",
    "expected", "residual", "residual_std_error", "residual_q_value",
)  # fmt: skip
"""Names that no field can have, because results have columns of these names."""
SEPARATOR = b"\xff"
"""Between the parts of a tuple that is hashed: no UTF-8 has this byte."""


class Field(NamedTuple):
    """One of the variables of a joint metric."""

    name: str  # by which values name it, and results
    type: FieldType


def number_of_values(field_type: MetricType) -> int | None:
    """Return how many values a field can have; None: any text."""
    return 2 if isinstance(field_type, BooleanType) else field_type.width


class JointType(MetricType):
    """Two or three fields, of which every combination of values is a value of its own.

    `fields`: 2 or 3, with different names. `hashed`: whether tuples are hashed although all are
    known; they always are with a string field. `cells`: how many tuples there are; None with a
    string field.
    """

    __slots__ = ("_names", "cells", "fields", "hashed")
    name = "joint"
    keys = ("fields",)
    optional_keys = ("k", "h", "m")

    def __init__(self, fields: tuple[Field, ...], hashed: bool = False) -> None:
        self.fields = fields
        self._names = frozenset(self.field_names())
        self.cells = _cells(fields)
        self.hashed = hashed or self.cells is None

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the fields, and whether their tuples are hashed into fewer bits than they are."""
        fields = _fields(f"{where}.fields", table["fields"])
        cells, k = _cells(fields), table.get("k")
        if cells is None:
            check.require(where, table, ("k", "m"))
            return cls(fields)
        if k is None:
            if cells > MOST_BITS:
                raise MetricError.about(
                    f"{where}.fields",
                    f"{where}.fields: have {cells} cells, more than {MOST_BITS} bits; give k and "
                    "m, with which cells are hashed",
                )
        else:
            try:
                check_integer("k", k, 8, MOST_BITS)
            except ParameterError as error:
                raise MetricError.about(f"{where}.k", f"{where}.{error}") from error
            if k < cells:
                check.require(where, table, ("m",))
                return cls(fields, hashed=True)
        for key in ("h", "m"):
            number = table.get(key, 1)
            if isinstance(number, bool) or number != 1:
                raise MetricError.of(
                    f"{where}.{key}",
                    number,
                    f"1, or left out, where each of the {cells} cells has a bit of its own; a k "
                    f"below {cells} hashes them",
                )
        return cls(fields)

    @property
    def width(self) -> int | None:
        """Number of cells; None if they are hashed."""
        return None if self.hashed else self.cells

    def filter_size(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return k, h and m as the table has them, or one bit per cell (ParameterError)."""
        if not self.hashed:
            size = super().filter_size(table)
            return {**size, "k": table.get("k", size["k"])}
        check_integer("m", table["m"], 1, MOST_COHORTS_OF_STRINGS)
        return {"k": table["k"], "h": table.get("h", 1), "m": table["m"]}

    def definition(self) -> dict[str, object]:
        """Return the fields, and whether their tuples are hashed."""
        fields = [
            {"name": name, "type": a_type.name, **a_type.definition()}
            for name, a_type in self.fields
        ]
        return {"fields": fields, "hashed": self.hashed}

    def listed_values(self) -> ListedValues:
        """Return the cells, if all are known and none is hashed."""
        if self.hashed:
            return super().listed_values()
        labels = (field.type.listed_values().labels for field in self.fields)
        return ListedValues(tuple(", ".join(cell) for cell in itertools.product(*labels)))

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the bit of the value's cell, or the Bloom filter of its bytes (EncodingError)."""
        parts = self.digits(value)
        if not self.hashed:
            return 1 << self.cell(parts)
        bits = 0
        for position in byte_positions(self.tuple_bytes(parts), cohort, params):
            bits |= 1 << position
        return bits

    def true_bits(self, params: RapporParams) -> range:
        """Return 1, or 1 to h if tuples are hashed, for hashes may collide."""
        return range(1, params.h + 1 if self.hashed else 2)

    def field_names(self) -> tuple[str, ...]:
        """Return the names of all fields."""
        return tuple(field.name for field in self.fields)

    def digits(self, value: Value) -> tuple[int | str, ...]:
        """Return the number of each field's value, in order; of a string field, its NFC form."""
        if not isinstance(value, Mapping):
            names = ", ".join(self.field_names())
            raise EncodingError(
                f"value of type {type(value).__name__}: must be a mapping with the fields {names}"
            )
        if value.keys() != self._names:
            missing = ", ".join(name for name in self.field_names() if name not in value)
            raise EncodingError(
                f"value: must have exactly the fields {', '.join(self.field_names())}; "
                f"{f'{missing} missing' if missing else 'there are others'}"
            )
        return tuple(_digit(field, value[field.name]) for field in self.fields)

    def cell(self, digits: Sequence[int | str]) -> int:
        """Return the number of a tuple, in which the last field's changes fastest."""
        cell = 0
        for field, digit in zip(self.fields, digits, strict=True):
            cell = cell * (number_of_values(field.type) or 1) + int(digit)
        return cell

    def tuple_bytes(self, parts: Sequence[int | str]) -> bytes:
        """Return what is hashed of a tuple, from its `digits`."""
        return SEPARATOR.join(
            canonical_bytes(part) if isinstance(part, str) else b"%d" % part for part in parts
        )


def _fields(where: str, tables: object) -> tuple[Field, ...]:
    if (
        not isinstance(tables, list)
        or not FEWEST_FIELDS <= len(tables) <= MOST_FIELDS
        or not all(isinstance(table, dict) for table in tables)
    ):
        expected = f"{FEWEST_FIELDS} or {MOST_FIELDS} tables, one a field"
        raise MetricError.of(where, tables, expected)
    faults = check.Faults()
    fields: list[Field] = []
    for i, table in enumerate(tables):
        with faults.collected():
            field = _field(f"{where}[{i}]", table)
            if field.name in [other.name for other in fields]:
                message = f"{where}[{i}].name = {field.name!r}: must differ from other fields'"
                raise MetricError.about(f"{where}[{i}].name", message)
            fields.append(field)
    faults.raise_found()
    return tuple(fields)


def _field(where: str, table: Mapping[str, Any]) -> Field:
    check.require(where, table, ("name", "type"))
    named = f"{where}.name"
    name = check.metric_name(named, check.text(named, table["name"]))
    if name in RESULT_COLUMNS:
        message = f"{named} = {name!r}: must not be the name of a column of results"
        raise MetricError.about(named, message)
    type_name = check.choice(f"{where}.type", table["type"], FIELD_TYPES)
    check.refuse_unknown(where, table, ("name", "type", *FIELD_KEYS[type_name]))
    field_type = FIELD_TYPES[type_name]
    if field_type is not StringType:
        check.require(where, table, field_type.keys)
    return Field(name, field_type.from_table(where, table))


def _cells(fields: Sequence[Field]) -> int | None:
    """Return how many tuples there are; None with a string field."""
    cells = 1
    for field in fields:
        values = number_of_values(field.type)
        if values is None:
            return None
        cells *= values
    return cells


def _digit(field: Field, value: object) -> int | str:
    try:
        if isinstance(field.type, StringType):
            return canonical_bytes(value).decode()
        return field.type.number(value)
    except EncodingError as error:
        raise type(error)(f"field {field.name!r}: {error}") from None
