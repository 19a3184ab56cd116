"""Dask as an engine: the processes of a scheduler somewhere, or some of this machine's own.

A task whose worker is killed is done again on another one. What tasks share is the result of a task
itself, so that Dask makes it again if the only worker that has it is lost.

Invariant: workers of this machine's own listen on loopback alone, and talk to nobody who hasn't the
key that was made for them: anybody who can talk to a worker can run code in it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import pkgutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, TypeVar

from hubbub.decoder.engines.interfaces import Kept
from hubbub.decoder.engines.remote import (
    explained,
    own_versions,
    packed_task,
    packed_work,
    result_of,
    run,
)
from hubbub.decoder.errors import EngineError
from hubbub.inference.parallel import cores

_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_AHEAD = 3  # tasks of each thread of the workers: one runs, and more are there when it ends
_PATIENCE = 60.0
"""Seconds to wait for a scheduler, or for workers where all are gone."""
_LOOK = 1.0  # seconds: lost workers are seen within two of these
_NOBODY = (
    f"--engine dask: no worker stayed in the last {_PATIENCE:.0f} seconds: they were lost, or "
    "ended at their first task, as those do that have no hubbub, or an earlier one; see their logs"
)
_SETTINGS = {
    # Tables of a long list of candidates are large, and sent once.
    "distributed.admin.large-graph-warning-threshold": "1GB",
    "distributed.comm.timeouts.connect": "30s",
    # Dask has malloc give memory back at once; counting would fetch it again for every block.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**30,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**30,
}


class DaskEngine:
    """The workers that a client of `distributed` knows.

    Parameters
    ----------
    client : distributed.Client
    """

    name = "dask"

    def __init__(self, client: Any) -> None:
        self._client = client

    def map(
        self,
        work: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Iterator[_Result]:
        """Yield results in the order of tasks; see `Engine`."""
        return self._results(work, shared, map(packed_task, tasks))

    def keep(
        self,
        make: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Kept[_Result]:
        """Keep results in the workers' memory, which Dask spills to their disks; see `Keeper`."""
        held = self._client.submit(_held, packed_work(make, shared), pure=False)
        expected = (*own_versions(),)
        return _KeptOnDask(
            self._results,
            [
                self._client.submit(run, expected, held, packed_task(task), pure=False)
                for task in tasks
            ],
        )

    def _results(
        self, work: Callable[[_Shared, Any], _Result], shared: _Shared, tasks: Iterable[Any]
    ) -> Iterator[_Result]:
        """Yield results of tasks that are bytes, or Dask's results of earlier ones."""
        expected = (*own_versions(),)
        under_way: deque[Any] = deque()
        try:
            held = self._client.submit(_held, packed_work(work, shared), pure=False)
            for packed in tasks:
                under_way.append(self._client.submit(run, expected, held, packed, pure=False))
                if len(under_way) > _AHEAD * max(1, sum(self._workers().values())):
                    yield result_of(self._wait(under_way.popleft()))
            while under_way:
                yield result_of(self._wait(under_way.popleft()))
        finally:
            for future in under_way:
                future.release()

    def _workers(self) -> dict[str, int]:
        """Return the threads of each worker, by its address."""
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        return {address: worker["nthreads"] for address, worker in found.items()}

    def _wait(self, future: Any) -> bytes:
        """Return a task's answer, unless there is nobody to do it."""
        # Asked for once: a call that gives up after a second begins to fetch anew each time, and
        # never ends where an answer takes longer to come.
        answer = asyncio.run_coroutine_threadsafe(_fetch(future), self._client.loop.asyncio_loop)
        before: set[str] = set()
        deadline = time.monotonic() + _PATIENCE
        try:
            while not wait([answer], timeout=_LOOK).done:
                now = set(self._workers())
                # Workers that come and go do nothing: those without hubbub end at their first task.
                if now & before:
                    deadline = time.monotonic() + _PATIENCE
                elif time.monotonic() > deadline:
                    raise EngineError(_NOBODY)
                before = now
            return answer.result()
        except EngineError:
            raise
        except Exception as error:
            raise explained("dask", error) from error
        finally:
            answer.cancel()


class _KeptOnDask:
    """Results of tasks, each with a worker that has it."""

    def __init__(self, results: Callable[..., Iterator[Any]], futures: list[Any]) -> None:
        self._results = results
        self._futures = futures

    def map(self, work: Callable[[_Shared, Any], _Result], shared: _Shared) -> Iterator[_Result]:
        """Yield results in order; see `Kept`."""
        return self._results(work, shared, self._futures)


async def _fetch(future: Any) -> bytes:
    answer: bytes = await future
    return answer


def _held(packed: bytes) -> bytes:
    return packed


@contextmanager
def open_dask(master: str | None) -> Iterator[DaskEngine]:
    """Connect to a scheduler, or start workers on this machine; disconnect, or stop them.

    Raises
    ------
    EngineError
        If the package isn't there, or no scheduler, or one without workers.
    """
    try:
        dask, distributed = map(importlib.import_module, ("dask", "distributed"))
    except ModuleNotFoundError as error:
        raise EngineError(
            f"--engine dask needs the package {error.name}: pip install 'hubbub[dask]'"
        ) from error
    with dask.config.set(_SETTINGS):
        if master is None:
            with _own_cluster(distributed) as cluster, distributed.Client(cluster) as client:
                yield DaskEngine(client)
            return
        try:
            client = distributed.Client(master, timeout=_PATIENCE / 2)
        # TypeError: for an address with TLS no certificates are configured.
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(
                f"--master {master}: {error}; expected a Dask scheduler, such as tcp://HOST:8786"
            ) from error
        with client:
            try:
                client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise EngineError(f"--master {master}: has no workers") from error
            _require_hubbub(client)
            yield DaskEngine(client)


def _require_hubbub(client: Any) -> None:
    """Raise EngineError if a worker has none: a task would end the worker instead of failing."""
    try:
        client.run(pkgutil.resolve_name, f"{run.__module__}:{run.__name__}.__name__")
    except Exception as error:
        raise explained("dask", error) from error


def _own_cluster(distributed: Any) -> Any:
    try:
        return distributed.LocalCluster(
            n_workers=cores(),
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            security=True,
            silence_logs=logging.CRITICAL,
        )
    except (OSError, RuntimeError) as error:
        raise EngineError(
            f"--engine dask: this machine's own workers didn't start: {error}"
        ) from error
