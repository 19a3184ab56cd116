"""Checks of single entries of metrics.toml; a message has the place, the value and the rule."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from hubbub.protocol.errors import MetricError, RegistryError

if TYPE_CHECKING:
    import datetime as dt

_Word = TypeVar("_Word", bound=str)
NAME_PATTERN = "[a-z][a-z0-9_-]{0,63}"


class Faults:
    """Collects what is wrong, so that all of it is reported together.

    `found`: one for each fault.
    """

    def __init__(self) -> None:
        self.found: list[MetricError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep what is raised inside, and go on behind it."""
        try:
            yield
        except MetricError as error:
            known = set(map(str, self.found))
            self.found += [fault for fault in error.faults if str(fault) not in known]

    def raise_found(self) -> None:
        """Raise what was found, if anything was (MetricError)."""
        if self.found:
            raise self.found[0] if len(self.found) == 1 else RegistryError(self.found)


def refuse_unknown(
    where: str, table: Mapping[str, object], known: Collection[str], *, is_file: bool = False
) -> None:
    """Refuse unknown keys: they are typing mistakes, or belong to another type."""
    faults = Faults()
    for key in table:
        if key not in known:
            listed = f"must be one of: {', '.join(known)}{near(key, known)}"
            message = f"{where}: unknown key {key!r}; {listed}"
            field = key if is_file else f"{where}.{key}"
            faults.found.append(MetricError.about(field, message))
    faults.raise_found()


def require(where: str, table: Mapping[str, object], keys: Collection[str]) -> None:
    """Refuse a table that lacks keys."""
    faults = Faults()
    faults.found += [
        MetricError.about(f"{where}.{key}", f"{where}.{key}: is missing")
        for key in keys
        if key not in table
    ]
    faults.raise_found()


def is_metric_name(name: str) -> bool:
    """Return whether a metric may have this name."""
    return re.fullmatch(NAME_PATTERN, name) is not None


def metric_name(where: str, name: str) -> str:
    """Return a metric's name if it may be one."""
    if not is_metric_name(name):
        message = f"{where}: the name must be 1 to 64 of a-z, 0-9, _ and -, beginning with a letter"
        raise MetricError.about(where, message)
    return name


def text(where: str, value: object) -> str:
    """Return a text that isn't blank."""
    if not isinstance(value, str) or not value.strip():
        found = "is missing" if value is None else f"= {value!r}"
        raise MetricError.about(where, f"{where} {found}: must be a text that isn't blank")
    return value


def integer(where: str, value: object, low: int, high: int) -> int:
    """Return an integer within its range."""
    if type(value) is not int or not low <= value <= high:
        raise MetricError.of(where, value, f"an integer between {low} and {high}")
    return value


def boolean(where: str, value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise MetricError.of(where, value, "true or false, without quotes")
    return value


def _number(expected: str, holds: Callable[[float], bool]) -> Callable[[str, object], float]:
    def check(where: str, value: object) -> float:
        most = sys.float_info.max
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not -most <= value <= most or not holds(value):  # type: ignore[operator, arg-type]
            raise MetricError.of(where, value, expected)
        return float(value)  # type: ignore[arg-type]

    return check


finite = _number("a finite number", lambda _: True)
positive = _number("a number above 0", lambda x: x > 0)
share = _number("a number between 0 and 1", lambda x: 0 <= x <= 1)
probability = _number("a number strictly between 0 and 1", lambda x: 0 < x < 1)


def date(where: str, value: object) -> dt.date:
    """Return a day."""
    import datetime as dt

    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise MetricError.of(where, value, "a date like 2027-12-31, without quotes")
    return value


def choice(where: str, value: object, choices: Collection[_Word]) -> _Word:
    """Return one of a few words."""
    for word in choices:
        if word == value:
            return word
    raise MetricError.of(where, value, f"one of: {', '.join(choices)}{near(value, choices)}")


def different_texts(where: str, value: object, low: int, high: int) -> tuple[str, ...]:
    """Return a list of texts that differ also after normalisation."""
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise MetricError.of(where, value, f"a list of {low} to {high} texts")
    normal = {unicodedata.normalize("NFC", x) for x in value if isinstance(x, str)}
    if len(normal) < len(value):
        raise MetricError.of(where, value, "different texts")
    return tuple(value)


def ascending_numbers(where: str, value: object, low: int, high: int) -> tuple[float, ...]:
    """Return a strictly ascending list of finite numbers."""
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise MetricError.of(where, value, f"a list of {low} to {high} numbers")
    try:
        numbers = tuple(finite(where, number) for number in value)
    except MetricError:
        raise MetricError.of(where, value, "finite numbers") from None
    if any(a >= b for a, b in itertools.pairwise(numbers)):
        raise MetricError.of(where, value, "strictly ascending")
    return numbers


def ascending_integers(
    where: str, value: object, most: int, low: int, high: int
) -> tuple[int, ...]:
    """Return a strictly ascending list of 1 to `most` integers within a range."""
    if (
        not isinstance(value, list)
        or not 1 <= len(value) <= most
        or not all(type(x) is int for x in value)
        or any(a >= b for a, b in itertools.pairwise([low - 1, *value, high + 1]))
    ):
        expected = f"1 to {most} strictly ascending integers from {low} to {high}"
        raise MetricError.of(where, value, expected)
    return tuple(value)


def near(word: object, words: Collection[str]) -> str:
    """Return a question about the word that may have been meant, if one is close."""
    from difflib import get_close_matches

    near = get_close_matches(word, words, 1) if isinstance(word, str) else []
    return f" (did you mean {near[0]!r}?)" if near else ""
