"""Sources of reports -> counts: a store, an export, a file of reports, a file of counts.

`open_source` names a source, `count` reads it; a database and an exported directory answer the same
questions. Files are counted by an engine, task by task, and kept whole by its workers if they are
many. Records of a database are counted on all cores while they are read, in pieces of four
megabytes. Invariants: a source with fewer reports than are needed is refused, whoever asks; neither
counts nor the detector's sample depend on the number of threads, or on the way in which reports
come.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from hubbub.decoder.engines import Engine
from hubbub.decoder.options import STORE, DecodeOptions, described
from hubbub.decoder.tasks import Task, count_tasks, distribute, is_distributed, plan_tasks
from hubbub.inference import (
    IN_MEMORY,
    AnomalyDetector,
    AnomalyReport,
    RawReports,
    ReportSpool,
    UndecodableError,
    check_whole,
    cores,
    count_records,
)
from hubbub.inference.counts import CohortCounts, empty_counts
from hubbub.protocol import KeptCounts, Metric, RapporParams, Records, record_width
from hubbub.storage import (
    SCHEME,
    SCHEMES,
    Address,
    Cell,
    MetricVersion,
    MissingFileError,
    ParquetReader,
    Reader,
    ReportFile,
    ReportFileError,
    SliceSizes,
    StoredRecords,
    StoreError,
    Where,
    check_definition,
    deleted_meanwhile,
    export_of,
    partition_of,
    read_counts_file,
    read_records,
    require_reports,
    resolve,
    row_groups,
)

if TYPE_CHECKING:
    from hubbub.storage import SliceSizes

_PIECE_BYTES = 2**22  # of reports: some milliseconds' counting, far above the cost of a hand-over
_PIECES_A_THREAD = 3  # enough that none waits for the reader; they are what memory is used for
_EXPORTED = "metric="  # begins a folder of every file that an export wrote
SpoolFor = Callable[[int, dt.date | None], ReportSpool | None]
"""From the number of reports to what keeps them; None if they aren't needed whole.

The second argument is the last day of which only counts are kept, if there is one; then there are
no whole reports to be had. It may be called a second time, if that turns out later.
"""


class Counting:
    """Counts the records that are added; a context, at whose end its threads end.

    The detector and the spools get the same records; `progress` is called with the reports counted
    so far, by the thread that adds records.
    """

    def __init__(
        self,
        params: RapporParams,
        *,
        detector: AnomalyDetector | None = None,
        spools: Sequence[ReportSpool] = (),
        progress: Callable[[int], None] = lambda _done: None,
        threads: int | None = None,
    ) -> None:
        self._params = params
        self._detector = detector
        self._spools = spools
        self._progress = progress
        self._threads = threads or cores()
        self._size = max(1, _PIECE_BYTES // record_width(params.k)) * record_width(params.k)
        self._counts = empty_counts(params)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._under_way: deque[tuple[Future[CohortCounts], Future[None] | None]] = deque()
        self._counters = ThreadPoolExecutor(self._threads, "count")
        self._looker = ThreadPoolExecutor(1, "look")  # one thread, so that it sees them in order

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._counters.shutdown(cancel_futures=True)
        self._looker.shutdown(cancel_futures=True)

    def add(self, records: bytes) -> None:
        """Take more records; wait if too many of them aren't counted yet.

        Raises `UndecodableError` if they, or some added before, aren't whole records of the
        parameters.
        """
        check_whole(records, self._params)
        for spool in self._spools:
            spool.add(records)
        self._waiting.append(records)
        self._waiting_bytes += len(records)
        if self._waiting_bytes >= self._size:
            self._hand_over()

    def add_counts(self, kept: KeptCounts) -> None:
        """Take the counts that are kept of forgotten reports."""
        _check_shape(kept, self._params)
        self._counts += kept.counts
        if self._detector:
            self._looker.submit(self._detector.add_counts, kept).result()
        self._progress(self._counts.total)

    def keep_none(self) -> None:
        """Let the spools have no more records: they aren't needed whole after all."""
        self._spools = ()

    def result(self) -> CohortCounts:
        """Return the counts of all that was added (raises as `add`)."""
        self._hand_over()
        while self._under_way:
            self._collect()
        return self._counts

    def _hand_over(self) -> None:
        records = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        for start in range(0, len(records), self._size):
            piece, look = records[start : start + self._size], None
            if self._detector:
                seen = Records(record_width(self._params.k), piece)
                look = self._looker.submit(self._detector.add, seen)
            counting = self._counters.submit(count_records, piece, self._params)
            self._under_way.append((counting, look))
            if len(self._under_way) > _PIECES_A_THREAD * self._threads:
                self._collect()

    def _collect(self) -> None:
        counting, look = self._under_way.popleft()
        self._counts += counting.result()
        if look:
            look.result()
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
    whole: RawReports | None = None  # the whole reports, if they were kept
    # Counts of each day with reports, in ascending order; empty if days weren't counted apart.
    by_day: Mapping[dt.date, CohortCounts] = field(default_factory=dict)
    # The whole reports of each day with enough of them; empty if they weren't kept.
    whole_by_day: Mapping[dt.date, RawReports] = field(default_factory=dict)
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
    # Files of counts need no database's library, which takes long to import.
    from hubbub.storage import open_store  # noqa: PLC0415

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
        else:
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
    spool_for: SpoolFor = lambda _total, _counted: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CountedReports:
    """Count a metric's stored reports, by the engine where they are files.

    With `by_day` each day is counted by itself as well, and days with fewer than `min_reports`
    aren't kept whole. Raises `StoreError` if the store can't be read, or its reports were made with
    other parameters; `EngineError` if the engine fails; `UndecodableError` if there are none.
    """
    key, least = MetricVersion(metric.name, metric.version), min_reports if by_day else None
    async with open_reader(source, metric) as store:
        total = await store.count(key, *source.days)
        spool = spool_for(total, await store.last_counted(key, *source.days))
        if isinstance(store, ParquetReader) and (not spool or is_distributed(engine, total)):
            with _naming_deleted_files():
                files = _plan_export(store, key, *source.days)
                if spool and files.counted:  # exported only now
                    spool = spool_for(total, files.counted[-1][0])
                done = partial(_progressed, progress, total, 0)
                counted = _count_export(files, metric.params, engine, detector, done)
                found = _count_files(
                    files, counted, metric.params, engine if spool else None, least
                )
        else:
            found = await _count_records(
                store, source, metric, detector, spool, partial(spool_for, total), least,
                partial(_progressed, progress, total),
            )  # fmt: skip
        versions = await store.versions(metric.name)
    if not found.counts.total:
        raise UndecodableError(
            f"no reports of {source.named(metric)}; versions in the store: {versions or 'none'}"
        )
    return replace(found, anomalies=detector.result() if detector else None)


def _count_files(
    files: _ExportFiles,
    counted: Iterable[tuple[dt.date, CohortCounts]],
    params: RapporParams,
    keep_in: Engine | None,
    least: int | None,
) -> CountedReports:
    """Add up counts of files, by day unless `least` is None, and let an engine keep reports."""
    counts, sizes = empty_counts(params), Counter[dt.date]()
    daily: dict[dt.date, CohortCounts] = {}
    for day, more in counted:
        counts += more
        sizes[day] += more.total
        if least is not None:
            daily[day] = daily[day] + more if day in daily else more
    found = CountedReports(counts, day_sizes=sizes)
    if least is not None:
        by_day = {day: daily[day] for day in sorted(daily) if daily[day].total}
        found = replace(
            found, by_day=by_day, day_sizes={day: own.total for day, own in by_day.items()}
        )
    if keep_in is None:
        return found
    if least is None:
        return replace(found, whole=distribute(keep_in, files.tasks, params, counts))

    def kept(days: Mapping[dt.date, CohortCounts]) -> RawReports:
        chosen = [task for task in files.tasks if task.day in days]
        return distribute(keep_in, chosen, params, reduce(add, days.values()))

    enough = {day: own for day, own in found.by_day.items() if own.total >= least}
    whole_by_day = {day: kept({day: own}) for day, own in enough.items()}
    return replace(found, whole=kept(enough) if enough else None, whole_by_day=whole_by_day)


async def _count_records(
    store: Reader,
    source: StoredReports,
    metric: Metric,
    detector: AnomalyDetector | None,
    spool: ReportSpool | None,
    spool_at: Callable[[dt.date | None], ReportSpool | None],
    least: int | None,
    progress: Callable[[int, int], None],
) -> CountedReports:
    """Count what a store yields, by day unless `least` is None, and keep it in spools."""
    key, params = MetricVersion(metric.name, metric.version), metric.params
    counts, sizes, done = empty_counts(params), Counter[dt.date](), 0
    by_day: dict[dt.date, CohortCounts] = {}
    whole_by_day: dict[dt.date, RawReports] = {}
    spans = [source.days]
    if least is not None:
        since, until = source.days
        days = sorted(await store.days(key))
        spans = [(day, day) for day in days if (since or day) <= day <= (until or day)]
    for first, last in spans:
        spools = [spool] if spool else []
        if spool and least is not None:  # small days aren't decoded
            enough = await store.count(key, first, last) >= least
            spools = [spool, ReportSpool(params, IN_MEMORY // len(spans))] if enough else []
        report = partial(progress, done)
        with Counting(params, detector=detector, spools=spools, progress=report) as counting:
            async with aclosing(store.contents(key, first, last)) as contents:
                async for stored in contents:
                    if isinstance(stored, StoredRecords):
                        sizes[stored.day] += len(stored.records) // record_width(params.k)
                        counting.add(stored.records)
                        continue
                    sizes[stored.day] += stored.kept.total
                    if spool:  # the collector has just counted them
                        spool = spool_at(stored.day)
                        counting.keep_none()
                        whole_by_day, spools = {}, []
                    counting.add_counts(stored.kept)
            own = counting.result()
        counts += own
        done += own.total
        if least is not None and first:
            if own.total:
                by_day[first] = own
            if spools:
                whole_by_day[first] = spools[1].finish()
    keeps = spool and (whole_by_day or least is None)
    whole = spool.finish() if spool and keeps else None
    known = {day: n for day, n in sizes.items() if n}
    return CountedReports(counts, None, whole, by_day, whole_by_day, known)


@contextmanager
def _naming_deleted_files() -> Iterator[None]:
    try:
        yield
    except MissingFileError as error:
        raise deleted_meanwhile(error) from error


class _ExportFiles(NamedTuple):
    """Some days of an export: tasks of its reports, and files of counts in the order of days."""

    tasks: list[Task]
    counted: list[tuple[dt.date, ReportFile]]


def _plan_export(
    store: ParquetReader, key: MetricVersion, since: dt.date | None, until: dt.date | None
) -> _ExportFiles:
    files = store.files(key, since, until)
    tasks = plan_tasks(file for file in files if not file.only_counts)
    counted = [(file.partition.day, file) for file in files if file.only_counts and file.partition]
    return _ExportFiles(tasks, counted)


def _count_export(
    files: _ExportFiles,
    params: RapporParams,
    engine: Engine | None,
    detector: AnomalyDetector | None,
    progress: Callable[[int], None],
) -> Iterator[tuple[dt.date, CohortCounts]]:
    """Yield counts of days; of a day possibly several, and in any order."""
    tasks, done = files.tasks, 0
    for task, of_task in zip(tasks, count_tasks(engine, tasks, params, detector), strict=True):
        done += task.reports
        progress(done)
        if task.day:
            yield task.day, of_task.counts
    for day, file in files.counted:
        kept = read_counts_file(file.path)
        _check_shape(kept, params)
        require_reports(file, kept.total)
        if detector:
            detector.add_counts(kept)
        done += kept.total
        progress(done)
        yield day, kept.counts


def load_file(
    address: Address,
    metric: Metric,
    *,
    engine: Engine | None = None,
    detector: AnomalyDetector | None = None,
    spool_for: SpoolFor = lambda _total, _counted: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CountedReports:
    """Count the reports of one Parquet file with columns `cohort` and `bits`, whoever wrote it.

    Bit j is bit j%8 of byte j//8. Raises `ReportFileError` if it holds anything but reports of the
    metric's parameters, or is in an exported directory that contradicts it.
    """
    path, partition = resolve(address), None
    if any(part.startswith(_EXPORTED) for part in path.parts):  # or spare what stores import
        partition = partition_of(path)
    if partition:
        if partition[:2] != (metric.name, metric.version):
            raise ReportFileError(
                f"{path}: reports of {partition.metric} version {partition.version}; expected "
                f"those of {metric.name} version {metric.version}"
            )
        check_definition(export_of(path), metric)
    params, total = metric.params, sum(row_groups(path))
    done, spool = partial(_progressed, progress, total, 0), spool_for(total, None)
    whole: RawReports | None = None
    if not spool or is_distributed(engine, total):
        tasks, counts, counted = plan_tasks([ReportFile(path, partition)]), empty_counts(params), 0
        for task, kept in zip(tasks, count_tasks(engine, tasks, params, detector), strict=True):
            counts += kept.counts
            counted += task.reports
            done(counted)
        if spool and engine:
            whole = distribute(engine, tasks, params, counts)
    else:
        with Counting(params, detector=detector, spools=[spool], progress=done) as counting:
            for records in read_records(path, params.k, params.m):
                counting.add(records.data)
            counts = counting.result()
        whole = spool.finish()
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
    return _run(load_sizes(source, metric))


def count(
    source: Source,
    metric: Metric,
    engine: Engine,
    *,
    by_day: bool = False,
    min_reports: int = 1,
    spool_for: SpoolFor = lambda _total, _counted: None,
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
            spool_for=spool_for,
            progress=progress,
        )
        require_enough(source.path, reports.counts.total, min_reports)
        return reports
    reports = _run(
        load_reports(
            source,
            metric,
            by_day=by_day,
            min_reports=min_reports,
            engine=engine,
            detector=detector,
            spool_for=spool_for,
            progress=progress,
        )
    )
    if not by_day:
        total = reports.counts.total
        require_enough(source.named(metric), total, min_reports, "decode more days, or ")
    return reports


def _run(loading: Coroutine[None, None, _Loaded]) -> _Loaded:
    """Await it to its end; in a thread of its own where a loop is running, as in Jupyter."""
    import asyncio  # noqa: PLC0415 - files need no loop, and it takes long to import

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(loading)
    with ThreadPoolExecutor(1, "load") as thread:
        return thread.submit(asyncio.run, loading).result()
