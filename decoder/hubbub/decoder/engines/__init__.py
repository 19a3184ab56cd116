"""Where pure tasks run: this machine's threads, or Dask.

    with open_engine("dask", "tcp://host:8786") as engine:
        for counts in engine.map(count_task, params, tasks):
            total += counts

`work(shared, task)` is a function of a module, because Dask sends it by name; `shared` is one
read-only value, which each worker gets once. All of it, and what `work` returns, must be picklable.

Invariants: results come in the order of their tasks, so that sums of floats don't depend on the
engine or the number of cores; only a few tasks per worker are ahead of the one that is waited for,
so that memory doesn't grow with the number of tasks; the first exception of `work`, in the order of
tasks, is raised as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from hubbub.inference.parallel import cores
from hubbub.protocol.errors import Option, OptionError

_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

LOCAL = "local"
ENGINES = (LOCAL, "dask")
AHEAD = 3  # tasks of each thread: one runs, and more are there when it ends


class Engine(Protocol):
    """Anything that maps pure tasks."""

    @property
    def name(self) -> str:
        """One of `ENGINES`."""
        ...

    def map(
        self,
        work: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Iterator[_Result]:
        """Yield `work(shared, task)` of each task, in the order of tasks.

        Raises `EngineError` if the engine fails where it doesn't help to do a task again.
        """
        ...


class LocalEngine:
    """Threads, by default one per core, because numpy and Arrow let go of the interpreter."""

    name = LOCAL

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or cores()

    def map(
        self,
        work: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Iterator[_Result]:
        """Yield results in the order of tasks; see `Engine`."""
        threads = min(self._threads, len(tasks))
        if threads <= 1:
            for task in tasks:
                yield work(shared, task)
            return
        under_way: deque[Future[_Result]] = deque()
        pool = ThreadPoolExecutor(threads, "task")
        try:
            for task in tasks:
                under_way.append(pool.submit(work, shared, task))
                if len(under_way) > AHEAD * threads:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def open_engine(name: str = LOCAL, master: str | None = None) -> Iterator[Engine]:
    """Start an engine, or connect to one; stop it, or disconnect, at the end.

    `name`: one of `ENGINES`, of which only what is asked for is imported. `master`: the address of
    a Dask scheduler; None: workers of this machine's own. Raises `OptionError` if there is no such
    engine, or it has no master. Raises `EngineError` if it can't be started or reached, or its
    package isn't installed.
    """
    if name not in ENGINES:
        raise OptionError(Option("engine", name), f": must be one of {', '.join(ENGINES)}.")
    if name != LOCAL:
        from hubbub.decoder.engines.dask import open_dask  # noqa: PLC0415 - seldom

        with open_dask(master) as dask:
            yield dask
        return
    if master is not None:
        raise OptionError(Option("master", master), " belongs to ", Option("engine", "dask"), ".")
    yield LocalEngine()
