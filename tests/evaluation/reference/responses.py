"""Section 9 of docs/protocol: reports that are drawn as a whole, of a category or a number."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from evaluation.reference import protocol

if TYPE_CHECKING:
    from evaluation.reference.protocol import Noise, Stream


def shape(entry: dict[str, Any]) -> tuple[int, int]:
    """Return d, the cells of a report, and w, how many of them are favoured."""
    if entry["type"] == "number":
        return entry["cells"], entry["window"]
    if entry["type"] == "joint":
        return math.prod(protocol.field_size(field) or 0 for field in entry["fields"]), entry[
            "size"
        ]
    return protocol.field_size(entry) or 0, entry["size"]


def epsilon(entry: dict[str, Any]) -> float:
    d, w = shape(entry)
    return math.log(entry["q"] * (d - w) / ((1 - entry["q"]) * w))


def noise_of_bits(entry: dict[str, Any]) -> Noise:
    """Return with which chances a single bit is reported."""
    (d, w), q = shape(entry), entry["q"]
    if entry["type"] == "number":
        return protocol.Noise(0.0, 0.0, (1 - q) / (d - w), q / w)
    if entry["type"] == "boolean":
        return protocol.Noise(0.0, 0.0, 1 - q, q)
    return protocol.Noise(0.0, 0.0, (q * (w - 1) + (1 - q) * w) / (d - 1), q)


def coin(chance: float, stream: Stream) -> bool:
    """Return whether a uniform number is below a chance, by their digits to the base 256."""
    rest = Fraction(chance)
    while rest:
        digit, rest = divmod(rest * 256, 1)
        (byte,) = stream.take(1)
        if byte != digit:
            return byte < digit
    return False


def subset(d: int, w: int, q: float, own: int, stream: Stream) -> list[int]:
    """Return the categories of a set that holds one's own with probability q."""
    drawn = [own] if coin(q, stream) else []
    others = [category for category in range(d) if category != own]
    at = 0
    while len(drawn) < w:
        chosen = at + protocol.uniform_below(len(others) - at, stream)
        others[at], others[chosen] = others[chosen], others[at]
        drawn.append(others[at])
        at += 1
    return sorted(drawn)


def window(d: int, w: int, q: float, position: int, stream: Stream) -> list[int]:
    inside = list(range(position, position + w))
    outside = [cell for cell in range(d) if cell not in inside]
    cells = inside if coin(q, stream) else outside
    return [cells[protocol.uniform_below(len(cells), stream)]]


def draw(entry: dict[str, Any], own: int, stream: Stream) -> list[int]:
    d, w = shape(entry)
    return (window if entry["type"] == "number" else subset)(d, w, entry["q"], own, stream)


def position(entry: dict[str, Any], value: float, cohort: int, stream: Stream) -> int:
    """Return where a number stands on the grid, in doubles as the document has it."""
    d, w = shape(entry)
    low, high = entry["low"], entry["high"]
    unit = 0.0 if value <= low else 1.0 if value >= high else (value - low) / (high - low)
    place = (unit * unit if cohort == 1 else unit) * (d - w)
    below = min(math.floor(place), d - w - 1)
    uniform = int.from_bytes(stream.take(8), "little") >> 11
    return below + (Fraction(uniform, 2**53) < Fraction(place) - below)
