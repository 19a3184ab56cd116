"""Sources of reports -> counts: a store, an export, a file of reports, a file of counts.

`open_source` names a source, `count` reads it; a database and an exported directory answer the same
questions. Files are counted by an engine, task by task. Invariants: a source with fewer reports
than are needed is refused, whoever asks; neither counts nor the detector's sample depend on the
engine, or on the way in which reports come.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from hubbub.decoder.engines import Engine, Task, count_tasks, plan_tasks, read_task
from hubbub.decoder.options import STORE, DecodeOptions, described
from hubbub.inference import (
    AnomalyDetector,
    AnomalyReport,
    PackedReports,
    UndecodableError,
    check_whole,
    pack,
)
from hubbub.protocol import (
    CohortCounts,
    KeptCounts,
    Metric,
    RapporParams,
    Records,
    RecordsError,
    columns,
    empty_counts,
    interleaved,
    keep_columns,
    record_width,
    sample_step,
)
from hubbub.storage import (
    SCHEME,
    SCHEMES,
    Address,
    Cell,
    MetricVersion,
    MissingFileError,
    ParquetReader,
    Reader,
    ReportFileError,
    SliceSizes,
    StoredRecords,
    StoreError,
    Where,
    check_made_so,
    deleted_meanwhile,
    read_counts_file,
    read_sqlite,
    report_file,
    require_reports,
)

_PIECE_BYTES = 2**22  # of reports: some milliseconds' counting, far above the cost of a call
_SQLITE = "sqlite:"  # begins the address of a store in a file
KeepsWhole = Callable[[int, dt.date | None], bool]
"""From the number of reports to whether they are kept whole.

The second argument is the last day of which only counts are kept, if there is one; then there are
no whole reports to be had. It may be called a second time, if that turns out later.
"""


class Counting:
    """Counts the records that are added, and shows them to the detector.

    `step`: between how many of them it looks at one for being equal to others (`sample_step`).
    `progress` is called with the reports counted so far.
    """

    def __init__(
        self,
        params: RapporParams,
        *,
        detector: AnomalyDetector | None = None,
        step: int = 1,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> None:
        self._params = params
        self._detector = detector
        self._step = step
        self._progress = progress
        self._counts = empty_counts(params)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, records: bytes) -> None:
        """Take more records.

        Raises `UndecodableError` if they, or some added before, aren't whole records of the
        parameters.
        """
        check_whole(records, self._params)
        self._waiting.append(records)
        self._waiting_bytes += len(records)
        if self._waiting_bytes >= _PIECE_BYTES:
            self._count()

    def add_counts(self, kept: KeptCounts) -> None:
        """Take the counts that are kept of forgotten reports."""
        _check_shape(kept, self._params)
        self._counts += kept.counts
        if self._detector:
            self._detector.add_counts(kept)
        self._progress(self._counts.total)

    def result(self) -> CohortCounts:
        """Return the counts of all that was added (raises as `add`)."""
        self._count()
        return self._counts

    def _count(self) -> None:
        reports = columns(Records(record_width(self._params.k), b"".join(self._waiting)))
        self._waiting, self._waiting_bytes = [], 0
        try:
            kept = keep_columns(reports, self._params)
        except RecordsError as error:
            raise UndecodableError(str(error)) from error
        self._counts += kept.counts
        if self._detector:
            self._detector.look(kept, reports, self._step)
        self._progress(self._counts.total)


def _check_shape(kept: KeptCounts, params: RapporParams) -> None:
    shape = kept.counts.bits.shape
    if shape != (params.m, params.k):
        raise UndecodableError(
            f"counts of shape {shape}: must be {(params.m, params.k)} for the metric's parameters"
        )


@dataclass(frozen=True, slots=True)
class CountedReports:
    """Reports, counted: together, or day by day as well."""

    counts: CohortCounts  # of all of them together
    # None if not looked for, or if there were only counts.
    anomalies: AnomalyReport | None = None
    # The whole reports, if they were kept; day by day, those of days with enough of them.
    whole: PackedReports | None = None
    whole_by_day: Mapping[dt.date, PackedReports] = field(default_factory=dict)
    # Counts of each day with reports, in ascending order; empty if days weren't counted apart.
    by_day: Mapping[dt.date, CohortCounts] = field(default_factory=dict)
    # How many reports each day has; empty if that isn't known.
    day_sizes: Mapping[dt.date, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredReports:
    """Reports of a collector's database, or of an export."""

    # A database's address, or "parquet:DIR" for a directory that the collector exported, on this
    # machine or as s3://BUCKET/PATH and so on.
    url: str
    since: dt.date | None = None  # UTC days, both included
    until: dt.date | None = None
    # The values, one of which reports must have, by dimension of the app.
    where: Mapping[str, tuple[str, ...]] | None = None
    # Further required values, and their days; None: any.
    cells: frozenset[Cell] | None = None

    @property
    def days(self) -> tuple[dt.date | None, dt.date | None]:
        """The first and the last, where there is one."""
        return self.since, self.until

    def named(self, metric: Metric) -> str:
        """Return which of a metric's reports are meant, as messages name them."""
        text = f"{metric.name} version {metric.version} "
        text += f"from {self.since or 'the start'} to {self.until or 'now'}"
        return f"{text}, {described(self.where)}" if self.where else text


@asynccontextmanager
async def open_reader(source: StoredReports, metric: Metric) -> AsyncIterator[Reader]:
    """Open what the collector stored, or exported, of a metric.

    Raises `StoreError` if it can't be opened for reading, or has reports of other parameters.
    """
    url = source.url
    if (scheme := url.partition("://")[0].lower()) in SCHEMES:
        # The rest isn't repeated: it may hold a secret.
        raise StoreError(
            f"store {scheme}://...: that of an export begins with {SCHEME}, such as "
            f"{SCHEME}s3://BUCKET/PATH"
        )
    async with AsyncExitStack() as stack:
        reader: Reader
        if url.startswith(SCHEME):
            reader = ParquetReader(url.removeprefix(SCHEME))
        elif url.startswith(_SQLITE):
            reader = stack.enter_context(read_sqlite(url))
        else:
            from hubbub.storage import open_store  # noqa: PLC0415 - SQLAlchemy takes long to import

            reader = await stack.enter_async_context(open_store(url, create=False))
        reader.where = Where(metric, source.where, source.cells) if source.where else None
        await reader.check(metric)
        yield reader


async def load_sizes(source: StoredReports, metric: Metric) -> SliceSizes:
    """Return the number of stored reports, by day and slice, of whatever slices."""
    async with open_reader(source, metric) as store:
        return await store.slices(MetricVersion(metric.name, metric.version), *source.days)


async def load_reports(
    source: StoredReports,
    metric: Metric,
    *,
    by_day: bool = False,
    min_reports: int = 1,
    engine: Engine | None = None,
    detector: AnomalyDetector | None = None,
    keeps_whole: KeepsWhole = lambda _total, _counted: False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CountedReports:
    """Count a metric's stored reports, by the engine where they are files.

    With `by_day` each day is counted by itself as well, and days with fewer than `min_reports`
    aren't kept whole. Raises `StoreError` if the store can't be read, or its reports were made with
    other parameters; `EngineError` if the engine fails; `UndecodableError` if there are none.
    """
    least = min_reports if by_day else None
    async with open_reader(source, metric) as store:
        if isinstance(store, ParquetReader):
            with _naming_deleted_files():
                found = _count_export(
                    store, source, metric, engine, detector, keeps_whole, least, progress
                )
        else:
            found = await _count_records(
                store, source, metric, detector, keeps_whole, least, progress
            )
        versions = await store.versions(metric.name)
    if not found.counts.total:
        raise UndecodableError(
            f"no reports of {source.named(metric)}; versions in the store: {versions or 'none'}"
        )
    return replace(found, anomalies=detector.result() if detector else None)


async def _count_records(
    store: Reader,
    source: StoredReports,
    metric: Metric,
    detector: AnomalyDetector | None,
    keeps_whole: KeepsWhole,
    least: int | None,
    progress: Callable[[int, int], None],
) -> CountedReports:
    """Count what a database yields, by day unless `least` is None."""
    key, params = MetricVersion(metric.name, metric.version), metric.params
    total = await store.count(key, *source.days)
    counted = await store.counted(key, *source.days)
    keep = keeps_whole(total, max(counted, default=None))
    step = sample_step(total - sum(counted.values()))
    counts, sizes = empty_counts(params), Counter[dt.date]()
    by_day, kept = dict[dt.date, CohortCounts](), dict[dt.date | None, list[bytes]]()
    spans = [source.days]
    if least is not None:
        since, until = source.days
        days = sorted(await store.days(key))
        spans = [(day, day) for day in days if (since or day) <= day <= (until or day)]
    for first, last in spans:
        records: list[bytes] = []
        done = partial(_progressed, progress, total, counts.total)
        counting = Counting(params, detector=detector, step=step, progress=done)
        async with aclosing(store.contents(key, first, last)) as contents:
            async for stored in contents:
                if isinstance(stored, StoredRecords):
                    sizes[stored.day] += len(stored.records) // record_width(params.k)
                    counting.add(stored.records)
                    if keep:
                        records.append(stored.records)
                    continue
                sizes[stored.day] += stored.kept.total
                if keep:  # the collector has just counted them
                    keep = keeps_whole(total, stored.day)
                counting.add_counts(stored.kept)
        own = counting.result()
        counts += own
        if least is not None and first and own.total:
            by_day[first] = own
        if least is None or own.total >= least:  # smaller days aren't decoded
            kept[first if least is not None else None] = records
    known = {day: n for day, n in sizes.items() if n}
    found = CountedReports(counts, by_day=by_day, day_sizes=known)
    return _with_whole(found, kept, params) if keep and kept else found


@contextmanager
def _naming_deleted_files() -> Iterator[None]:
    try:
        yield
    except MissingFileError as error:
        raise deleted_meanwhile(error) from error


def _count_export(
    store: ParquetReader,
    source: StoredReports,
    metric: Metric,
    engine: Engine | None,
    detector: AnomalyDetector | None,
    keeps_whole: KeepsWhole,
    least: int | None,
    progress: Callable[[int, int], None],
) -> CountedReports:
    """Count the files of an export, by day unless `least` is None."""
    params, key = metric.params, MetricVersion(metric.name, metric.version)
    files = store.files(key, *source.days)
    tasks = plan_tasks(file for file in files if not file.only_counts)
    counted = []
    for file in files:
        if file.only_counts and file.partition:
            kept = read_counts_file(file.path)
            _check_shape(kept, params)
            require_reports(file, kept.total)
            counted.append((file.partition.day, kept))
    total = sum(task.reports for task in tasks) + sum(kept.total for _, kept in counted)
    keep = keeps_whole(total, counted[-1][0] if counted else None)
    counts, daily = empty_counts(params), dict[dt.date, CohortCounts]()
    sizes = Counter[dt.date]()

    def take(day: dt.date | None, more: CohortCounts) -> None:
        nonlocal counts
        if day is None:
            return
        counts += more
        sizes[day] += more.total
        if least is not None:
            daily[day] = daily[day] + more if day in daily else more
        progress(counts.total, total)

    for task, of_task in zip(tasks, count_tasks(engine, tasks, params, detector), strict=True):
        take(task.day, of_task.counts)
    for day, kept in counted:
        if detector:
            detector.add_counts(kept)
        take(day, kept.counts)
    by_day = {day: daily[day] for day in sorted(daily) if daily[day].total}
    known = {day: n for day, n in sizes.items() if n}
    found = CountedReports(counts, by_day=by_day, day_sizes=known)
    if not keep:
        return found
    if least is None:
        return _with_whole(found, {None: _records(tasks, params)}, params)
    enough = [day for day, own in by_day.items() if own.total >= least]
    whole = {day: _records([task for task in tasks if task.day == day], params) for day in enough}
    return _with_whole(found, whole, params) if whole else found


def _records(tasks: Sequence[Task], params: RapporParams) -> list[bytes]:
    return [interleaved(some).data for task in tasks for some in read_task(task, params)]


def _with_whole(
    found: CountedReports, kept: Mapping[Any, list[bytes]], params: RapporParams
) -> CountedReports:
    """Add whole reports, also those of each day where days are counted apart; else of None."""
    whole = pack(itertools.chain.from_iterable(kept.values()), params)
    by_day = {day: pack(records, params) for day, records in kept.items() if day}
    return replace(found, whole=whole, whole_by_day=by_day)


def load_file(
    address: Address,
    metric: Metric,
    *,
    engine: Engine | None = None,
    detector: AnomalyDetector | None = None,
    keeps_whole: KeepsWhole = lambda _total, _counted: False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CountedReports:
    """Count the reports of one Parquet file with columns `cohort` and `bits`, whoever wrote it.

    Bit j is bit j%8 of byte j//8. Raises `ReportFileError` if it holds anything but reports of the
    metric's parameters, or an export wrote it of others.
    """
    file = report_file(address)
    partition = file.partition
    if partition and partition[:2] != (metric.name, metric.version):
        raise ReportFileError(
            f"{file.path}: reports of {partition.metric} version {partition.version}; expected "
            f"those of {metric.name} version {metric.version}"
        )
    check_made_so(file, metric.definition, "registry")
    params, tasks = metric.params, plan_tasks([file])
    counts, total = empty_counts(params), sum(task.reports for task in tasks)
    for kept in count_tasks(engine, tasks, params, detector):
        counts += kept.counts
        progress(counts.total, total)
    whole = pack(_records(tasks, params), params) if keeps_whole(total, None) else None
    sizes = {partition.day: counts.total} if partition else {}
    return CountedReports(counts, detector.result() if detector else None, whole, day_sizes=sizes)


def _progressed(progress: Callable[[int, int], None], total: int, before: int, done: int) -> None:
    progress(before + done, total)


def require_enough(source: str, found: int, needed: int, otherwise: str = "") -> None:
    """Refuse a source with fewer than the needed reports; `otherwise`: what else may be done."""
    if found < needed:
        raise UndecodableError(
            f"{found:,} report{'s' if found != 1 else ''} of {source}: at least {needed:,} are "
            f"needed to decode; {otherwise}change --min-reports (HUBBUB_MIN_REPORTS)"
        )


_Loaded = TypeVar("_Loaded")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file of reports."""

    path: str


@dataclass(frozen=True, slots=True)
class CountsFile:
    """google/rappor's counts.csv: reports that were counted already."""

    path: str


Source = StoredReports | ParquetFile | CountsFile


def open_source(options: DecodeOptions) -> Source:
    """Return the source that checked options name; the default store if they name none."""
    if options.counts is not None:
        return CountsFile(options.counts)
    if options.reports is not None:
        return ParquetFile(options.reports)
    return stored_reports(options)


def stored_reports(options: DecodeOptions) -> StoredReports:
    """Return the reports of the store that options name, or of the default one."""
    return StoredReports(options.store or STORE, options.since, options.until, options.where)


def slice_sizes(source: StoredReports, metric: Metric) -> SliceSizes:
    """Return the number of stored reports by day and slice, of whatever slices."""
    return _run(source, load_sizes(source, metric))


def count(
    source: Source,
    metric: Metric,
    engine: Engine | None,
    *,
    by_day: bool = False,
    min_reports: int = 1,
    keeps_whole: KeepsWhole = lambda _total, _counted: False,
    progress: Progress = lambda _done, _total: None,
) -> CountedReports:
    """Count a metric's reports, and look for what honest ones wouldn't show.

    With `by_day` each day of a store is counted by itself as well, and days with fewer than
    `min_reports` aren't kept whole. `progress` is called with the reports counted so far and the
    reports to count. Raises `UndecodableError` if there are too few reports, or they are of other
    parameters; `StoreError, ReportFileError, InputError, EngineError` if they can't be read.
    """
    if isinstance(source, CountsFile):
        from hubbub.rappor import read_counts  # noqa: PLC0415 - seldom

        counts = read_counts(source.path, metric.params)
        require_enough(source.path, counts.total, min_reports)
        return CountedReports(counts)
    detector = AnomalyDetector(metric)
    if isinstance(source, ParquetFile):
        reports = load_file(
            source.path,
            metric,
            engine=engine,
            detector=detector,
            keeps_whole=keeps_whole,
            progress=progress,
        )
        require_enough(source.path, reports.counts.total, min_reports)
        return reports
    reports = _run(
        source,
        load_reports(
            source,
            metric,
            by_day=by_day,
            min_reports=min_reports,
            engine=engine,
            detector=detector,
            keeps_whole=keeps_whole,
            progress=progress,
        ),
    )
    if not by_day:
        total = reports.counts.total
        require_enough(source.named(metric), total, min_reports, "decode more days, or ")
    return reports


def _run(source: StoredReports, loading: Coroutine[None, None, _Loaded]) -> _Loaded:
    """Run it to its end; for a server, in a thread of its own if a loop runs, as in Jupyter."""
    if source.url.startswith((_SQLITE, SCHEME)):
        try:
            loading.send(None)  # readers of files never wait, so they need no loop
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise AssertionError("a reader of files waits")
    import asyncio  # noqa: PLC0415 - takes long to import
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(loading)
    with ThreadPoolExecutor(1, "load") as thread:
        return thread.submit(asyncio.run, loading).result()
