"""Files of reports -> tasks -> counts, on any engine.

A task is some row groups of one file, so it never spans days; what it returns adds up: counts,
numbers of set bits, and its part of the sample in which equal reports are looked for. Invariants:
the sums don't depend on the order or the number of tasks; each row of the planned files is in
exactly one task; and a file that was written anew since it was planned is refused, because part of
it may have been counted already.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.decoder.engines import Engine, LocalEngine
from hubbub.inference.anomalies import AnomalyDetector
from hubbub.protocol.counts import KeptCounts, keep_columns, keep_none
from hubbub.protocol.params import RapporParams
from hubbub.protocol.poisoning import repeat_keys, sample_step
from hubbub.protocol.records import Columns
from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.exports import ReportFile, require_reports
from hubbub.storage.files.locations import FileStamp, Location
from hubbub.storage.files.parquet import read_columns, read_layout

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
    stamp: FileStamp  # what the file had when tasks were planned


class CountSettings(NamedTuple):
    """What all tasks of a decoding need."""

    params: RapporParams
    step: int  # between how many reports one is looked at for being equal to others


class TaskCounts(NamedTuple):
    """What is known of a task's reports."""

    kept: KeptCounts
    keys: NDArray[np.uint64]  # `repeat_keys` of the reports that are looked at


def plan_tasks(files: Iterable[ReportFile], task_reports: int = TASK_REPORTS) -> list[Task]:
    """Cut files into tasks, in order; one with `task_reports` gets no more row groups.

    Raises `ReportFileError` if a file can't be read, or holds another number of reports than it
    must.
    """
    tasks: list[Task] = []
    planned = 0
    for file in files:
        where, day = _absolute(file.path), file.partition and file.partition.day
        layout = read_layout(where)
        require_reports(file, sum(layout.rows))
        first = reports = 0
        for group, rows in enumerate(layout.rows):
            reports += rows
            if reports >= task_reports or group == len(layout.rows) - 1:
                tasks.append(Task(where, first, group, day, planned, reports, layout.stamp))
                planned += reports
                first, reports = group + 1, 0
    return tasks


def _absolute(location: Location) -> Location:
    if not location.is_local:
        return location
    return Location("", PurePosixPath(Path(location.path).absolute()))


def count_task(settings: CountSettings, task: Task) -> TaskCounts:
    """Count a task's reports.

    Raises `ReportFileError` if the file isn't there, holds anything but reports of the parameters,
    or isn't the same file any more.
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
    for reports in read_columns(task.path, params.k, params.m, groups, task.stamp):
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
    """Yield the counts of each task, in order.

    `engine`: none: this machine's threads. `tasks`: all of a decoding. `params`: those of the
    metric. `detector`: gets to know what tasks saw. Raises `ReportFileError, EngineError` if a task
    fails.
    """
    settings = CountSettings(params, sample_step(sum(task.reports for task in tasks)))
    for found in (engine or LocalEngine()).map(count_task, settings, tasks):
        if detector:
            detector.take(found.kept, found.keys)
        yield found.kept
