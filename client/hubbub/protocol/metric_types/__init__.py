"""The types that a metric can have, by the name that metrics.toml gives them.

A new type is a subclass of `MetricType` in a module of its own that `register` is given; nothing
else on this side asks which type a metric has.
"""

from __future__ import annotations

from typing import TypeVar

from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.ordinals import OrdinalType
from hubbub.protocol.metric_types.strings import StringType

_Type = TypeVar("_Type", bound=type[MetricType])

METRIC_TYPES: dict[str, type[MetricType]] = {}
"""The types by name, in the order in which error messages list them."""


def register(metric_type: _Type) -> _Type:
    """Let metrics.toml use a type; also a class decorator.

    Raises
    ------
    ValueError
        If another type has that name already.
    """
    if METRIC_TYPES.setdefault(metric_type.name, metric_type) is not metric_type:
        raise ValueError(f"metric type {metric_type.name!r}: must be registered only once")
    return metric_type


for _metric_type in (StringType, EnumType, BooleanType, OrdinalType):
    register(_metric_type)
