"""Let the app fork only when its child can work.

A child has only the thread that forked. If another thread was importing a module, that module stays
locked for ever; if it had a database open, SQLite in the child relies on locks that the child
doesn't hold, and waits for locks that nobody will release. So our threads do both under one lock.
A fork acquires it first, and then has connections closed.
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
    """Make forks wait until this context is left; one thread at a time may enter it."""
    with _lock:
        yield


def before_fork(prepare: Callable[[], None]) -> None:
    """Register what is done before each fork, while no other thread is in `no_fork`."""
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
