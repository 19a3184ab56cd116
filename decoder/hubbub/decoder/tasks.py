"""Files of reports -> tasks -> counts, or whole reports that workers keep, on any engine.

A task is some row groups of one file, so it never spans days; its counts add up. A worker keeps the
reports of some cohorts, sorted as `packed` sorts them: it reads all files for that, but only once,
and only sums come back, so nothing is shuffled and no report goes through the process that decodes.
Invariants: each row of the planned files is in exactly one task, and an export's files never
change; parts are those of `cut_cohorts` with the same rows in the same order, so sums over them are
those of one process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.decoder.engines import DaskEngine, Engine, LocalEngine
from hubbub.inference import (
    GROUPED_BITS,
    AnomalyDetector,
    FloatArray,
    PackedReports,
    RawReports,
    ReportSpool,
    UndecodableError,
    cut_cohorts,
    packed,
)
from hubbub.inference.counts import CohortCounts
from hubbub.protocol import (
    Columns,
    KeptCounts,
    RapporParams,
    interleaved,
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
            detector.take(found.kept, found.keys)
        yield found.kept


_Result = TypeVar("_Result")
_Shared = TypeVar("_Shared")
_Asked = tuple[Callable[[_Shared, PackedReports, int], _Result], _Shared]
MOST_BYTES = 2**30
"""Most bytes of a part's bits, which engines keep and pass on as one value."""


class PackSettings(NamedTuple):
    """The settings that all parts of the reports share."""

    params: RapporParams
    tasks: tuple[Task, ...]  # all of the files


def pack_cohorts(settings: PackSettings, cohorts: range) -> PackedReports:
    """Read all files, and keep the reports of some cohorts (raises as `count_task`)."""
    params, tasks = settings
    spool = ReportSpool(params)
    for task in tasks:
        for reports in read_task(task, params):
            own = (reports.cohorts >= cohorts.start) & (reports.cohorts < cohorts.stop)
            spool.add(interleaved(Columns(reports.cohorts[own], reports.bits[own])).data)
    return spool.finish()


def group_task(params: RapporParams, task: Task) -> PackedReports:
    """Read a task's reports, and keep equal ones once (raises as `count_task`)."""
    return pack_cohorts(PackSettings(params, (task,)), range(params.m))


@dataclass(frozen=True, slots=True, eq=False)
class DistributedReports:
    """Reports that workers keep, one by one; see `RawReports`."""

    params: RapporParams
    by_cohort: FloatArray
    engine: DaskEngine
    kept: Sequence[Any]

    @property
    def total(self) -> int:
        """Number of reports."""
        return int(self.by_cohort.sum())

    @property
    def rows(self) -> int:
        """The number of rows, one per report."""
        return self.total

    def map(
        self,
        work: Callable[[_Shared, PackedReports, int], _Result],
        shared: _Shared,
        threads: int,  # noqa: ARG002 - engines do as many tasks at once as they have cores
    ) -> Iterator[_Result]:
        """Yield `work(shared, part, 1)` of each part, in order."""
        return self.engine.map(_do, (work, shared), self.kept)


def _do(asked: _Asked[_Shared, _Result], part: PackedReports) -> _Result:
    work, shared = asked
    return work(shared, part, 1)


def is_distributed(engine: Engine | None, n_reports: int) -> bool:
    """Return whether workers are to keep so many reports: of one part only one would have use."""
    return isinstance(engine, DaskEngine) and n_reports > packed.PART_REPORTS


def distribute(
    engine: Engine, tasks: Sequence[Task], params: RapporParams, counts: CohortCounts
) -> RawReports:
    """Let an engine's workers keep the reports of files, whose `counts` are known.

    Raises `UndecodableError` if there are too few cohorts for parts of a size that engines can
    keep; `ReportFileError, EngineError` if files are gone, or the engine fails, perhaps only when a
    part is asked for.
    """
    if params.k <= GROUPED_BITS:
        spool = ReportSpool(params)
        for grouped in engine.map(group_task, params, tasks):
            spool.add_grouped(grouped)
        return spool.finish()
    if not isinstance(engine, DaskEngine):
        raise TypeError(f"{engine.name}: must be an engine that keeps results")
    parts = cut_cohorts(params, counts.total)
    for cohorts in parts:
        size = int(counts.reports[cohorts.start : cohorts.stop].sum()) * (params.k // 8)
        if size > MOST_BYTES:
            raise UndecodableError(
                f"likelihood: {size:,} bytes of reports in cohorts {cohorts.start} to "
                f"{cohorts.stop - 1}; a worker of --engine {engine.name} keeps at most "
                f"{MOST_BYTES:,}. Decode fewer days, or use --method regression"
            )
    kept = engine.keep(pack_cohorts, PackSettings(params, tuple(tasks)), parts)
    return DistributedReports(params, counts.reports.astype(np.float64), engine, kept)
