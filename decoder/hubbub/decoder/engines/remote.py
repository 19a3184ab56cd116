"""What engines share whose workers are other processes, perhaps on other machines.

What is sent is bytes, which a worker unpickles only when it has found that its hubbub is the same:
with another one, tasks might mean something else. What `work` raises comes back as a value, so that
an engine doesn't do again, nor wrap, what would only fail again; whatever an engine itself raises
is an `EngineError`.
"""

from __future__ import annotations

import os
import pickle
import platform
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

from hubbub.decoder.errors import EngineError

_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_PROTOCOL = 1  # the reports', as in docs/protocol
_MISSING = "No module named 'hubbub"
_REASON = re.compile(r"^\w+Error: |exited unexpectedly|Job aborted")


class Versions(NamedTuple):
    """What both sides must have in common."""

    hubbub: str
    protocol: int

    def __str__(self) -> str:
        return f"hubbub {self.hubbub} (protocol {self.protocol})"


class Failure(NamedTuple):
    """What `work` raised."""

    error: Exception


def own_versions() -> Versions:
    """Return this process's."""
    return Versions(version("hubbub"), _PROTOCOL)


def packed_work(work: Callable[[_Shared, _Task], object], shared: _Shared) -> bytes:
    """Return what all tasks have in common, as a worker takes it."""
    return pickle.dumps((work, shared), protocol=5)


def packed_task(task: object) -> bytes:
    """Return a task as a worker takes it."""
    return pickle.dumps(task, protocol=5)


def run(expected: tuple[str, int], packed: bytes, task: bytes) -> bytes:
    """Do one task, in a worker; the pickled result, or `Failure`.

    Parameters
    ----------
    expected : tuple
        The `Versions` of who asks.
    packed, task : bytes
        Of `packed_work` and `packed_task`; or the answer to a task before, whose result is this
        one's task, and whose failure is this one's.
    """
    own = own_versions()
    if own != expected:
        there = f"the worker on {platform.node()} (process {os.getpid()})"
        return _pickled_failure(
            EngineError(
                f"{there} has {own}, but this side {Versions(*expected)}: install the same on both"
            )
        )
    try:
        given = pickle.loads(task)  # noqa: S301 - see above
        if isinstance(given, Failure):
            return task
        work, shared = _unpacked(packed)
        return pickle.dumps(work(shared, given), protocol=5)
    except Exception as error:
        return _pickled_failure(error)


def result_of(answer: bytes) -> Any:
    """Return what `work` returned, or raise what it raised."""
    found = pickle.loads(answer)  # noqa: S301 - from the operator's own workers
    if isinstance(found, Failure):
        raise found.error
    return found


def explained(engine: str, error: Exception) -> EngineError:
    """Return the error of an engine that gave up, in a line."""
    text = str(error) or type(error).__name__
    if _MISSING in text or _MISSING in str(error.__cause__):
        return EngineError(
            f"--engine {engine}: a worker has no hubbub, or an earlier one; expected "
            f"{own_versions()} and the decoder's packages: pip install 'hubbub[{engine}]'"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Java's first line says only that something was called.
    reason = next((line for line in lines if _REASON.search(line)), lines[0])
    return EngineError(f"--engine {engine}: {type(error).__name__}: {reason}")


@lru_cache(maxsize=1)  # a worker gets many tasks of the same work
def _unpacked(packed: bytes) -> tuple[Callable[[Any, Any], object], Any]:
    work, shared = pickle.loads(packed)  # noqa: S301 - from whoever may run code here anyway
    return work, shared


def _pickled_failure(error: Exception) -> bytes:
    """Return an exception as bytes; one that can't be, by its text."""
    try:
        packed = pickle.dumps(Failure(error), protocol=5)
        pickle.loads(packed)  # noqa: S301 - some can be pickled, but not made again
    except Exception:
        packed = pickle.dumps(Failure(EngineError(f"{type(error).__name__}: {error}")))
    return packed
