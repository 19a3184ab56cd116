"""One metric type of each sort, as the tests of metrics use them."""

from hubbub.protocol import (
    BooleanType,
    EnumType,
    Field,
    FieldType,
    JointType,
    OpenStringType,
    OrdinalType,
    StringType,
)

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
