"""Files of reports -> tasks -> counts, by this machine's threads or Dask's workers.

A task is some row groups of one file, so it never spans days; its counts add up. Invariants: each
row of the planned files is in exactly one task, and an export's files never change.

    with open_dask("tcp://host:8786") as engine:
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

import datetime as dt
import importlib
import logging
import os
import pickle
import pkgutil
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.decoder.options import LOCAL
from hubbub.inference import AnomalyDetector, DecoderError, cores
from hubbub.protocol import (
    Columns,
    KeptCounts,
    RapporParams,
    keep_columns,
    keep_none,
    repeat_keys,
    sample_step,
)
from hubbub.storage import (
    Location,
    ReportFile,
    ReportFileError,
    read_columns,
    require_reports,
    row_groups,
)


class EngineError(DecoderError):
    """An engine can't be started or reached, or gave up on a task."""


_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

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
        """Yield results in the order of tasks; see `Engine`."""
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

    def _submitter(self, work: Callable[[Any, Any], object], shared: Any) -> Callable[[Any], Any]:
        held = self._client.submit(_held, pickle.dumps(partial(work, shared)), pure=False)
        return lambda task: self._client.submit(
            _run, _own_version(), held, pickle.dumps(task), pure=False
        )

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


def _run(expected: str, packed: bytes, task: bytes) -> object:
    """Do one task in a worker.

    It unpickles only what is meant for its own version: what Dask can't unpickle ends the worker.
    """
    if (own := _own_version()) != expected:
        raise EngineError(
            f"the worker on {platform.node()} (process {os.getpid()}) has {own}, but this side has "
            f"{expected}: install the same on both"
        )
    call = _unpacked(packed)
    return call(pickle.loads(task))  # noqa: S301 - as below


@lru_cache(maxsize=1)  # a worker gets many tasks of the same work
def _unpacked(packed: bytes) -> Callable[[Any], object]:
    call: Callable[[Any], object] = pickle.loads(packed)  # noqa: S301 - from whoever may run code
    return call


def _own_version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - takes long to import

    return f"hubbub {version('hubbub')}"


@contextmanager
def open_dask(master: str | None = None) -> Iterator[DaskEngine]:
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


TASK_REPORTS = 2**21
"""Reports from which on a task is large enough: about a tenth of a second's work."""


class Task(NamedTuple):
    """Some row groups of a file."""

    path: Location
    first_row_group: int  # both included
    last_row_group: int
    day: dt.date | None  # whose reports they are; None of a file that names no day
    first_report: int  # how many reports earlier tasks have
    reports: int


class CountSettings(NamedTuple):
    """The settings that all tasks of a decoding share."""

    params: RapporParams
    step: int  # between how many reports one is looked at for being equal to others


class TaskCounts(NamedTuple):
    """The counts and keys of a task's reports."""

    kept: KeptCounts
    keys: NDArray[np.uint64]  # `repeat_keys` of the reports that are looked at


def plan_tasks(files: Iterable[ReportFile], task_reports: int = TASK_REPORTS) -> list[Task]:
    """Cut files into tasks, in order; one with `task_reports` gets no more row groups."""
    tasks: list[Task] = []
    planned = 0
    for file in files:
        where, day = _absolute(file.path), file.partition and file.partition.day
        groups = row_groups(where)
        require_reports(file, sum(groups))
        first = reports = 0
        for group, rows in enumerate(groups):
            reports += rows
            if reports >= task_reports or group == len(groups) - 1:
                tasks.append(Task(where, first, group, day, planned, reports))
                planned += reports
                first, reports = group + 1, 0
    return tasks


def _absolute(location: Location) -> Location:
    if not location.is_local:
        return location
    return Location("", PurePosixPath(Path(location.path).absolute()))


def count_task(settings: CountSettings, task: Task) -> TaskCounts:
    """Count a task's reports.

    Raises `ReportFileError` if the file holds anything but reports of the parameters, or is gone.
    """
    params, step = settings
    kept, keys, done = keep_none(params), [np.empty(0, dtype=np.uint64)], 0
    for reports in read_task(task, params):
        kept += keep_columns(reports, params)
        keys.append(repeat_keys(reports, -(task.first_report + done) % step, step))
        done += reports.reports
    return TaskCounts(kept, np.concatenate(keys))


def read_task(task: Task, params: RapporParams) -> Iterator[Columns]:
    """Yield a task's reports, some megabytes at a time (raises as `count_task`)."""
    groups, done = range(task.first_row_group, task.last_row_group + 1), 0
    for reports in read_columns(task.path, params.k, params.m, groups):
        yield reports
        done += reports.reports
    if done != task.reports:
        raise ReportFileError(f"{task.path}: {done} rows in row groups of {task.reports}")


def count_tasks(
    engine: Engine | None,
    tasks: Sequence[Task],
    params: RapporParams,
    detector: AnomalyDetector | None = None,
) -> Iterator[KeptCounts]:
    """Yield the counts of each task, in order; the detector sees what tasks saw."""
    settings = CountSettings(params, sample_step(sum(task.reports for task in tasks)))
    for found in (engine or LocalEngine()).map(count_task, settings, tasks):
        if detector:
            detector.add(found.kept, found.keys)
        yield found.kept
