"""How much of a test there is: cases, runs and examples, of which some do for `make test`."""

import os
from collections.abc import Callable, Container, Iterable
from typing import Any

import pytest
from hypothesis import settings


def number_of_runs(full: int) -> int:
    """Return how many of so many runs are made: a third, and all of them if HUBBUB_FULL is 1.

    Bounds follow from the number, so that the chance of a false alarm is the same: with fewer runs
    they are wider.
    """
    return full if os.environ.get("HUBBUB_FULL") == "1" else full // 3


def examples(all_of_them: int) -> settings:
    """Return settings of a property that needs other than 100 examples for `make test-long`.

    `make test` has the same part of them as of 100, and three at least.
    """
    part = settings().max_examples / 100
    return settings(max_examples=max(3, round(all_of_them * part)))


def long_but(quick: str, cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    return [
        pytest.param(case, id=name(case), marks=() if name(case) == quick else pytest.mark.long)
        for case in cases
    ]


def quick_and_full(quick: int, full: int) -> list[Any]:
    """Return the size of a sample for `make test`, and a larger one for `make test-long`."""
    return [pytest.param(quick, id="quick"), pytest.param(full, id="full", marks=pytest.mark.long)]


def quick_but(slow: Container[str], names: Iterable[str]) -> list[Any]:
    """Return names, of which the slow ones are for `make test-long`."""
    return [pytest.param(name, marks=pytest.mark.long if name in slow else ()) for name in names]
