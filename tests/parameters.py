"""Parameters of tests, of which one is enough for `make test`."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def long_but(quick: str, cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """Return cases by name, of which all but one are for `make test-long`."""
    return [
        pytest.param(case, id=name(case), marks=() if name(case) == quick else pytest.mark.long)
        for case in cases
    ]
