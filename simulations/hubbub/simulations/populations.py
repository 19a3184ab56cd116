"""Populations with known truth: which values there are, and how often each is held.

The families are those of google/rappor's regression tests, over ranks 1 to v; first names and
surnames of the census, and domain names; or the values of a file.

Populations of several fields with known truth: which tuples of values clients hold, how often.

Each field has made-up values, whose shares are those of a family. Fields are independent but for a
share of the clients who hold the partners of their first field's value. Invariant: tuples are in
the order of cells, in which the last field changes fastest.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import itertools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
from disposable_email_domains import blocklist

from hubbub.inference import FieldLabels, FloatArray
from hubbub.protocol import JointType

FIELD_NAMES = ("first", "second", "third")
_STRINGS = "s"
_BOOLEAN = (False, True)
_LABELS: dict[str | bool, str] = {False: "false", True: "true"}
_FEWEST_VALUES, _MOST_CELLS = 2, 100_000
HASHED = {"k": 128, "m": 64}
"""Size of tuples that are hashed, unless given: the RAPPOR paper's k, and the largest of its m."""


@dataclass(frozen=True, slots=True)
class FieldSize:
    """How many values a field has, and whether they are strings: candidates of a listed field."""

    values: int
    strings: bool = False

    def __str__(self) -> str:
        return f"{self.values}{_STRINGS if self.strings else ''}"


@dataclass(frozen=True, slots=True)
class JointPopulation:
    """Tuples of values and the probability that a client holds each."""

    metric_type: JointType  # of the metric that they are values of
    # Values of each field, in the order of its digits, or of its candidates.
    listed: tuple[tuple[str | bool, ...], ...]
    values: tuple[dict[str, str | bool], ...]  # all tuples, as an app records them
    shares: FloatArray  # shape (n,); sum to 1

    @property
    def fields(self) -> tuple[FieldLabels, ...]:
        """The fields as results show them."""
        return tuple(
            FieldLabels(field.name, tuple(_LABELS.get(value, str(value)) for value in values))
            for field, values in zip(self.metric_type.fields, self.listed, strict=True)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each field has."""
        return tuple(map(len, self.listed))


def parse_sizes(text: str) -> tuple[FieldSize, ...]:
    """Read sizes such as 100x20 or, with a field of 1,000 strings, 1000sx2."""
    parts = [part.strip() for part in text.lower().replace("×", "x").split("x")]
    numbers = [part.removesuffix(_STRINGS) for part in parts]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise PopulationError(
            f"fields {text!r}: must be numbers of values, such as 100x20, or 1000sx2 with a field "
            "of strings"
        )
    sizes = tuple(
        FieldSize(int(number), part != number) for number, part in zip(numbers, parts, strict=True)
    )
    if not 1 < len(sizes) <= len(FIELD_NAMES):
        raise PopulationError(f"fields {text!r}: {len(sizes)} fields; must be 2 or 3")
    cells = math.prod(size.values for size in sizes)
    if min(size.values for size in sizes) < _FEWEST_VALUES or cells > _MOST_CELLS:
        raise PopulationError(
            f"fields {text!r}: each must have at least {_FEWEST_VALUES} values, and all together "
            f"at most {_MOST_CELLS} cells"
        )
    return sizes


def joint_population(
    sizes: Sequence[FieldSize],
    family: str,
    partners: float,
    rng: np.random.Generator,
    size: Mapping[str, int] | None = None,
    prefix: str = "",
) -> JointPopulation:
    """Make up fields and the shares of all their tuples.

    Each value of the first field has a partner, drawn, in each other field, which the share
    `partners` of its clients hold. `size` is k, h and m as metrics.toml may give them; the `prefix`
    makes strings of different runs differ.
    """
    names = FIELD_NAMES[: len(sizes)]
    listed = tuple(_listed(*each, prefix) for each in zip(names, sizes, strict=True))
    tables = [
        {"name": name, **_field_table(each, values)}
        for name, each, values in zip(names, sizes, listed, strict=True)
    ]
    return JointPopulation(
        JointType.from_table("joint", {"fields": tables, **(size or {})}),
        listed,
        tuple(dict(zip(names, held, strict=True)) for held in itertools.product(*listed)),
        _tuple_shares(
            [family_shares(family, len(values)) for values in listed], partners, rng
        ).ravel(),
    )


def _tuple_shares(
    margins: Sequence[FloatArray], partners: float, rng: np.random.Generator
) -> FloatArray:
    first, *others = margins
    shares = reduce(np.multiply.outer, margins)
    places = (np.arange(len(first)), *(rng.integers(len(each), size=len(first)) for each in others))
    tied = np.zeros(shares.shape)
    tied[places] = first
    return np.asarray((1 - partners) * shares + partners * tied)


def _field_table(size: FieldSize, listed: Sequence[str | bool]) -> dict[str, object]:
    if size.strings:
        return {"type": "string"}
    return {"type": "boolean"} if listed == _BOOLEAN else {"type": "enum", "categories": [*listed]}


def _listed(name: str, size: FieldSize, prefix: str) -> tuple[str | bool, ...]:
    if size.strings:
        return tuple(f"{prefix}{name} {i}" for i in range(1, size.values + 1))
    if size.values == len(_BOOLEAN):
        return _BOOLEAN
    return tuple(f"{name} {i}" for i in range(1, size.values + 1))


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

    values: tuple[str, ...]
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
        total = sum(percent for _, percent in rows)
        for name, percent in rows:
            weights[name] += percent / total
    shares = np.array(list(weights.values()))
    return Population(tuple(weights), shares / shares.sum())


def census_surnames() -> Population:
    """Return the surnames of the 1990 US census with their frequencies.

    Four fifths of them are stated as 0.000%: these share evenly what the table's cumulative
    frequency has beyond the others.
    """
    names, percents, cumulative = zip(*_census_rows(_SURNAMES), strict=True)
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
    return tuple(dict.fromkeys(name for table in tables for name, _ in _census_table(table)))


def _census_table(table: str) -> list[tuple[str, float]]:
    return [(name, percent) for name, percent, _ in _census_rows(table)]


def _census_rows(table: str) -> list[tuple[str, float, float]]:
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
