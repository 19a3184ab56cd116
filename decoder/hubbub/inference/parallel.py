"""The same work on many pieces, by all cores at once.

numpy lets go of the interpreter while it computes, so threads suffice.

Invariant: pieces are cut the same way however many cores there are, so that results are the same,
too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Piece = TypeVar("_Piece")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def each(
    work: Callable[[_Piece], object], pieces: Sequence[_Piece], threads: int | None = None
) -> None:
    """Do the work on all pieces, in no order; its first exception ends it and is raised.

    Parameters
    ----------
    work : callable
        Takes a piece; what it returns is dropped.
    pieces : sequence
        The pieces, each independent of the others.
    threads : int, optional
        As many as there are cores if not given.
    """
    count = min(threads or cores(), len(pieces))
    if count <= 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(work, pieces):
            pass
