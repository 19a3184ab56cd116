"""Files of reports -> whole reports that an engine's workers keep, for sums over all, many times.

A worker keeps the reports of some cohorts, sorted as `packed` sorts them. It reads all files for
that, but only once, and only sums come back, by cohort or of a size that doesn't grow with the
reports: so nothing is shuffled, and no report goes through the process that decodes. Where equal
reports are kept once, and so are few, it has them all itself, merged from what tasks grouped.

Invariant: parts are those of `cut_cohorts`, with the same rows in the same order, so that sums over
them are those of the same reports in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hubbub.decoder.engines import Engine
from hubbub.decoder.engines.dask import DaskEngine
from hubbub.decoder.reports.tasks import Task, read_task
from hubbub.inference import packed
from hubbub.inference.arrays import FloatArray
from hubbub.inference.counts import CohortCounts
from hubbub.inference.errors import UndecodableError
from hubbub.inference.packed import (
    GROUPED_BITS,
    PackedReports,
    RawReports,
    ReportSpool,
    cut_cohorts,
)
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Columns, interleaved

_Result = TypeVar("_Result")
_Shared = TypeVar("_Shared")
_Asked = tuple[Callable[[_Shared, PackedReports, int], _Result], _Shared]
MOST_BYTES = 2**30
"""Of a part's bits: what engines keep and pass on as one value."""


class PackSettings(NamedTuple):
    """What all parts of the reports need."""

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
        """As many: each is a row."""
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
    """Return whether workers are to keep so many reports, instead of the process that decodes.

    What is one part has no use for more than one worker.
    """
    return isinstance(engine, DaskEngine) and n_reports > packed.PART_REPORTS


def distribute(
    engine: Engine, tasks: Sequence[Task], params: RapporParams, counts: CohortCounts
) -> RawReports:
    """Let an engine's workers keep the reports of files.

    `engine`: which keeps results. `tasks`: all of the files. `counts`: of the same reports. Raises
    `UndecodableError` if there are too few cohorts for parts of a size that engines can keep.
    Raises `ReportFileError, EngineError` if files can't be read, are others than when tasks were
    planned, or the engine fails; of parts that are made later, as soon as they are asked for.
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
