"""Section 11 of docs/protocol: what an app tells of itself, as a report's slice."""

from __future__ import annotations

import re
from typing import Any

from evaluation.reference.histories import COLOURS, EXPECTED

Json = dict[str, Any]

DIMENSIONS: Json = {
    "platform": ["mac", "windows", "linux"],
    "release": {"pattern": r"\d{1,2}\.\d+[a-c_.]?"},
    "channel": {"pattern": "[A-Z]?b*-?nightly"},
}
METRICS: dict[str, tuple[str, ...]] = {
    "none": (),
    "one": ("platform",),
    "two": ("release", "platform"),
    "all": ("platform", "channel", "release"),
}
VALUES: tuple[dict[str, str], ...] = (
    {},
    {"platform": "mac"},
    {"release": "1.2", "platform": "linux", "channel": "nightly"},
    {"platform": "other", "release": "12.345c", "channel": "Zbb-nightly"},
    {"platform": "Mac", "release": "123.4", "channel": "nightly "},
    {"platform": "", "release": "", "channel": ""},
    {"platform": "windows", "release": "1.2\n", "channel": "a;b=c,d"},
    {"release": "1." + 30 * "0"},
    {"release": "1." + 31 * "0"},
    {"release": "\u0661.2"},
    {"release": "1.2_", "channel": "other"},
)


def slices() -> list[Json]:
    """Give what an app says of itself, and the slices of its metrics' reports."""
    entry: Json = {
        "version": 1, **EXPECTED, "type": "enum", "categories": COLOURS,
        "f": 0.5, "p": 0.25, "q": 0.75,
    }  # fmt: skip
    metrics = {
        name: entry | ({"dimensions": list(names)} if names else {})
        for name, names in METRICS.items()
    }
    registry = {
        "application": "com.example.vectors", "dimensions": DIMENSIONS, "metrics": metrics,
    }  # fmt: skip
    return [
        {
            "registry": registry,
            "values": values,
            "slices": {name: _slice(names, values) for name, names in METRICS.items()},
            "mistyped": not all(
                value == "other" or _is_told(name, value) for name, value in values.items()
            ),
        }
        for values in VALUES
    ]


def longest_slice(dimensions: Json) -> str:
    """Return a slice that is as long as any."""
    return ",".join(
        f"{name}={max(values, key=len) if isinstance(values, list) else 32 * '0'}"
        for name, values in dimensions.items()
    )


def _slice(names: tuple[str, ...], values: dict[str, str]) -> str:
    told = [name for name in names if name in values and _is_told(name, values[name])]
    return ",".join(f"{name}={values[name]}" for name in told)


def _is_told(name: str, value: str) -> bool:
    dimension = DIMENSIONS[name]
    if isinstance(dimension, list):
        return value in dimension
    is_value = value != "other" and re.fullmatch(r"[A-Za-z0-9._-]{1,32}", value)
    return bool(is_value and re.fullmatch(dimension["pattern"], value))
