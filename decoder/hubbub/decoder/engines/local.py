"""The engine of one machine: threads, because numpy and Arrow let go of the interpreter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from hubbub.inference.parallel import cores

_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_AHEAD = 3  # tasks of each thread: one runs, and more are there when it ends


class LocalEngine:
    """Threads of this process, as many as there are cores.

    Parameters
    ----------
    threads : int, optional
    """

    name = "local"

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
                if len(under_way) > _AHEAD * threads:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
