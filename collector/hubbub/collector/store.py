"""Where reports live: segments of shuffled records, and the batch ids seen, kept apart.

The collector appends, the decoder reads; neither needs the other, and nothing here knows HTTP. What
a maintainer must not break: a batch id and its reports are committed in one transaction, and no row
lets anyone tell which reports came together, from whom, or at what time of day.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import secrets
import sqlite3
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hubbub.client.metrics import Metric
from hubbub.collector.errors import StoreError

COHORT_BYTES = 2
"""A record is the cohort (unsigned, little-endian) followed by the k/8 bytes of bits."""

_BUSY_SECONDS = 30
_IDS_A_STATEMENT = 500

_schema = sa.MetaData()

_segments = sa.Table(
    "segments",
    _schema,
    # "INTEGER" makes it SQLite's row id, so that no hidden serial number remains.
    sa.Column(
        "segment_id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("metric", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("reports", sa.Integer, nullable=False),
    sa.Column("records", sa.LargeBinary, nullable=False),
    sa.Index("segments_by_metric", "metric", "version", "day"),
)

_batches = sa.Table(
    "batches",
    _schema,
    sa.Column("batch_id", sa.LargeBinary(16), primary_key=True),
    sa.Column("day", sa.Date, nullable=False),
    # Without a row id, SQLite keeps ids in the order of the ids, not of their arrival.
    sqlite_with_rowid=False,
)

_parameters = sa.Table(
    "parameters",
    _schema,
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("parameters", sa.Text, nullable=False),
)


class MetricVersion(NamedTuple):
    """What reports must share to be counted together."""

    metric: str
    version: int


class NewBatch(NamedTuple):
    """A batch to be stored: its 16-byte id and its records by metric and version."""

    batch_id: bytes
    records: Mapping[MetricVersion, Sequence[bytes]]


class Store:
    """Reports and batch ids in one SQL database; use `open_store`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def declare(self, metrics: Collection[Metric]) -> None:
        """Record the parameters under which reports of these metrics are stored.

        Raises
        ------
        StoreError
            If a metric's version is already stored with other parameters.
        """
        async with _translated(self._engine.begin()) as connection:
            for metric in metrics:
                row = _parameter_row(metric)
                await connection.execute(insert(_parameters).values(row).on_conflict_do_nothing())
                await _check_parameters(connection, metric)

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's stored reports were made with other parameters."""
        async with _translated(self._engine.connect()) as connection:
            await _check_parameters(connection, metric)

    async def append(self, batches: Sequence[NewBatch], day: dt.date) -> list[bool]:
        """Store batches durably and together; return for each whether it was new.

        A batch whose id is stored already, or stands earlier in `batches`, adds nothing.

        Raises
        ------
        StoreError
            If the database refuses; then nothing of `batches` is stored.
        """
        async with _translated(self._engine.begin()) as connection:
            unseen = await _insert_ids(connection, {batch.batch_id for batch in batches}, day)
            fresh = [_take(unseen, batch.batch_id) for batch in batches]
            new = [batch for batch, is_new in zip(batches, fresh, strict=True) if is_new]
            if rows := _segment_rows(new, day):
                await connection.execute(sa.insert(_segments), rows)
        return fresh

    async def segments(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the concatenated records of each segment, days `since` to `until` included."""
        query = _only(sa.select(_segments.c.records), key, since, until)
        async with _translated(self._engine.connect()) as connection:
            # Addressed one by one, so that memory holds a segment, not the store.
            async for row in await connection.stream(query):
                yield row.records

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of stored reports, days `since` to `until` included."""
        total = sa.func.coalesce(sa.func.sum(_segments.c.reports), 0)
        async with _translated(self._engine.connect()) as connection:
            return int(await connection.scalar(_only(sa.select(total), key, since, until)) or 0)

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which reports are stored."""
        query = sa.select(_segments.c.version).where(_segments.c.metric == metric).distinct()
        async with _translated(self._engine.connect()) as connection:
            return sorted((await connection.scalars(query)).all())


@asynccontextmanager
async def open_store(url: str, *, create: bool) -> AsyncIterator[Store]:
    """Open the store at an address such as "sqlite:///hubbub.db".

    Parameters
    ----------
    url : str
    create : bool
        Make the database and its tables if they don't exist (the collector); otherwise a missing
        database is an error and nothing is written (the decoder).

    Raises
    ------
    StoreError
        If the address isn't supported or the database can't be opened.
    """
    address = _sqlite_address(url)
    if not create and not Path(address.database or "").is_file():
        raise StoreError(f"store {url!r}: no such file; expected a database that a collector made")
    _try_to_open(address.database or "", url)
    engine = create_async_engine(address, connect_args={"timeout": _BUSY_SECONDS})
    sa.event.listen(engine.sync_engine, "connect", _prepare if create else _prepare_reader)
    sa.event.listen(engine.sync_engine, "begin", _begin_immediately if create else _begin)
    try:
        if create:
            async with _translated(engine.begin()) as connection:
                await connection.run_sync(_schema.create_all)
        yield Store(engine)
    finally:
        await engine.dispose()


def _sqlite_address(url: str) -> URL:
    try:
        address = make_url(url)
    except ArgumentError:
        address = None
    path = address.database if address and address.drivername == "sqlite" else None
    if address is None or address.query or path in {None, "", ":memory:"}:
        raise StoreError(f"store {url!r}: must be sqlite:///PATH")
    return address.set(drivername="sqlite+aiosqlite")


def _try_to_open(path: str, url: str) -> None:
    """Fail here, because the asynchronous driver leaves a thread behind when it fails."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise StoreError(f"store {url!r}: {error}") from error


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    # Autocommit at the driver's level leaves BEGIN to _begin_immediately.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only=ON")


def _begin_immediately(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")


@asynccontextmanager
async def _translated(entering: Any) -> AsyncIterator[AsyncConnection]:
    """Turn the database's own errors into StoreError, without SQL or values in the message."""
    try:
        async with entering as connection:
            yield connection
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__
        raise StoreError(f"store: {reason}") from error


def _only(
    query: sa.Select[Any], key: MetricVersion, since: dt.date | None, until: dt.date | None
) -> sa.Select[Any]:
    query = query.where(_segments.c.metric == key.metric, _segments.c.version == key.version)
    if since is not None:
        query = query.where(_segments.c.day >= since)
    if until is not None:
        query = query.where(_segments.c.day <= until)
    return query


def _parameter_row(metric: Metric) -> dict[str, str | int]:
    parameters = json.dumps(metric.definition, sort_keys=True)
    return {"metric": metric.name, "version": metric.version, "parameters": parameters}


async def _check_parameters(connection: AsyncConnection, metric: Metric) -> None:
    row = _parameter_row(metric)
    query = sa.select(_parameters.c.parameters).where(
        _parameters.c.metric == metric.name, _parameters.c.version == metric.version
    )
    stored = await connection.scalar(query)
    if stored not in {None, row["parameters"]}:
        raise StoreError(
            f"metrics.{metric.name}: version {metric.version} is stored with parameters {stored}, "
            f"but the registry says {row['parameters']}; changed parameters need a new version"
        )


async def _insert_ids(connection: AsyncConnection, ids: set[bytes], day: dt.date) -> set[bytes]:
    """Insert batch ids and return those that weren't there."""
    unseen: set[bytes] = set()
    ordered = sorted(ids)
    for start in range(0, len(ordered), _IDS_A_STATEMENT):
        rows = [{"batch_id": i, "day": day} for i in ordered[start : start + _IDS_A_STATEMENT]]
        statement = insert(_batches).values(rows).on_conflict_do_nothing()
        unseen.update(await connection.scalars(statement.returning(_batches.c.batch_id)))
    return unseen


def _take(unseen: set[bytes], batch_id: bytes) -> bool:
    """Claim an id: True for the first batch that bears it, False for all others."""
    if batch_id not in unseen:
        return False
    unseen.remove(batch_id)
    return True


def _segment_rows(batches: Sequence[NewBatch], day: dt.date) -> list[dict[str, object]]:
    """Pool the records of many batches, shuffled so that none can be told from another's."""
    pools: dict[MetricVersion, list[bytes]] = {}
    for batch in batches:
        for key, records in batch.records.items():
            pools.setdefault(key, []).extend(records)
    return [
        {
            "segment_id": secrets.randbits(63),
            "metric": key.metric,
            "version": key.version,
            "day": day,
            "reports": len(records),
            "records": b"".join(_shuffled(records)),
        }
        for key, records in pools.items()
    ]


def _shuffled(records: list[bytes]) -> list[bytes]:
    """Order records by random keys from the operating system."""
    keys = secrets.token_bytes(8 * len(records))
    order = sorted(range(len(records)), key=lambda i: keys[8 * i : 8 * i + 8])
    return [records[i] for i in order]
