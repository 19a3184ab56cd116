"""The types that a metric can have, by the name that metrics.toml gives them.

A new type is a subclass of `MetricType` in another module that `register` is given; nothing else on
this side asks which type a metric has. An installed package brings its own by an entry point.
"""

from __future__ import annotations

from hubbub.protocol.metric_types.base import METRIC_TYPES, MetricType, register, types_for
from hubbub.protocol.metric_types.joint import JointType
from hubbub.protocol.metric_types.one_hot import BooleanType, EnumType, NumberType, OrdinalType
from hubbub.protocol.metric_types.strings import OpenStringType, StringType

__all__ = [
    "METRIC_TYPES", "BooleanType", "EnumType", "JointType", "MetricType", "NumberType",
    "OpenStringType", "OrdinalType", "StringType", "register", "types_for",
]  # fmt: skip

for _metric_type in (
    StringType, EnumType, BooleanType, OrdinalType, NumberType, OpenStringType, JointType,
):  # fmt: skip
    register(_metric_type)
