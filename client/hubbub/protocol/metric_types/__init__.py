"""The types that a metric can have, by the name that metrics.toml gives them.

A new type is a subclass of `MetricType` in another module; nothing else on this side asks which
type a metric has.
"""

from __future__ import annotations

from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metric_types.joint import JointType
from hubbub.protocol.metric_types.one_hot import BooleanType, EnumType, NumberType, OrdinalType
from hubbub.protocol.metric_types.strings import OpenStringType, StringType

METRIC_TYPES: dict[str, type[MetricType]] = {
    each.name: each
    for each in (
        StringType, EnumType, BooleanType, OrdinalType, NumberType, OpenStringType, JointType,
    )
}  # fmt: skip
"""The types by name, in the order in which error messages list them."""
