"""What a store holds, and its two interfaces: `Reader` above it, `Database` below it.

Reports are distinguished by metric, version and UTC day, and by nothing else. The decoder reads any
`Reader`: a store, or an exported directory. All that differs between SQLite and PostgreSQL is
behind the methods of `Database`, in a module each. Invariant: the message of an error comes from
the database without the statement, its values, or the password in the address.
"""

from __future__ import annotations

import abc
import datetime as dt
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hubbub.protocol.counts import KeptCounts
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Records, record_width
from hubbub.storage.bloom import FilteredTables
from hubbub.storage.errors import StoreError
from hubbub.storage.ids import Catalogue, IdTable

Prepared = TypeVar("Prepared")
Result = TypeVar("Result")

Row = dict[str, Any]
"""The columns of a segment."""


class MetricVersion(NamedTuple):
    """What reports must share to be counted together."""

    metric: str
    version: int


class QuarantineKey(NamedTuple):
    """What reports share that are kept together until a registry knows them.

    Attributes
    ----------
    metric, version
        As clients sent them.
    width : int
        Bytes of a record.
    """

    metric: str
    version: int
    width: int


class NewBatch(NamedTuple):
    """A batch to be stored.

    Attributes
    ----------
    batch_id : bytes
        16 bytes.
    records : mapping of MetricVersion to Records
    quarantined : mapping of QuarantineKey to Records
        What no registry knows yet.
    """

    batch_id: bytes
    records: Mapping[MetricVersion, Records]
    quarantined: Mapping[QuarantineKey, Records] = MappingProxyType({})

    @property
    def n_quarantined(self) -> int:
        """Number of reports that no registry knows yet."""
        return sum(records.reports for records in self.quarantined.values())


class QuarantineDay(NamedTuple):
    """What is in quarantine of a UTC day; `rows` is the number of its rows."""

    key: QuarantineKey
    day: dt.date
    reports: int
    rows: int


class Replayed(NamedTuple):
    """Records that came out of quarantine in one transaction, and their UTC day."""

    key: MetricVersion
    day: dt.date
    records: Records


class Declared(NamedTuple):
    """A version of a metric that was ever declared, with all that its reports depend on."""

    metric: str
    version: int
    definition: dict[str, Any]

    @classmethod
    def of(cls, metric: Metric) -> Declared:
        """Return what a registry declares."""
        return cls(metric.name, metric.version, metric.definition)

    @property
    def params(self) -> RapporParams:
        """The parameters of the definition."""
        return RapporParams(**{name: self.definition[name] for name in RapporParams._fields})

    @property
    def width(self) -> int:
        """The bytes of a record; sealed ones, which have no other parameters, too."""
        return record_width(self.definition["k"])


class DayCount(NamedTuple):
    """What is stored of a metric's version and UTC day.

    Attributes
    ----------
    reports : int
        Those that are kept and those that were counted and forgotten.
    segments : int
        0 if only counts are kept.
    bytes : int
        Those of the records and of the counts.
    """

    metric: str
    version: int
    day: dt.date
    reports: int
    segments: int
    bytes: int


class SegmentPrefix(NamedTuple):
    """The beginning of a segment: so many bytes of its records."""

    segment_id: int
    size: int


class StoredRecords(NamedTuple):
    """Reports of a day: their records, end to end."""

    day: dt.date
    records: bytes


class StoredCounts(NamedTuple):
    """What is kept of reports of a day that were forgotten."""

    day: dt.date
    kept: KeptCounts


class Reader(Protocol):
    """What the decoder reads, from a database or an exported directory."""

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports, or counts of them, are stored."""

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the days for which reports, or counts of them, are stored."""

    async def last_counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dt.date | None:
        """Return the last of the days `since` to `until` with counts of forgotten reports."""

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, stored or counted, days `since` to `until` included."""

    def segments(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the concatenated records of each segment, days `since` to `until` included."""

    def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield segments, and counts of forgotten reports, days `since` to `until` included.

        All as of one moment: each report is in one of them, though upkeep may count it meanwhile.
        Close it if it isn't read to its end.
        """


class IdWriter(abc.ABC):
    """What inserts ids in one transaction of `Database.transact`.

    Attributes
    ----------
    connection : Connection
        Of the transaction.
    day : datetime.date
        Under which the ids are kept.
    """

    def __init__(self, connection: sa.Connection, day: dt.date, filtered: FilteredTables) -> None:
        self.connection = connection
        self.day = day
        self._filtered = filtered

    def insert(self, ids: Sequence[bytes]) -> set[bytes]:
        """Insert ids of batches in this order, and return those that no table had."""
        suspects = self._filtered.possible_duplicates(ids)
        known = self._find(suspects) if suspects else set()
        return self._insert_unknown([each for each in ids if each not in known] if known else ids)

    @abc.abstractmethod
    def _find(self, suspects: Sequence[tuple[IdTable, bytes]]) -> set[bytes]:
        """Return the ids that are in the table beside them."""

    @abc.abstractmethod
    def _insert_unknown(self, ids: Sequence[bytes]) -> set[bytes]:
        """Insert ids of which none is in a filtered table, and return those that none had.

        The statements that SQLAlchemy doesn't build, because they are run for every batch.
        """


class Database(abc.ABC):
    """An open database; all that a store needs of it besides SQL.

    Its module has a coroutine function `open_database(url, *, create)` that returns one, and is
    listed in `sql.DATABASES`. Errors of the driver become `StoreError` by `translate_errors`.

    Attributes
    ----------
    reading, writing : AsyncEngine
        Where transactions that only read, and those that write, begin.
    folder : Path, optional
        Where its files grow; None: on a server, which watches its own disk.
    bytes_at_once : int
        Records that a transaction may replace, so that others don't wait for long.
    """

    folder: Path | None = None
    bytes_at_once: int

    def __init__(self, reading: AsyncEngine, writing: AsyncEngine) -> None:
        self.reading = reading
        self.writing = writing

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that reads."""
        async with translate_errors(), self.reading.begin() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that writes; it is durable when the context is left."""
        async with translate_errors(), self.writing.begin() as connection:
            yield connection

    @abc.abstractmethod
    async def transact(
        self,
        day: dt.date,
        prepare: Callable[[], Prepared],
        write: Callable[[IdWriter, Prepared], Result],
        *,
        is_large: bool = False,
    ) -> Result:
        """Prepare, then write in one transaction; it is durable when this returns.

        Only here, and in `append`, ids are inserted, and only those of `day`; or, if its table is
        closed, since a clock is behind, of the next day whose table isn't. Beside such a
        transaction none runs that inserts ids of another day, in any process: so an id that comes
        on two days at once is in one table before it is looked for from the other. Calls may
        overlap.

        Parameters
        ----------
        day : datetime.date
        prepare, write : callable
        is_large : bool
            Whether to prepare takes so long that it must not be done in the event loop.
        """

    async def append(
        self,
        ids: Sequence[bytes],
        received: dt.date,
        day: dt.date,
        pool: Callable[[Iterable[bytes]], list[Row]],
        *,
        is_large: bool = False,
    ) -> set[bytes]:
        """Insert ids in this order and the segments of those that no table had; return these.

        By `transact`, unless a database can do the same faster: of all transactions it is by far
        the most frequent, and the event loop, which it takes turns of, may be busy.

        Parameters
        ----------
        ids : sequence of bytes
            Each of them once.
        received, day : datetime.date
            The day of the ids and that of the reports.
        pool : callable
            Returns segments of the reports that came with some of the ids.
        is_large : bool
            Whether that takes so long that it must not be done in the event loop.
        """

        def write(writer: IdWriter, rows: list[Row]) -> set[bytes]:
            unseen = writer.insert(ids)
            if len(unseen) < len(ids):  # seldom
                rows = pool(unseen)
            if rows:
                self.insert_rows(writer.connection, self.insert_target(day, writer.day), rows)
            return unseen

        return await self.transact(received, lambda: pool(ids), write, is_large=is_large)

    @abc.abstractmethod
    def migrate(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that may take long, while no other process migrates."""

    @abc.abstractmethod
    def insert_if_absent(self, table: sa.Table) -> sa.Insert:
        """Return the dialect's INSERT that passes over rows whose key is there."""

    def insert_rows(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
        """Insert rows with records, in a transaction that has run a statement already."""
        connection.execute(sa.insert(table), rows)

    @abc.abstractmethod
    def lock_quarantine(self, connection: sa.Connection) -> None:
        """Let nobody else take this lock, in any process, until the transaction ends."""

    @abc.abstractmethod
    async def has_id(self, batch_id: bytes) -> bool:
        """Return whether any day's table has this id."""

    @abc.abstractmethod
    async def id_catalogue(self) -> Catalogue:
        """Return the tables of ids there are, which of them are closed, and their filters."""

    @abc.abstractmethod
    async def prepare_id_table(self, day: dt.date) -> None:
        """Make a day's table, unless there is one, if it is better made before the day begins."""

    @abc.abstractmethod
    def filtering_alone(self) -> AbstractAsyncContextManager[bool]:
        """Enter with whether nobody else makes a filter of ids, and keep others from it."""

    @abc.abstractmethod
    async def begin_section(self) -> None:
        """Let ids go to a new section of the day if the one they go to is large, and close that."""

    @abc.abstractmethod
    async def refuse_ids(self, connection: AsyncConnection, table: IdTable, trigger: str) -> None:
        """Make a trigger of this name that lets nobody insert into a table of ids any more.

        What was inserted before is committed when this returns. Neither those who read the table
        nor those who insert into others wait for it.
        """

    @abc.abstractmethod
    async def sort_ids(self, table: IdTable) -> IdTable:
        """Copy a closed day's ids in their own order; return the table that has all in it.

        Nobody waits for long. What is interrupted goes on, or is done again, with the next call.
        """

    @abc.abstractmethod
    async def drop_unsorted_ids(self) -> None:
        """Drop what held ids of closed days in the order in which they came.

        Raises
        ------
        StoreError
            If others use it.
        """

    @abc.abstractmethod
    async def count_ids(self, table: IdTable) -> tuple[int, int]:
        """Return how many ids a table has, and how many of them don't have `ID_BYTES`."""

    @abc.abstractmethod
    def read_ids(self, table: IdTable) -> AsyncIterator[bytes]:
        """Yield all ids of a closed table, many at a time, end to end, in any order.

        Raises
        ------
        StoreError
            After the last ones, if they may not be all, as the table was rewritten meanwhile.
        """

    @abc.abstractmethod
    async def load_filters(self, most_bytes: float) -> None:
        """Load the filters of closed days now, and not soon after the first transaction.

        From then on as many are in memory as fit into so many bytes.
        """

    @abc.abstractmethod
    async def drop_id_table(self, table: IdTable, *, if_empty: bool = False) -> None:
        """Drop a table of ids, if it is there, without keeping other transactions for long.

        Parameters
        ----------
        if_empty : bool
            Leave it if it holds ids.

        Raises
        ------
        StoreError
            If others use it for longer than that.
        """

    @abc.abstractmethod
    def insert_target(self, day: dt.date, received: dt.date) -> sa.Table:
        """Return where to insert segments in `transact`.

        Parameters
        ----------
        day : datetime.date
            That of the reports.
        received : datetime.date
            That which `transact` was called with.
        """

    @abc.abstractmethod
    async def table_of_merged(self, connection: AsyncConnection, day: dt.date) -> sa.Table:
        """Return where to insert segments made of others of a day."""

    @abc.abstractmethod
    async def table_of_mixed(self, day: dt.date, today: dt.date) -> sa.Table:
        """Return where to insert the segments of a day that is over; make the table if need be."""

    @abc.abstractmethod
    async def prepare_segments(self, day: dt.date) -> None:
        """Make room for a day's segments, if that is better done before the day begins."""

    @abc.abstractmethod
    async def drop_first_tables(self, today: dt.date) -> None:
        """Drop tables of segments that have become empty, with all traces in their files."""

    @abc.abstractmethod
    def mixing_alone(self) -> AbstractAsyncContextManager[Callable[[], bool]]:
        """Keep others from mixing the store's days, as long as what is entered with returns true.

        It doesn't if another process mixes them, or may by now.
        """

    @abc.abstractmethod
    async def read_prefixes(self, heads: Sequence[SegmentPrefix]) -> list[bytes]:
        """Return the beginnings of segments' records, and read next to nothing of the rest.

        Segments that are gone are left out.
        """

    @abc.abstractmethod
    def note_written(self, size: int) -> None:
        """Take note that about `size` bytes were committed."""

    @abc.abstractmethod
    async def reclaim_space(self) -> None:
        """Remove from the files what was deleted, as far as the database allows."""

    @abc.abstractmethod
    async def size_bytes(self) -> int:
        """Return the bytes that the store takes on disk."""

    @abc.abstractmethod
    async def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """Copy all there is at one moment to a new file (raises StoreError if that is refused)."""

    async def close(self) -> None:
        """Close all connections."""
        await self.writing.dispose()
        await self.reading.dispose()


@asynccontextmanager
async def translate_errors(prefix: str = "store") -> AsyncIterator[None]:
    """Turn the database's own errors into StoreError, without SQL or values in the message."""
    try:
        yield
    except SQLAlchemyError as error:
        original = getattr(error, "orig", None)
        reason = type(error).__name__ if original is None else _reason(original)
        raise StoreError(f"{prefix}: {reason}") from error
    except Exception as error:
        if not isinstance(error, (OSError, sqlite3.Error)) and not _is_of_asyncpg(error):
            raise
        raise StoreError(f"{prefix}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the message of a driver's error."""
    # SQLAlchemy wraps asyncpg's error, which knows its text without the DETAIL, which has values.
    if error.__cause__ is not None and _is_of_asyncpg(error.__cause__):
        error = error.__cause__
    if _is_of_asyncpg(error):
        # Without an SQLSTATE it is the driver's own, and may quote what was to be sent.
        message = error.args[0] if getattr(error, "sqlstate", None) and error.args else ""
        return str(message).splitlines()[0] if message else type(error).__name__
    return str(error) or type(error).__name__


def _is_of_asyncpg(error: BaseException) -> bool:
    # By name, because a process that uses only SQLite need not import it.
    return type(error).__module__.startswith("asyncpg")
