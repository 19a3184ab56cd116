"""Sealed records of a store or an export -> reports in a store of their own, each once.

Each record is opened, judged as a collector judges a report, pooled with others of its metric and
day, and stored under an id that follows from the number that its client sealed with it. So a record
that is there twice, because the client, a hostile collector or this command repeated it, counts
once. Invariants: ids are kept under the last day on which any of the keys opens, so that none is
forgotten while a copy of its record could still be opened, though that was sealed to the next key;
and what is left out leaves nothing behind, so that a later run may open it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import multiprocessing
import tempfile
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, asynccontextmanager
from typing import IO, NamedTuple, TypeAlias

from hubbub.protocol.dimensions import is_slice
from hubbub.protocol.errors import NotOpenedError, SealedError
from hubbub.protocol.hpke import Opener, PrivateKey
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import COHORT_BYTES
from hubbub.protocol.records import Records
from hubbub.protocol.registry import Registry
from hubbub.protocol.sealed import OVERHEAD, PAYLOAD_SIZES, prefixed
from hubbub.storage import (
    SEALED,
    MetricVersion,
    NewBatch,
    Reader,
    Store,
    StoredRecords,
    sealed_key,
)
from hubbub.storage.errors import StoreError

OTHER_LENGTH = "of a length that no record has"
OTHER_KEY = "sealed to a key that wasn't given"
CHANGED = "not sealed to its key and this application, or changed since"
MALFORMED = "with a payload that is no report"
UNKNOWN = "of a metric or version that the registry doesn't have"
UNFIT = "with bits or a cohort that don't fit the metric"

_CHUNK = 16_384
"""Records that are opened, and stored in one transaction, at a time: reports that are mixed."""

_IN_MEMORY = 2**26  # bytes of sealed records, before the copy goes to disk: 64 MB
_WORTH_PROCESSES = 4 * _CHUNK  # records: fewer are opened by one core before others have started

_Expected: TypeAlias = dict[MetricVersion, tuple[int, int, Metric]]
"""Of each version that is known: its cohorts, a record's bytes, and the metric as it is now."""


class Opened(NamedTuple):
    """A report from a sealed record."""

    report_id: bytes
    key: MetricVersion
    record: bytes


class OpenResult(NamedTuple):
    """What became of sealed records.

    Attributes
    ----------
    new : Counter of MetricVersion
        Reports that were stored.
    known : int
        Records whose reports were stored before, or stand twice among these.
    left_out : Counter of str
        Records that hold no report for this store, by reason.
    """

    new: Counter[MetricVersion]
    known: int
    left_out: Counter[str]


class RecordOpener:
    """Opens and judges records; a process has one.

    Parameters
    ----------
    keys : sequence of PrivateKey
    application : str
    expected : mapping
        The number of cohorts, a record's bytes and the metric as it is now, by version.

    Attributes
    ----------
    parts : tuple
        Those three, of which another process makes one like it.
    """

    def __init__(self, keys: Sequence[PrivateKey], application: str, expected: _Expected) -> None:
        self._opener = Opener(keys, application)
        self.parts = (keys, application, expected)
        self._expected = expected

    def open_all(self, width: int, data: bytes) -> tuple[list[Opened], Counter[str]]:
        """Return the reports in records of some width, and how many hold none, by reason."""
        reports, left_out = [], Counter[str]()
        for start in range(0, len(data), width):
            found = self._open(data[start : start + width])
            if isinstance(found, str):
                left_out[found] += 1
            else:
                reports.append(found)
        return reports, left_out

    def _open(self, sealed: bytes) -> Opened | str:
        if not self._opener.knows(sealed):
            return OTHER_KEY
        try:
            number, metric, version, record, slice_ = self._opener.open(sealed)
        except NotOpenedError:
            return CHANGED
        except SealedError:
            return MALFORMED
        key = MetricVersion(metric, version)
        if key not in self._expected:
            return UNKNOWN
        cohorts, width, now = self._expected[key]
        if (
            len(record) != width
            or int.from_bytes(record[:COHORT_BYTES], "little") >= cohorts
            or not is_slice(slice_)
        ):
            return UNFIT
        report_id = hashlib.sha256(prefixed(b"hubbub/1/opened", number)).digest()[:16]
        return Opened(report_id, key._replace(slice=now.slice_as(slice_)), record)


async def open_reports(
    source: Reader,
    store: Store,
    registry: Registry,
    keys: Sequence[PrivateKey],
    *,
    jobs: int = 1,
    today: dt.date | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> OpenResult:
    """Open what is sealed to some keys, and store what wasn't stored before.

    It may be killed at any moment, and run again on the same records or on more.

    Parameters
    ----------
    source : Reader
        Where the sealed records are.
    store : Store
        Where reports belong; another than the collector's, which may know who sent what.
    registry : Registry
    keys : sequence of PrivateKey
        All that there are, at least one: what is opened is remembered until the last of them ends.
    jobs : int
        Processes that open records.
    today : datetime.date, optional
    progress : callable
        Called with the records read so far, and those that were there at the start.

    Raises
    ------
    StoreError
        If a key doesn't open any more, the store is a collector's, or one fails.
    """
    now = today or dt.datetime.now(dt.UTC).date()
    for key in keys:
        if key.public.opens_until < now:
            raise StoreError(
                f"{key.public}: opened reports until {key.public.opens_until}; what was opened is "
                "remembered no longer and would count twice: delete the private key"
            )
    until = max(key.public.opens_until for key in keys)
    if await store.versions(SEALED):
        raise StoreError(
            "the store holds sealed records, so it is a collector's; must be another store, of who "
            "decodes"
        )
    await store.declare(registry.values())
    expected = await _expected(store, registry)
    new, known, left_out = Counter[MetricVersion](), 0, Counter[str]()
    sizes = []
    for size in map(sealed_key, await source.versions(SEALED)):
        if size.version in PAYLOAD_SIZES:
            sizes.append(size)
        else:  # which a hostile collector may claim; memory for them isn't asked for
            left_out[OTHER_LENGTH] += await source.count(size)
    totals = [await source.count(size) for size in sizes]
    done = 0
    processes = jobs if sum(totals) > _WORTH_PROCESSES else 1
    async with _opening(RecordOpener(keys, registry.application, expected), processes) as opening:
        for size in sizes:
            width = size.version + OVERHEAD
            for day in await source.days(size):
                async with aclosing(_opened(source, size, day, width, opening)) as chunks:
                    async for records, (reports, faults) in chunks:
                        stored = await _store(store, reports, day, until)
                        new += stored
                        known += len(reports) - stored.total()
                        left_out += faults
                        done += records
                        progress(done, max(done, sum(totals)))
    await store.pool_slices(now)
    await store.segments.merge()
    await store.database.reclaim_space()
    return OpenResult(new, known, left_out)


async def _expected(store: Store, registry: Registry) -> _Expected:
    """Return what reports are like, of earlier versions too, as a collector accepts them."""
    expected = {}
    for one in await store.declared():
        if one.metric in registry:
            key = MetricVersion(one.metric, one.version)
            expected[key] = (one.params.m, one.width, registry[one.metric])
    return expected


_Chunk: TypeAlias = tuple[list[Opened], Counter[str]]
_Opening: TypeAlias = Callable[[int, bytes], Awaitable[_Chunk]]


async def _opened(
    source: Reader, size: MetricVersion, day: dt.date, width: int, opening: _Opening
) -> AsyncGenerator[tuple[int, _Chunk], None]:
    """Yield the reports of a day's records, chunk by chunk; and how many records there were."""
    # First copied: somebody who reads a collector's database for long keeps its log from being
    # emptied.
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        async with aclosing(source.contents(size, day, day)) as contents:
            async for stored in contents:
                if isinstance(stored, StoredRecords):
                    spool.write(stored.records)
        spool.seek(0)
        under_way: deque[tuple[int, asyncio.Future[_Chunk]]] = deque()
        try:
            for data in _pieces(spool, _CHUNK * width):
                chunk = asyncio.ensure_future(opening(width, data))
                under_way.append((len(data) // width, chunk))
                if len(under_way) > multiprocessing.cpu_count():
                    records, first = under_way.popleft()
                    yield records, await first
            while under_way:
                records, first = under_way.popleft()
                yield records, await first
        finally:
            for _, rest in under_way:
                rest.cancel()


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    return iter(lambda: file.read(size), b"")


async def _store(
    store: Store, reports: Sequence[Opened], day: dt.date, until: dt.date
) -> Counter[MetricVersion]:
    """Store reports that are new; return how many those are, by metric and version."""
    if not reports:
        return Counter()
    batches = [
        NewBatch(it.report_id, {it.key: Records(len(it.record), it.record)}) for it in reports
    ]
    are_new = await store.append(batches, day, until)
    return Counter(it.key.whole for it, is_new in zip(reports, are_new, strict=True) if is_new)


@asynccontextmanager
async def _opening(opener: RecordOpener, processes: int) -> AsyncIterator[_Opening]:
    """Give a function that opens records in other processes, or in a thread of this one."""
    if processes == 1:
        yield lambda width, data: asyncio.to_thread(opener.open_all, width, data)
        return
    loop = asyncio.get_running_loop()
    # Not forked, since this process has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _prepare, opener.parts) as pool:
        yield lambda width, data: loop.run_in_executor(pool, _open_all, width, data)


_of_process: list[RecordOpener] = []


def _prepare(keys: Sequence[PrivateKey], application: str, expected: _Expected) -> None:
    _of_process.append(RecordOpener(keys, application, expected))


def _open_all(width: int, data: bytes) -> _Chunk:
    return _of_process[0].open_all(width, data)
