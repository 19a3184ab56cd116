"""Keep a fork of the app away from moments that its child could never leave.

A child has only the thread that forked. If another one was importing a module, that module stays
locked; if it had a database open, SQLite goes on to believe in locks that the child doesn't have,
and waits for ever for those that nobody will give back. So our threads do both under one lock,
which a fork takes first, after which it lets connections be closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_lock = threading.RLock()
_preparations: list[Callable[[], None]] = []


@contextmanager
def no_fork() -> Iterator[None]:
    """Let forks wait until this context is left; at most one thread is in it."""
    with _lock:
        yield


def before_fork(prepare: Callable[[], None]) -> None:
    """Have something done before each fork, when no other thread is in `no_fork`."""
    _preparations.append(prepare)


def _before() -> None:
    _lock.acquire()
    for prepare in _preparations:
        prepare()


def _in_parent() -> None:
    _lock.release()


def _in_child() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()  # others may have waited for the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
