"""Let the app fork only when its child can work, or take the child's telemetry away.

A child has only the thread that forked. If another thread was importing a module, that module stays
locked; if it had a database open, SQLite in the child relies on locks that the child
doesn't hold, and waits for locks that are never released. So our threads do both under one lock.
A fork acquires it first, and then has connections closed. A thread that is at a disk that hangs
doesn't release it: after a while the fork goes on, and its child must never open a database.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ORPHANED = "forked while another thread was at a disk that hung"
"""Why telemetry is off in the child of such a fork."""

MOST_SECONDS = 5.0
"""How long a fork waits at most: as long as a transaction waits for those of other processes."""

_lock = threading.RLock()
_preparations: list[Callable[[], None]] = []
_restarts: list[Callable[[], None]] = []
_process = os.getpid()
_acquired = True  # by the fork that is under way
_hangs = False  # the thread that held it when a fork gave up holds it still
_orphaned = False


@contextmanager
def no_fork() -> Iterator[None]:
    """Make forks wait until this context is left; one thread at a time may enter it."""
    global _hangs  # noqa: PLW0603
    with _lock:
        try:
            yield
        finally:
            _hangs = False


def before_fork(prepare: Callable[[], None]) -> None:
    """Register what is done before each fork, while no other thread is in `no_fork`."""
    _preparations.append(prepare)


def after_fork(restart: Callable[[], None]) -> None:
    """Register what is done in each child, in this order."""
    _restarts.append(restart)


def notice_fork() -> None:
    """Do what is due in a child that was forked in C, as by uWSGI: Python didn't notice."""
    global _acquired  # noqa: PLW0603
    if os.getpid() != _process:
        _acquired = _lock.acquire(blocking=False)
        if _acquired:
            for prepare in _preparations:
                prepare()
        _in_child()


def is_orphaned() -> bool:
    """Whether this process was forked while a thread that it doesn't have was in `no_fork`."""
    return _orphaned


def _before() -> None:
    global _acquired, _hangs  # noqa: PLW0603
    _acquired = _lock.acquire(timeout=0 if _hangs else MOST_SECONDS)
    _hangs = not _acquired
    if _acquired:
        for prepare in _preparations:
            prepare()


def _in_parent() -> None:
    if _acquired:
        _lock.release()


def _in_child() -> None:
    global _lock, _orphaned, _process  # noqa: PLW0603
    _process = os.getpid()
    _lock = threading.RLock()  # others may have waited for the old one
    _orphaned = _orphaned or not _acquired
    for restart in _restarts:
        restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
