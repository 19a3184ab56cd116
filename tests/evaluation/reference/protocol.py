"""Sections 1 to 6 of docs/protocol, one function a section, bit by bit."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from fractions import Fraction
from typing import Any, NamedTuple

from evaluation.reference import responses
from evaluation.reference.murmur3 import fmix32, murmur3_x86_128


class Domain(NamedTuple):
    """What keeps one metric's randomness apart from another's."""

    application: str
    metric: str
    version: int


def bloom_positions(value: str, cohort: int, k: int, h: int) -> list[int]:
    return hashed_positions(value_bytes(value), cohort, k, h)


def value_bytes(value: str) -> bytes:
    return unicodedata.normalize("NFC", value).encode()


def hashed_positions(data: bytes, cohort: int, k: int, h: int) -> list[int]:
    words = murmur3_x86_128(data)
    positions = []
    for i in range(h):
        x = (words[0] + (cohort * h + i) * (words[1] | 1)) % 2**32
        positions.append(fmix32(x) % k)
    return positions


def open_string_bytes(value: str, step: int, steps: list[int]) -> bytes:
    """Return what is hashed of an open string's value at a step, the first being number 0."""
    data = value_bytes(value)
    if step == len(steps):
        return data
    if len(data) < steps[step]:
        return data + b"\xff"
    return data[: steps[step]]


def open_string_cohort(in_step: int, step: int, steps: list[int], cohorts: int) -> int:
    """Return the number with which a step's cohort is hashed: those of the last step come first."""
    return in_step if step == len(steps) else (step + 1) * cohorts + in_step


def category_bit(value: str, categories: list[str], other: bool = False) -> int:
    normal = [unicodedata.normalize("NFC", category) for category in categories]
    wanted = unicodedata.normalize("NFC", value)
    if other and wanted not in normal:
        return len(categories)
    return normal.index(wanted)


def bucket_bit(value: float, edges: list[float]) -> int:
    return sum(edge <= value for edge in edges)


def field_number(field: dict[str, Any], value: Any) -> int:
    """Return the number of a value of a joint metric's field, which isn't a string."""
    if field["type"] == "boolean":
        return 1 if value else 0
    if field["type"] == "enum":
        return category_bit(value, field["categories"], field.get("other", False))
    return bucket_bit(value, field["edges"])


def field_size(field: dict[str, Any]) -> int | None:
    """Return how many values a joint metric's field has; None: any text."""
    if field["type"] == "string":
        return None
    if field["type"] == "boolean":
        return 2
    if field["type"] == "ordinal":
        return len(field["edges"]) + 1
    return len(field["categories"]) + (1 if field.get("other") else 0)


def joint_shape(entry: dict[str, Any]) -> tuple[bool, int, int, int]:
    """Return whether a joint metric's values are hashed, and its k, h and m."""
    sizes = [field_size(field) for field in entry["fields"]]
    known = [size for size in sizes if size is not None]
    cells = math.prod(known) if len(known) == len(sizes) else math.inf
    if cells > entry.get("k", 4096):
        return True, entry["k"], entry.get("h", 1), entry["m"]
    return False, entry.get("k", -(-int(cells) // 8) * 8), 1, 1


def joint_cell(fields: list[dict[str, Any]], value: dict[str, Any]) -> int:
    """Return a value's place among all, of which the last field's changes fastest."""
    cell, below = 0, 1
    for field in reversed(fields):
        cell += below * field_number(field, value[field["name"]])
        below *= field_size(field) or 0
    return cell


def joint_bytes(fields: list[dict[str, Any]], value: dict[str, Any]) -> bytes:
    data = b""
    for i, field in enumerate(fields):
        part = value[field["name"]]
        text = part if field["type"] == "string" else str(field_number(field, part))
        data += (b"\xff" if i else b"") + value_bytes(text)
    return data


class Noise(NamedTuple):
    """The chances of both responses."""

    f0: float
    f1: float
    p: float
    q: float


def noise(entry: dict[str, Any]) -> Noise:
    """Return the chances with which single bits are reported, of any response."""
    if entry.get("response") == "subset" or entry["type"] == "number":
        return responses.noise_of_bits(entry)
    half = entry.get("f", 0.0) / 2
    f0, f1 = entry.get("f0", half), entry.get("f1", half)
    return Noise(f0, f1, entry.get("p", 0.0), entry.get("q", 1.0))


def epsilons(
    kind: str,
    h: int,
    p: float,
    q: float,
    f: float = 0.0,
    f0: float | None = None,
    f1: float | None = None,
) -> tuple[float, float]:
    """Return (permanent, report) by the formulas of section 1, in plain floating point."""
    zero, one = f / 2 if f0 is None else f0, f / 2 if f1 is None else f1
    low, high = zero * q + (1 - zero) * p, one * p + (1 - one) * q
    up, down = abs(math.log(high / low)), abs(math.log((1 - low) / (1 - high)))
    of_one = math.log((1 - one) / zero) if zero else math.inf
    of_zero = math.log((1 - zero) / one) if one else math.inf
    if kind == "boolean":
        return max(of_one, of_zero), max(up, down)
    return h * (of_one + of_zero), h * (up + down)


def epsilon_after(kind: str, h: int, chances: Noise, n: int) -> float:
    """Return what n reports of one permanent response reveal, by the ratios of their likelihoods.

    Only how many of a bit's n reports are 1 matters, so n + 1 likelihoods are compared.
    """
    f0, f1, p, q = map(Fraction, chances)

    def likelihood(ones: int, true: int) -> Fraction:
        of_set = q**ones * (1 - q) ** (n - ones)
        of_unset = p**ones * (1 - p) ** (n - ones)
        return (1 - f1) * of_set + f1 * of_unset if true else f0 * of_set + (1 - f0) * of_unset

    ratios = [likelihood(ones, 1) / likelihood(ones, 0) for ones in range(n + 1)]
    most, least = math.log(max(ratios)), math.log(min(ratios))
    return max(most, -least) if kind == "boolean" else h * (most - least)


def bits_to_bytes(positions: list[int], k: int) -> bytes:
    data = bytearray(k // 8)
    for j in positions:
        data[j // 8] |= 1 << j % 8
    return bytes(data)


def message(*parts: bytes) -> bytes:
    joined = b""
    for part in parts:
        joined += len(part).to_bytes(4, "little") + part
    return joined


def keyed_message(tag: str, secret: bytes, domain: Domain, *details: bytes) -> bytes:
    version = domain.version.to_bytes(4, "little")
    names = domain.application.encode(), domain.metric.encode()
    return message(tag.encode(), secret, *names, version, *details)


def stream_bit(stream: bytes, k: int, turn: int, lane: int) -> int:
    """Return the digit that lane `lane` gets in round `turn`."""
    return stream[turn * k // 8 + lane // 8] >> lane % 8 & 1


def bernoulli(probabilities: list[float], stream: bytes) -> bytes:
    """Return one bit per lane: 1 where the lane's uniform number is below its probability."""
    k = len(probabilities)
    ones = []
    for lane, probability in enumerate(probabilities):
        rest, turn = Fraction(probability), 0
        while 0 < rest < 1:
            rest *= 2
            digit = int(rest >= 1)
            drawn = stream_bit(stream, k, turn, lane)
            turn += 1
            if drawn != digit:
                rest = Fraction(digit)  # below if the probability's digit is the 1
            else:
                rest -= digit
        if rest == 1:
            ones.append(lane)
    return bits_to_bytes(ones, k)


def shake(data: bytes, n: int) -> bytes:
    return hashlib.shake_256(data).digest(n)


def cohort(secret: bytes, domain: Domain, m: int) -> int:
    return uniform_below(m, Stream(keyed_message("hubbub/1/cohort", secret, domain)))


class Stream:
    """The output of SHAKE-256, from its beginning on."""

    def __init__(self, data: bytes) -> None:
        self._output = shake(data, 2**15)
        self._read = 0

    def take(self, n: int) -> bytes:
        self._read += n
        taken = self._output[self._read - n : self._read]
        assert len(taken) == n
        return taken


def uniform_below(bound: int, stream: Stream) -> int:
    """Return an integer from 0 on, of the first 32-bit word that favours none."""
    while True:
        word = int.from_bytes(stream.take(4), "little")
        if word < 2**32 - 2**32 % bound:
            return word % bound


def permanent(
    secret: bytes, domain: Domain, in_cohort: int, bits: bytes, f0: float, f1: float
) -> bytes:
    k = 8 * len(bits)
    data = keyed_message(
        "hubbub/1/permanent", secret, domain, in_cohort.to_bytes(2, "little"), bits
    )
    lanes = [f1 if bits[j // 8] >> j % 8 & 1 else f0 for j in range(k)]
    flips = bernoulli(lanes, shake(data, 1100 * k // 8))
    return bytes(a ^ b for a, b in zip(bits, flips, strict=True))


def instantaneous(bits: bytes, p: float, q: float, stream: bytes) -> bytes:
    lanes = range(8 * len(bits))
    return bernoulli([q if bits[j // 8] >> j % 8 & 1 else p for j in lanes], stream)
