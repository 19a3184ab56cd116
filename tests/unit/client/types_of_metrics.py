"""One metric type of each sort, as the tests of metrics use them."""

from hubbub.protocol.metric_types.enums import BooleanType, EnumType, OrdinalType
from hubbub.protocol.metric_types.joint import Field, FieldType, JointType
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metric_types.strings import StringType

COLOURS = EnumType(("red", "green", "blue"))
TABS = OrdinalType((1.0, 10.0, 100.0))
OPEN_TEXT = OpenStringType((4, 7), 64)

CRASH = Field("crash", EnumType(("none", "oom"), other=True))
SLOW = Field("slow", BooleanType())
DRIVER = Field("driver", StringType())
CELLS = JointType((CRASH, SLOW, Field("tabs", TABS)))
HASHED = JointType((CRASH, DRIVER))

__all__ = [
    "CELLS",
    "COLOURS",
    "CRASH",
    "DRIVER",
    "HASHED",
    "OPEN_TEXT",
    "SLOW",
    "TABS",
    "BooleanType",
    "EnumType",
    "Field",
    "FieldType",
    "JointType",
    "OpenStringType",
    "OrdinalType",
    "StringType",
]
