"""The same work on many pieces, by all cores at once.

numpy lets go of the interpreter while it computes, so threads suffice.

Invariant: pieces are cut the same way however many cores there are, so that results are the same,
too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_Piece = TypeVar("_Piece")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def each(work: Callable[[_Piece], object], pieces: Sequence[_Piece]) -> None:
    """Do the work on all pieces, in no order; its first exception ends it and is raised.

    `work`: takes a piece; what it returns is dropped. `pieces`: each independent of the others.
    """
    count = min(cores(), len(pieces))
    if count <= 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(work, pieces):
            pass


class _OneThread:
    """How many ask that linear algebra keeps to one thread, and what to restore in the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._askers = 0
        self._libraries: ThreadpoolController | None = None
        self._modules = 0
        self._limited = 0
        self._limits: list[Any] = []

    def enter(self) -> None:
        with self._lock:
            self._askers += 1
            # Looking for libraries takes milliseconds, and some are loaded by imports in between.
            if self._libraries is None or self._modules != len(sys.modules):
                self._modules = len(sys.modules)
                self._libraries = ThreadpoolController()
            if self._limited != self._modules:
                self._limited = self._modules
                self._limits.append(self._libraries.limit(limits=1))

    def leave(self) -> None:
        with self._lock:
            self._askers -= 1
            if not self._askers:
                self._limited = 0
                while self._limits:
                    self._limits.pop().restore_original_limits()


_ONE_THREAD = _OneThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra on one thread until the last that asks for it has left.

    The digits that sums of many threads end in depend on how many there are; and small systems of
    equations, or pieces that are worked on in parallel anyway, would only wait for such threads.
    """
    _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave()
