"""Spark as an engine: a driver here, whose executors run hubbub in Python.

Tasks and results are bytes, those that are kept, too; neither rows that are counted go through the
JVM, nor any type of Arrow or pandas. Each job has one task per core, and two jobs are under way, so
that cores don't wait for the last task of a job.

Invariant: with a master on this machine everything listens on loopback alone, and asks for the key
that Spark makes for the session.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
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
_JOBS = 2  # the next one's tasks start while the last one's stragglers end
_FAILURES = 4  # as of Spark's clusters; of `local[N]` a task may not fail even once
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM that only hands bytes on: what the second compiler takes long for is seldom run again,
and there is little garbage."""
_JAVA_MEMORY = "512m"
"""Of such a JVM, whose default of 1 GB it fills with garbage before it looks for any."""
_LOCAL = re.compile(r"local(\[(\d+|\*)\])?")


class SparkEngine:
    """The executors that a context knows.

    Parameters
    ----------
    context : pyspark.SparkContext
    """

    name = "spark"

    def __init__(self, context: Any) -> None:
        self._context = context
        self._kept: list[_KeptOnSpark] = []

    def map(
        self,
        work: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Iterator[_Result]:
        """Yield results in the order of tasks; see `Engine`."""
        size = max(1, self._context.defaultParallelism)
        held, do = _sent(self._context, work, shared)
        under_way: deque[Future[list[bytes]]] = deque()
        pool = ThreadPoolExecutor(_JOBS, "job")
        try:
            for start in range(0, len(tasks), size):
                packed = [packed_task(task) for task in tasks[start : start + size]]
                under_way.append(pool.submit(self._collect, do, packed))
                if len(under_way) > _JOBS:
                    yield from map(result_of, _answers(under_way.popleft()))
            while under_way:
                yield from map(result_of, _answers(under_way.popleft()))
        finally:
            if under_way:
                self._context.cancelAllJobs()
            pool.shutdown(cancel_futures=True)
            held.unpersist()

    def keep(
        self,
        make: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Kept[_Result]:
        """Keep results in the executors' memory, or on their disks; see `Keeper`."""
        packed = [packed_task(task) for task in tasks]
        held, do = _sent(self._context, make, shared)
        values = self._context.parallelize(packed, len(packed)).mapPartitions(do)
        level = importlib.import_module("pyspark").StorageLevel.MEMORY_AND_DISK
        self._kept.append(_KeptOnSpark(self._context, values.persist(level), held))
        return self._kept[-1]

    def release(self) -> None:
        """Forget what is kept."""
        while self._kept:
            self._kept.pop().release()

    def _collect(self, do: Callable[..., Iterator[bytes]], tasks: list[bytes]) -> list[bytes]:
        found: list[bytes] = (
            self._context.parallelize(tasks, len(tasks)).mapPartitions(do).collect()
        )
        return found


class _KeptOnSpark:
    """A persisted partition a result; those that are lost are made again."""

    def __init__(self, context: Any, values: Any, made_with: Any) -> None:
        self._context = context
        self._values = values
        self._made_with = made_with

    def map(self, work: Callable[[_Shared, Any], _Result], shared: _Shared) -> Iterator[_Result]:
        """Yield results in order; see `Kept`."""
        held, do = _sent(self._context, work, shared)
        try:
            answers = self._values.mapPartitions(do).collect()
        except Exception as error:
            raise explained("spark", error) from error
        finally:
            held.unpersist()
        yield from map(result_of, answers)

    def release(self) -> None:
        """Forget the results."""
        self._values.unpersist()
        self._made_with.unpersist()


def _sent(
    context: Any, work: Callable[[_Shared, Any], Any], shared: _Shared
) -> tuple[Any, Callable[[Iterable[bytes]], Iterator[bytes]]]:
    """Return what executors get once, and what they do with it to the tasks of a partition."""
    held = context.broadcast(packed_work(work, shared))
    return held, partial(_run_partition, (*own_versions(),), held)


def _run_partition(expected: tuple[str, int], held: Any, tasks: Iterable[bytes]) -> Iterator[bytes]:
    for task in tasks:
        yield run(expected, held.value, task)
        if not gc.get_freeze_count():
            # Spark's daemon looks for garbage after each task, also in all that was imported.
            gc.freeze()


def _answers(job: Future[list[bytes]]) -> list[bytes]:
    try:
        return job.result()
    except Exception as error:
        raise explained("spark", error) from error


@contextmanager
def open_spark(master: str | None) -> Iterator[SparkEngine]:
    """Start a session, and stop it; or take the one that this process, such as a notebook, has.

    Raises
    ------
    EngineError
        If the package or Java isn't there, or Spark doesn't start.
    """
    try:
        pyspark = importlib.import_module("pyspark")
    except ModuleNotFoundError as error:
        raise EngineError(
            f"--engine spark needs the package {error.name}: pip install 'hubbub[spark]'"
        ) from error
    _require_java()
    # Only a program that has imported this can have a session.
    sql = sys.modules.get("pyspark.sql")
    session = sql.SparkSession.getActiveSession() if sql else None
    if session is not None:
        engine = SparkEngine(session.sparkContext)
        try:
            yield engine
        finally:
            engine.release()
        return
    settings = _configuration(pyspark, master)
    try:
        with warnings.catch_warnings():
            # Spark imports its pandas parts, which nothing here uses, and warns of new versions.
            warnings.simplefilter("ignore", FutureWarning)
            context = pyspark.SparkContext(gateway=_gateway(settings), conf=settings)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise EngineError(
            f"--engine spark: {reason}; expected Java 17 or newer, and a master that can be "
            f"reached ({settings.get('spark.master')})"
        ) from error
    # The context's own default is whatever `python3` is on the executors.
    context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
    try:
        yield SparkEngine(context)
    finally:
        context.stop()


_gateways: list[Any] = []


def _gateway(settings: Any) -> Any:
    """Return the JVM of this process, started when it is first asked for.

    What the JVM prints is not for the reader: whatever matters comes as an exception.
    """
    if not _gateways:
        launch = importlib.import_module("pyspark.java_gateway").launch_gateway
        _gateways.append(launch(settings, {"stderr": subprocess.DEVNULL}))
    return _gateways[0]


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").exists() if home else shutil.which("java")):
        where = f"JAVA_HOME ({home})" if home else "the PATH"
        raise EngineError(
            f"--engine spark needs Java 17 or newer, and {where} has none (Debian: apt-get install "
            "openjdk-17-jre-headless)"
        )


def _configuration(pyspark: Any, master: str | None) -> Any:
    master = master or f"local[{cores()}]"
    settings = {
        "spark.app.name": "hubbub",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    local = _LOCAL.fullmatch(master)
    if local:
        master = f"local[{local[2] or 1},{_FAILURES}]"
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",
            "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
            "spark.driver.memory": _JAVA_MEMORY,
        }
    return pyspark.SparkConf().setMaster(master).setAll(list(settings.items()))
