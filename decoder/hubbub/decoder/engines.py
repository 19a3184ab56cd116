"""Where pure tasks run: this machine's threads, or Dask's workers.

    with open_engine("dask", "tcp://host:8786") as engine:
        for counts in engine.map(count_task, params, tasks):
            total += counts

`work(shared, task)` is a function of a module, because Dask sends it by name; `shared` is one
read-only value, which each worker gets once. Both, and the results, must be picklable. Invariants:
results come in the order of their tasks, so that sums of floats don't depend on the engine or the
number of cores; only a few tasks per worker are ahead of the one that is waited for, so memory
doesn't grow with the number of tasks; the first exception of `work`, in the order of tasks, is
raised as it was.

Dask does a task again whose worker was killed. What tasks share is the result of a task itself, so
that it is made again, too, if the only worker that has it is lost. Workers of this machine's own
listen on loopback alone, and need the key that was made for them: anyone who can talk to a worker
can run code in it.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import pkgutil
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

from hubbub.inference import DecoderError, cores
from hubbub.protocol import Option, OptionError


class EngineError(DecoderError):
    """An engine can't be started or reached, or gave up on a task."""


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
        self._threads = threads

    def map(
        self,
        work: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Iterator[_Result]:
        """Yield results in the order of tasks; see `Engine`."""
        threads = min(self._threads or cores(), len(tasks))
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

    `master` is the address of a Dask scheduler; None: workers of this machine. Raises `OptionError`
    for an engine that isn't there, `EngineError` if it can't be started or reached, or isn't
    installed.
    """
    if name not in ENGINES:
        raise OptionError(Option("engine", name), f": must be one of {', '.join(ENGINES)}.")
    if name != LOCAL:
        with open_dask(master) as dask:
            yield dask
        return
    if master is not None:
        raise OptionError(Option("master", master), " belongs to ", Option("engine", "dask"), ".")
    yield LocalEngine()


_PATIENCE = 60.0
"""Seconds to wait for a scheduler, or for workers where all are gone."""
_LOOK = 1.0  # seconds: lost workers are seen within two of these
_NO_WORKER = (
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
_DASKS_OWN = ("dask", "distributed", "tornado", "asyncio", "concurrent")
"""Packages whose exceptions aren't those of a task's work."""


class DaskEngine:
    """The workers that a `distributed.Client` knows."""

    name = "dask"

    def __init__(self, client: Any) -> None:
        self._client = client

    def map(
        self, work: Callable[[Any, Any], _Result], shared: Any, tasks: Sequence[Any]
    ) -> Iterator[_Result]:
        """Yield results in the order of tasks, which may be what `keep` returned; see `Engine`."""
        under_way: deque[Any] = deque()
        try:
            submit = self._submitter(work, shared)
            for task in tasks:
                under_way.append(submit(task))
                if len(under_way) > AHEAD * max(1, sum(self._workers().values())):
                    yield self._wait(under_way.popleft())
            while under_way:
                yield self._wait(under_way.popleft())
        finally:
            for future in under_way:
                future.release()

    def keep(
        self, make: Callable[[Any, Any], object], shared: Any, tasks: Sequence[Any]
    ) -> list[Any]:
        """Let workers keep `make(shared, task)` of each task; `map` takes them as tasks.

        They stay where they were made, in memory or on the worker's disk; what is lost with a
        worker is made again.
        """
        return list(map(self._submitter(make, shared), tasks))

    def _submitter(self, work: Callable[[Any, Any], object], shared: Any) -> Callable[[Any], Any]:
        held = self._client.submit(_held, pickle.dumps(partial(work, shared)), pure=False)

        def submit(task: Any) -> Any:
            given = task if hasattr(task, "key") else pickle.dumps(task)  # futures have keys
            return self._client.submit(_run, _own_version(), held, given, pure=False)

        return submit

    def _workers(self) -> dict[str, int]:
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        return {address: worker["nthreads"] for address, worker in found.items()}

    def _wait(self, future: Any) -> Any:
        """Return a task's result, unless there is no worker left to do it."""
        import asyncio  # noqa: PLC0415 - takes long to import

        # Asked for once: a call that gives up after a second begins to fetch again each time, and
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
                    raise EngineError(_NO_WORKER)
                before = now
            return answer.result()
        except Exception as error:
            if type(error).__module__.partition(".")[0] in _DASKS_OWN:
                raise _explained(error) from error
            raise
        finally:
            answer.cancel()


async def _fetch(future: Any) -> Any:
    return await future


def _held(packed: bytes) -> bytes:
    return packed


def _run(expected: str, packed: bytes, task: Any) -> object:
    """Do one task in a worker: bytes to unpickle, or what was kept.

    It unpickles only what is meant for its own version: what Dask can't unpickle ends the worker.
    """
    if (own := _own_version()) != expected:
        raise EngineError(
            f"the worker on {platform.node()} (process {os.getpid()}) has {own}, but this side has "
            f"{expected}: install the same on both"
        )
    call = _unpacked(packed)
    return call(pickle.loads(task) if isinstance(task, bytes) else task)  # noqa: S301 - as above


@lru_cache(maxsize=1)  # a worker gets many tasks of the same work
def _unpacked(packed: bytes) -> Callable[[Any], object]:
    call: Callable[[Any], object] = pickle.loads(packed)  # noqa: S301 - from whoever may run code
    return call


def _own_version() -> str:
    return f"hubbub {version('hubbub')}"


@contextmanager
def open_dask(master: str | None) -> Iterator[DaskEngine]:
    """Connect to a scheduler, or start workers on this machine; disconnect, or stop them."""
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
            try:
                # A task would end a worker that has no hubbub, instead of failing.
                client.run(pkgutil.resolve_name, f"{__name__}:{_run.__name__}.__name__")
            except Exception as error:
                raise _explained(error) from error
            yield DaskEngine(client)


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


def _explained(error: Exception) -> EngineError:
    """Return the error of an engine that gave up, in a line."""
    text = str(error) or type(error).__name__
    if "No module named 'hubbub" in text:
        return EngineError(
            f"--engine dask: a worker has no hubbub, or an earlier one; expected {_own_version()} "
            "and the decoder's packages: pip install 'hubbub[dask]'"
        )
    return EngineError(f"--engine dask: {type(error).__name__}: {text.strip().splitlines()[0]}")
