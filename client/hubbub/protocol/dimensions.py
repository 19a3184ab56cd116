"""Dimensions: facts about the app that travel in the clear with a report, such as its platform.

A report's *slice* holds them as one text, "platform=mac,release=1.2". Invariants: a slice has one
text, in which the dimensions stand in the metric's order and what is unknown, or "other", is left
out, so that any client may have the empty text; and other slices are few, and never of few reports
(`pooled`), because a rare combination would identify its clients.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hubbub.protocol.checks import Faults
from hubbub.protocol.errors import MetricError

OTHER = "other"
"""The value of a dimension that isn't known, isn't listed, or is rare."""
NAME = "[a-z][a-z0-9_]{0,31}"
LONGEST_VALUE = 32
VALUE = f"[A-Za-z0-9._-]{{1,{LONGEST_VALUE}}}"
"""A few letters hold a platform or a release, and no sentence."""
SLICE = rf"(?:{NAME}={VALUE}(?:,{NAME}={VALUE})*)?"
LONGEST_SLICE = 190
"""Characters: with a metric's name of 64 and a separator it fits the compact form's one byte."""
MOST_SLICES = 64
"""Combinations of listed values that a metric may have: so many tables a reader can still look at,
and a share of 1/64 of a million reports is enough to decode.
"""
MIN_REPORTS = 100
"""Default of `min_reports`: the least group that statistical offices publish is 3 to 100; fewer
reports couldn't be decoded anyway.
"""
LEAST_MIN_REPORTS = 10
"""Lower bound on `min_reports`: statistical offices suppress cells of fewer than about ten, and a
report hides only among those of its slice; in a slice of one its client stands alone.
"""

_ATOM = r"(?:[A-Za-z0-9_-]|\\[.d]|\[(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|[._])+\])"
_TIMES = r"(?:[?+*]|\{\d{1,2}(?:,\d{1,2})?\})?"
_VARIES = r"(?<!\\)[?+*]|,\d"
_MOST_VARYING = 4
"""Parts of varying length: a value of 32 characters is then matched, or not, in a millisecond."""
_LONGEST_PATTERN = 64
"""Characters: twice those of a value."""
_PATTERN = f"(?:{_ATOM}{_TIMES})+"


class Dimension(NamedTuple):
    """A fact about the app, and the values that are listed."""

    name: str
    values: tuple[str, ...] = ()  # those that are listed; empty: those that match the pattern
    # A regular expression without groups and alternatives, which both clients read alike.
    pattern: str = ""

    @property
    def words(self) -> str:
        """Its values, as people read them."""
        if self.values:
            return f"{', '.join(self.values)} or {OTHER}"
        return f"what {self.pattern} matches, or {OTHER}"

    def has(self, value: str) -> bool:
        """Return whether the dimension lists this value."""
        if self.values:
            return value in self.values
        return (
            value != OTHER
            and re.fullmatch(VALUE, value) is not None
            and re.fullmatch(self.pattern, value, re.ASCII) is not None
        )


def is_slice(text: str) -> bool:
    """Return whether a text may be a report's slice, of whatever dimensions."""
    return len(text) <= LONGEST_SLICE and re.fullmatch(SLICE, text) is not None


def parse_slice(text: str) -> dict[str, str]:
    """Return the value of each dimension that a slice names."""
    return dict(part.split("=", 1) for part in text.split(",")) if text else {}


def slice_of(dimensions: Iterable[Dimension], values: Mapping[str, str]) -> str:
    """Return the slice with those of these values that the dimensions list."""
    return ",".join(
        f"{dimension.name}={values[dimension.name]}"
        for dimension in dimensions
        if dimension.name in values and dimension.has(values[dimension.name])
    )


def longest_slice(dimensions: Iterable[Dimension]) -> int:
    """Return how many characters a slice has at most."""
    sizes = [
        len(f"{dimension.name}=,") + max(map(len, dimension.values), default=LONGEST_VALUE)
        for dimension in dimensions
    ]
    return max(0, sum(sizes) - 1)


def pooled(
    reports: Mapping[str, int], dimensions: Sequence[Dimension], min_reports: int
) -> dict[str, str]:
    """Return into which slice each of a day's slices goes, so that none has few reports.

    A slice that is too small loses its last dimension to "other", then the one before, until it is
    large enough together with others or says nothing. If more than `MOST_SLICES` are left, the
    smallest do so, too. `dimensions`: what matters most comes first.
    """
    goes = {text: slice_of(dimensions, parse_slice(text)) for text in reports}
    for dimension in reversed(dimensions):
        sizes = _sizes(reports, goes)
        for text, into in goes.items():
            if sizes[into] < min_reports:
                values = parse_slice(into)
                values.pop(dimension.name, None)
                goes[text] = slice_of(dimensions, values)
    while len(sizes := _sizes(reports, goes)) > MOST_SLICES:
        ranked = sorted(filter(None, sizes), key=lambda text: (-sizes[text], text))
        shorter = {text: text.rpartition(",")[0] for text in ranked[MOST_SLICES:]}
        if not shorter:
            break
        goes = {text: shorter.get(into, into) for text, into in goes.items()}
    return goes


def _sizes(reports: Mapping[str, int], goes: Mapping[str, str]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for text, into in goes.items():
        sizes[into] += reports[text]
    return sizes


def read_dimensions(where: str, table: object) -> dict[str, Dimension]:
    """Return the dimensions of a registry's table, by name (MetricError)."""
    if not isinstance(table, dict):
        raise MetricError.of(where, table, "a table of dimensions")
    found: dict[str, Dimension] = {}
    faults = Faults()
    for name, value in table.items():
        with faults.collected():
            found[name] = _dimension(f"{where}.{name}", name, value)
    faults.raise_found()
    return found


def _dimension(where: str, name: str, value: object) -> Dimension:
    if not re.fullmatch(NAME, name):
        message = f"{where}: the name must be 1 to 32 of a-z, 0-9 and _, beginning with a letter"
        raise MetricError.about(where, message)
    if isinstance(value, dict) and value.keys() == {"pattern"}:
        return Dimension(name, pattern=_checked_pattern(f"{where}.pattern", value["pattern"]))
    if (
        not isinstance(value, list)
        or not 1 <= len(value) < MOST_SLICES
        or not all(isinstance(text, str) and re.fullmatch(VALUE, text) for text in value)
        or len({*value, OTHER}) <= len(value)
    ):
        raise MetricError.of(
            where,
            value,
            f"a list of 1 to {MOST_SLICES - 1} different values of 1 to 32 letters, digits, ., _ "
            f'and -, without "{OTHER}", which all others are; or {{ pattern = "..." }}',
        )
    return Dimension(name, tuple(value))


def _checked_pattern(where: str, pattern: object) -> str:
    if (
        isinstance(pattern, str)
        and len(pattern) <= _LONGEST_PATTERN
        and re.fullmatch(_PATTERN, pattern)
    ):
        try:
            re.compile(pattern, re.ASCII)
        except re.error as error:
            raise MetricError.about(where, f"{where} = {pattern!r}: {error}") from error
        if len(re.findall(_VARIES, pattern)) <= _MOST_VARYING:
            return pattern
    raise MetricError.of(
        where,
        pattern,
        f"a regular expression of at most {_LONGEST_PATTERN} characters: "
        r"letters, digits, -, _, \d, \. and [...], each with ?, +, * or "
        f"{{m,n}} behind it at most {_MOST_VARYING} times",
    )


def check_combinations(where: str, dimensions: Sequence[Dimension]) -> None:
    """Refuse dimensions of a metric that have too many combinations together (MetricError)."""
    combinations = math.prod(len(dimension.values) + 1 for dimension in dimensions)
    if combinations > MOST_SLICES:
        expected = f"dimensions with at most {MOST_SLICES} combinations, and not {combinations}"
        raise MetricError.of(where, [dimension.name for dimension in dimensions], expected)
    if longest_slice(dimensions) > LONGEST_SLICE:
        expected = f"dimensions whose slice has at most {LONGEST_SLICE} characters"
        raise MetricError.of(where, [dimension.name for dimension in dimensions], expected)
