"""Populations with known truth: which values there are, and how often each is held.

The families are those of google/rappor's regression tests, over ranks 1 to v; first names and
surnames of the census, and domain names; or the values of a file.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from disposable_email_domains import blocklist

from hubbub.inference import FloatArray

_FIRST_NAMES = ("dist.male.first", "dist.female.first")
_SURNAMES = "dist.all.last"
_EXPONENTIAL_RATE = 5.0
_GEOMETRIC_RATIO = 0.9
_LONGEST_DOMAIN = 41
"""Leaves out 9 of the package's 10,181."""
FAMILIES = ("uniform", "exponential", "gauss", "geometric", "zipf")


class PopulationError(Exception):
    """A population that can't be made of what was given."""


@dataclass(frozen=True, slots=True)
class Population:
    """Values and the probability that a client holds each."""

    values: tuple[Any, ...]  # as an app records them: strings, or tuples of several fields
    shares: FloatArray  # shape (v,); sum to 1


def family_shares(spec: str, n: int) -> FloatArray:
    """Return the shares of a named family over n values, shape (n,), the first the largest.

    `uniform`; `zipf:s`, in proportion to 1 / rank^s; `exponential:r`, to exp(-r rank / n);
    `geometric:r`, each r times the one before; `gauss`, a normal density of standard deviation n /
    6, of which google/rappor's tests take ranks about the middle. By default s = 1, r = 5, r = 0.9.
    """
    name, _, given = spec.partition(":")
    ranks = np.arange(1, n + 1, dtype=np.float64)
    if name in {"uniform", "gauss"} and given:
        raise PopulationError(f"population {spec!r}: {name} takes no number")
    if name == "uniform":
        return np.full(n, 1.0 / n)
    if name == "zipf":
        return _normalised(-_number(spec, given, 1.0) * np.log(ranks))
    if name == "exponential":
        return _normalised(-_number(spec, given, _EXPONENTIAL_RATE) * ranks / n)
    if name == "geometric":
        ratio = _number(spec, given, _GEOMETRIC_RATIO)
        if ratio >= 1:
            raise PopulationError(f"population {spec!r}: the ratio must be below 1")
        return _normalised(ranks * np.log(ratio))
    if name == "gauss":
        distance = np.sort(np.abs(ranks - n // 2))
        return _normalised(-0.5 * (distance / (n / 6)) ** 2)
    raise PopulationError(
        f"population {spec!r}: must be one of {', '.join((*FAMILIES, *LISTS))}, with a number as "
        "in zipf:1.0"
    )


def made_up(shares: FloatArray, prefix: str) -> Population:
    """Return a population of the strings prefix + "1", prefix + "2", ..."""
    return Population(tuple(f"{prefix}{i}" for i in range(1, len(shares) + 1)), shares)


def population_of_file(path: str) -> Population:
    """Return the values of a UTF-8 file ("-": standard input) with one client's value per line."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PopulationError(f"values {path}: can't be read as UTF-8: {error}") from error
    if not text:
        raise PopulationError(f"values {path}: empty; expected one client's value per line")
    lines = text.removesuffix("\n").split("\n")
    common = Counter(line.removesuffix("\r") for line in lines).most_common()
    counts = np.array([count for _, count in common], dtype=np.float64)
    return Population(tuple(value for value, _ in common), counts / counts.sum())


def census_first_names() -> Population:
    """Return the first names of the 1990 US census with their frequencies, half men, half women."""
    weights: dict[str, float] = defaultdict(float)
    for table in _FIRST_NAMES:
        rows = _census_table(table)
        total = sum(percent for _, percent, _ in rows)
        for name, percent, _ in rows:
            weights[name] += percent / total
    shares = np.array(list(weights.values()))
    return Population(tuple(weights), shares / shares.sum())


def census_surnames() -> Population:
    """Return the surnames of the 1990 US census with their frequencies.

    Four fifths of them are stated as 0.000%: these share evenly what the table's cumulative
    frequency has beyond the others.
    """
    names, percents, cumulative = zip(*_census_table(_SURNAMES), strict=True)
    weights = np.array(percents)
    rare = weights == 0
    weights[rare] = (cumulative[-1] - weights.sum()) / rare.sum()
    return Population(names, weights / weights.sum())


def domain_names() -> Population:
    """Return 10,172 domain names, none longer than 41 bytes, with shares as 1 / rank.

    They are those of the package disposable-email-domains, which has no ranks: they stand in the
    order of their SHA-256, which is a shuffle that every machine repeats.
    """
    names = (name for name in blocklist if len(name.encode()) <= _LONGEST_DOMAIN)
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return Population(tuple(ordered), family_shares("zipf", len(ordered)))


LISTS: dict[str, Callable[[], Population]] = {
    "census": census_first_names,
    "surnames": census_surnames,
    "domains": domain_names,
}
"""Populations whose values are a list of their own."""


def census_names() -> tuple[str, ...]:
    """Return every first name and surname of the 1990 US census, each once."""
    tables = (*_FIRST_NAMES, _SURNAMES)
    return tuple(dict.fromkeys(name for table in tables for name, *_ in _census_table(table)))


def _census_table(table: str) -> list[tuple[str, float, float]]:
    """Return each name, its percentage, and the sum of those up to it."""
    text = importlib.resources.files("names").joinpath(table).read_text(encoding="ascii")
    fields = (line.split() for line in text.splitlines())
    return [
        (name.capitalize(), float(percent), float(cumulative))
        for name, percent, cumulative, *_ in fields
    ]


def _number(spec: str, given: str, default: float) -> float:
    try:
        number = float(given) if given else default
    except ValueError:
        number = 0.0
    if not 0 < number < np.inf:
        raise PopulationError(f"population {spec!r}: {given!r} must be a number above 0")
    return number


def _normalised(log_weights: FloatArray) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())
