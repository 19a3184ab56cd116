"""Tests of coroutines, each in an event loop of its own."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

_P = ParamSpec("_P")


def in_event_loop(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
