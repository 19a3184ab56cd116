"""Checks of single entries of metrics.toml; a message says where, what was found, and the rule."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from hubbub.protocol.errors import MetricError

if TYPE_CHECKING:
    import datetime as dt

_Word = TypeVar("_Word", bound=str)
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def refuse_unknown(where: str, table: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse a key that nobody reads: it is a typing mistake, or belongs to another type."""
    for key in table:
        if key not in known:
            raise MetricError(f"{where}: unknown key {key!r}; must be one of: {', '.join(known)}")


def require(where: str, table: Mapping[str, object], keys: Collection[str]) -> None:
    """Refuse a table that lacks a key."""
    for key in keys:
        if key not in table:
            raise MetricError(f"{where}.{key}: is missing")


def is_metric_name(name: str) -> bool:
    """Return whether a metric may have this name."""
    return _NAME.fullmatch(name) is not None


def metric_name(where: str, name: str) -> str:
    """Return a metric's name if it may be one."""
    if not is_metric_name(name):
        raise MetricError(f"{where}: the name must be 1 to 64 of a-z, 0-9, _ and -, a letter first")
    return name


def text(where: str, value: object) -> str:
    """Return a text that isn't blank."""
    if not isinstance(value, str) or not value.strip():
        found = "is missing" if value is None else f"= {value!r}"
        raise MetricError(f"{where} {found}: must be a text that isn't blank")
    return value


def integer(where: str, value: object, low: int, high: int) -> int:
    """Return an integer within its range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MetricError(f"{where} = {value!r}: must be an integer between {low} and {high}")
    return value


def boolean(where: str, value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise MetricError(f"{where} = {value!r}: must be true or false, without quotes")
    return value


def positive(where: str, value: object) -> float:
    """Return a finite number above 0."""
    if not _is_finite(value) or not value > 0:  # type: ignore[operator]
        raise MetricError(f"{where} = {value!r}: must be a number above 0")
    return float(value)  # type: ignore[arg-type]


def finite(where: str, value: object) -> float:
    """Return a finite number."""
    if not _is_finite(value):
        raise MetricError(f"{where} = {value!r}: must be a finite number")
    return float(value)  # type: ignore[arg-type]


def probability(where: str, value: object) -> float:
    """Return a number strictly between 0 and 1."""
    if not _is_finite(value) or not 0 < value < 1:  # type: ignore[operator]
        raise MetricError(f"{where} = {value!r}: must be a number strictly between 0 and 1")
    return float(value)  # type: ignore[arg-type]


def date(where: str, value: object) -> dt.date:
    """Return a day."""
    import datetime as dt

    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise MetricError(f"{where} = {value!r}: must be a date like 2027-12-31, without quotes")
    return value


def choice(where: str, value: object, choices: Collection[_Word]) -> _Word:
    """Return one of a few words."""
    for word in choices:
        if word == value:
            return word
    raise MetricError(f"{where} = {value!r}: must be one of: {', '.join(choices)}")


def different_texts(where: str, value: object, low: int, high: int) -> tuple[str, ...]:
    """Return a list of texts that differ also after normalisation."""
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise MetricError(f"{where} = {value!r}: must be a list of {low} to {high} texts")
    normal = {unicodedata.normalize("NFC", x) for x in value if isinstance(x, str)}
    if len(normal) < len(value):
        raise MetricError(f"{where} = {value!r}: must be different texts")
    return tuple(value)


def ascending_numbers(where: str, value: object, low: int, high: int) -> tuple[float, ...]:
    """Return a strictly ascending list of finite numbers."""
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise MetricError(f"{where} = {value!r}: must be a list of {low} to {high} numbers")
    if not all(map(_is_finite, value)):
        raise MetricError(f"{where} = {value!r}: must be finite numbers")
    numbers = tuple(map(float, value))
    if any(a >= b for a, b in itertools.pairwise(numbers)):
        raise MetricError(f"{where} = {value!r}: must be strictly ascending")
    return numbers


def ascending_integers(
    where: str, value: object, most: int, low: int, high: int
) -> tuple[int, ...]:
    """Return a strictly ascending list of 1 to `most` integers within a range."""
    if (
        not isinstance(value, list)
        or not 1 <= len(value) <= most
        or not all(isinstance(x, int) and not isinstance(x, bool) for x in value)
        or any(a >= b for a, b in itertools.pairwise([low - 1, *value, high + 1]))
    ):
        raise MetricError(
            f"{where} = {value!r}: must be 1 to {most} strictly ascending integers from {low} to "
            f"{high}"
        )
    return tuple(value)


def _is_finite(value: object) -> bool:
    """Return whether a value is a number that a float can hold."""
    most = sys.float_info.max
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and -most <= value <= most  # type: ignore[operator]
