"""The types that a metric can have, by the name that metrics.toml gives them.

A new type is a subclass of `MetricType` in a module of its own that `register` is given; nothing
else on this side asks which type a metric has. An installed package brings its own by an entry
point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metric_types.enums import BooleanType, EnumType, OrdinalType
from hubbub.protocol.metric_types.joint import JointType
from hubbub.protocol.metric_types.numbers import NumberType
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metric_types.strings import StringType

__all__ = [
    "METRIC_TYPES", "BooleanType", "EnumType", "JointType", "MetricType", "NumberType",
    "OpenStringType", "OrdinalType", "StringType", "register",
]  # fmt: skip

_Type = TypeVar("_Type", bound=type[MetricType])

METRIC_TYPES: dict[str, type[MetricType]] = {}
"""The types by name, in the order in which error messages list them."""
ENTRY_POINTS = "hubbub.metric_types"
"""Group in which installed packages name their types."""


def register(metric_type: _Type) -> _Type:
    """Let metrics.toml use a type; also a class decorator.

    Raises `ValueError` if another type has that name already.
    """
    if METRIC_TYPES.setdefault(metric_type.name, metric_type) is not metric_type:
        raise ValueError(f"metric type {metric_type.name!r}: must be registered only once")
    return metric_type


def types_for(name: object) -> Mapping[str, type[MetricType]]:
    """Return the types by name, and an installed package's if that has the one asked for.

    Packages are searched only for unknown names: that takes longer than a client's start.
    """
    if isinstance(name, str) and name not in METRIC_TYPES:
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINTS, name=name):
            register(point.load())
    return METRIC_TYPES


for _metric_type in (
    StringType, EnumType, BooleanType, OrdinalType, NumberType, OpenStringType, JointType,
):  # fmt: skip
    register(_metric_type)
