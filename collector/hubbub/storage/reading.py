"""Stored reports for the decoder: of an exported directory, or by SQL that databases share.

`SqliteReader` reads a store in a file by Python's own driver: decoding a list takes less time than
importing SQLAlchemy, which collectors and servers need. Invariant: reports, and counts of those
that were forgotten, are read by one statement, which sees one moment.
"""

from __future__ import annotations

import abc
import datetime as dt
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Any

from hubbub.protocol import KeptCounts, Metric, RecordsError, describe_changes, unpack_counts
from hubbub.storage.errors import CountsError, StoreError
from hubbub.storage.reports import MetricVersion, SliceSizes, StoredCounts, StoredRecords, Where

SCHEMA_VERSION = "0001"
"""The version of the tables. A change of them needs another, and a way from this one to it."""

BUSY_SECONDS = 10.0
"""How long a transaction waits for others; shorter than clients wait for their answer."""

_TEXTS_A_QUERY = 500
"""Slices that a query selects by; rows of more are read, and what isn't chosen passed over."""

_WHICH = "WHERE metric = :metric AND version = :version AND day >= :since AND day <= :until"


class Reader(abc.ABC):
    """Stored reports for the decoder, from a database or an exported directory.

    Days are those from `since` to `until`, both included.
    """

    where: Where | None = None  # which slices are read; None: all

    @abc.abstractmethod
    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""

    @abc.abstractmethod
    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports, or counts of them, are stored."""

    @abc.abstractmethod
    async def slices(
        self,
        key: MetricVersion,
        since: dt.date | None = None,
        until: dt.date | None = None,
        *,
        only_counts: bool = False,
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day.

        `only_counts`: of those that were counted and forgotten.
        """

    @abc.abstractmethod
    def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield segments, and counts of forgotten reports.

        All as of one moment: each report is in one of them, though upkeep may count it meanwhile.
        Close it if it isn't read to its end.
        """

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the days for which reports, or counts of them, are stored."""
        sizes = await self.slices(key)
        if self.where:
            chosen = self.where.chosen(sizes)
            return sorted({day for day, text in chosen if text in sizes[day]})
        return sorted(sizes)

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, stored or counted."""
        sizes = await self.slices(key, since, until)
        if self.where:
            return self.where.reports(sizes)
        return sum(sum(reports.values()) for reports in sizes.values())

    async def counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dict[dt.date, int]:
        """Return how many of a day's reports were counted and forgotten, of days with some."""
        sizes = await self.slices(key, since, until, only_counts=True)
        chosen = self.where and self.where.chosen(await self.slices(key, since, until))
        found = Counter[dt.date]()
        for day, reports in sizes.items():
            for text, n in reports.items():
                if chosen is None or (day, text) in chosen:
                    found[day] += n
        return found


def added(rows: Iterable[tuple[dt.date, str, int]]) -> SliceSizes:
    """Return the sums of rows of a day, a slice and a number of reports."""
    sizes: SliceSizes = {}
    for day, text, reports in rows:
        of_day = sizes.setdefault(day, {})
        of_day[text] = of_day.get(text, 0) + reports
    return sizes


class SqlReader(Reader):
    """Reads the tables of a store."""

    @abc.abstractmethod
    async def rows(self, query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query with these parameters."""

    @abc.abstractmethod
    def stream(self, query: str, values: Mapping[str, Any]) -> AsyncGenerator[Sequence[Any], None]:
        """Yield large rows, a few at a time; close it if it isn't read to its end."""

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""
        query = "SELECT parameters FROM parameters WHERE metric = :metric AND version = :version"
        rows = await self.rows(query, {"metric": metric.name, "version": metric.version})
        for (stored,) in rows:
            check_parameters(metric, stored)

    async def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield segments and counts, days `since` to `until` included, as of one moment.

        Close it if it isn't read to its end.
        """
        sizes = await self.slices(key, since, until) if self.where else {}
        chosen = self.where and self.where.chosen(sizes)
        which, values = _WHICH, _values(key, since, until)
        if chosen is not None and len(texts := {text for _, text in chosen}) <= _TEXTS_A_QUERY:
            named = {f"text{number}": text for number, text in enumerate(texts)}
            names = ", ".join(f":{name}" for name in named) or "NULL"
            which, values = f"{which} AND slice IN ({names})", {**values, **named}
        # One statement, because each of PostgreSQL's sees a moment of its own.
        query = (
            f"SELECT day, slice, records, 0 FROM segments {which} UNION ALL "  # noqa: S608
            f"SELECT day, slice, counts, 1 FROM counts {which}"
        )
        async with aclosing(self.stream(query, values)) as rows:
            async for found, text, data, are_counts in rows:
                day = _day(found)
                if chosen is not None and (day, text) not in chosen:
                    continue
                if are_counts:
                    yield StoredCounts(day, read_counts(data, key, day), text)
                else:
                    yield StoredRecords(day, data, text)

    async def slices(
        self,
        key: MetricVersion,
        since: dt.date | None = None,
        until: dt.date | None = None,
        *,
        only_counts: bool = False,
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day."""
        sums = (
            f"SELECT day, slice, sum(reports) FROM {table} {_WHICH} GROUP BY day, slice"  # noqa: S608
            for table in (("counts",) if only_counts else ("segments", "counts"))
        )
        rows = await self.rows(" UNION ALL ".join(sums), _values(key, since, until))
        return added((_day(day), text, int(reports)) for day, text, reports in rows)

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports, or counts of them, are stored."""
        rows = await self.rows(
            "SELECT version FROM segments WHERE metric = :metric UNION "
            "SELECT version FROM counts WHERE metric = :metric",
            {"metric": metric},
        )
        return sorted(version for (version,) in rows)


class SqliteReader(SqlReader):
    """Reads a file; none of its methods waits, so no event loop is needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def rows(self, query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query with these parameters."""
        with self._executed(query, values) as cursor:
            return cursor.fetchall()

    async def stream(
        self, query: str, values: Mapping[str, Any]
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield rows as SQLite finds them."""
        with self._executed(query, values) as cursor:
            for row in cursor:
                yield row

    def _executed(self, query: str, values: Mapping[str, Any]) -> closing[sqlite3.Cursor]:
        texts = {n: str(it) if isinstance(it, dt.date) else it for n, it in values.items()}
        return closing(self._connection.execute(query, texts))


@contextmanager
def read_sqlite(url: str) -> Iterator[SqliteReader]:
    """Open the store in a file for reading; nothing is written.

    Raises `StoreError` if there is no such file, or it isn't a store, or one of another version.
    """
    with connect(file_of(url, create=False), url) as connection:
        connection.isolation_level = None
        connection.execute("PRAGMA query_only=ON")
        tables = connection.execute("SELECT name FROM sqlite_schema")
        if ("hubbub_schema",) not in tables.fetchall():
            raise no_store(url)
        (version,) = connection.execute("SELECT version FROM hubbub_schema").fetchone()
        check_version(version, url)
        yield SqliteReader(connection)


def file_of(url: str, *, create: bool) -> Path:
    """Return the path in an address such as "sqlite:///hubbub.db".

    Raises `StoreError` if it has none, or there is no such file and it isn't to be made.
    """
    after = url.removeprefix("sqlite:").removeprefix("//")
    if "?" in url:
        raise StoreError(f"store {url!r}: must be sqlite:///PATH, without a ?")
    if after and not after.startswith("/"):
        raise StoreError(f"store {url!r}: has two slashes; must be sqlite:///{after}, with three")
    if after in {"", "/", "/:memory:"}:
        raise StoreError(f"store {url!r}: must be sqlite:///PATH, with the path of a file")
    path = Path(after.removeprefix("/"))
    if not create and not path.is_file():
        raise StoreError(f"store {url!r}: no such file; expected a database that a collector made")
    return path


@contextmanager
def connect(path: Path, url: str) -> Iterator[sqlite3.Connection]:
    """Open a file, or make it; raise StoreError if SQLite refuses, or it isn't a database."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA schema_version")
            yield connection
    except sqlite3.Error as error:
        hint = ""
        if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
            hint = f"; does {path.absolute().parent} exist, and may this user write to it?"
        raise StoreError(f"store {url!r}: {error}{hint}") from error


def check_version(version: str, url: str) -> None:
    """Raise StoreError if tables aren't of this version."""
    if version != SCHEMA_VERSION:
        raise StoreError.at(
            url,
            f"made by another version of hubbub (schema {version}, expected {SCHEMA_VERSION}); use "
            "that version, or export from it and import into a new store",
        )


def no_store(url: str) -> StoreError:
    """Return the error of a database without tables."""
    return StoreError.at(url, "is no store of hubbub's; `hubbub-collector serve` makes one")


def shown(definition: Mapping[str, Any]) -> str:
    """Return how reports were made, as it is stored."""
    return json.dumps(definition, sort_keys=True)


def check_parameters(metric: Metric, stored: str) -> None:
    """Raise StoreError if a metric's version is stored with another definition."""
    if stored != shown(metric.definition):
        changes = describe_changes(json.loads(stored), json.loads(shown(metric.definition)))
        changed = "; ".join(f"{key} {words}" for key, words in changes.items())
        raise StoreError(
            f"metrics.{metric.name}: version {metric.version} is stored with another definition: "
            f"{changed}; changed parameters need a new version"
        )


def read_counts(
    packed: bytes, key: MetricVersion, day: dt.date, shape: tuple[int, ...] | None = None
) -> KeptCounts:
    """Return the counts of a row.

    `shape`: m and k that they must have. Raises `CountsError` if they are damaged, or of other
    parameters.
    """
    where = f"counts of {key.metric} version {key.version}, {day}"
    try:
        kept = unpack_counts(packed)
    except RecordsError as error:
        raise CountsError(f"{where}: {error}") from error
    if shape not in {None, kept.counts.bits.shape}:
        m, k = kept.counts.bits.shape
        raise CountsError(f"{where}: m = {m}, k = {k}; expected those of its reports, {shape}")
    return kept


def _values(key: MetricVersion, since: dt.date | None, until: dt.date | None) -> dict[str, Any]:
    days = {"since": since or dt.date.min, "until": until or dt.date.max}
    return {"metric": key.metric, "version": key.version, **days}


def _day(found: dt.date | str) -> dt.date:
    """Return a day; SQLite has texts."""
    return found if isinstance(found, dt.date) else dt.date.fromisoformat(found)
