"""The queue on disk: reports after both responses, until the collector has acknowledged them.

A report is stored as the record that travels. When some are due, the process that sends them puts
them into a batch and leases it. Invariants: a batch keeps its id for as long as the collector may
have stored it, so no report is ever counted under two ids; no batch contains two cohorts that are
a client's for life, because together they would identify the client; reports are sent to the origin
alone for which they were recorded; and of a metric with ``reports_per_day = 1`` at most one can be
stored on a day, as far as the client's clock is right.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from hubbub.client.ledger import SWITCHED_OFF
from hubbub.client.storage import Storage, count_waiting, delete_unsent
from hubbub.client.switch import NO_SWITCH, Switch
from hubbub.protocol.compact import section_name
from hubbub.protocol.metrics import SECONDS_A_DAY
from hubbub.protocol.params import COHORT_BYTES
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import (
    EMPTY_BODY_BYTES,
    Batch,
    Report,
    json_size,
    new_batch_id,
)

_Item = TypeVar("_Item")

DAMAGED = "damaged on disk"
TOO_OLD = "too old"
NO_ROOM = "no room on disk"
MOST_BYTES = 1_000_000
"""Largest body of a batch; by default collectors accept 1 MiB."""

_SENT_DAYS = """
CREATE TABLE IF NOT EXISTS sent_days (  -- of metrics with reports_per_day = 1
    metric TEXT PRIMARY KEY,
    day INTEGER NOT NULL -- on which one may have arrived last, counted from 1970
) WITHOUT ROWID
"""
_ROW_BYTES = 64
"""What a report takes on disk beside its metric's name and its record: 60 to 68 bytes, measured as
the growth of the file by 10,000 reports."""


class LeasedBatch(NamedTuple):
    """A batch for this process to send now, while its lease lasts."""

    key: int
    # Its reports in ascending order, which tells nothing, and is the same in each attempt.
    batch: Batch
    rows: tuple[int, ...]  # the reports' keys on disk
    is_new: bool  # whether its id was drawn for this attempt, so that no collector can have seen it

    @property
    def reports(self) -> int:
        """Number of reports."""
        return len(self.rows)


class Outbox:
    """The queue of one client; several processes may use it at once.

    `secret`: the database must belong to it. `origin`: of the collector. `max_bytes`: beyond it the
    oldest go first. `max_age`: seconds after which a report is dropped, because the collector might
    have forgotten its batch's id. `lease_seconds`: how long a batch is left to the process that
    sends it, in case that process disappears. `switch`: returns what is off, as it is stored,
    within a transaction: its reports aren't sent. `dropped`: reports dropped from the disk, by
    reason; the caller reads and empties it.
    """

    def __init__(
        self,
        storage: Storage,
        secret: bytes,
        origin: str,
        max_bytes: int,
        max_age: float,
        lease_seconds: float,
        *,
        switch: Callable[[sqlite3.Connection], Switch] = lambda _: NO_SWITCH,
    ) -> None:
        self._storage = storage
        self._switch = switch
        self._secret = secret
        self._origin = origin
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._lease_seconds = lease_seconds
        self._number = int.from_bytes(os.urandom(4), "little")
        self._waits: dict[tuple[str, int], tuple[int, float]] = {}
        self._dropping: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        _open_here.add(self._number)

    def close(self) -> None:
        """End this outbox's leases."""
        _open_here.discard(self._number)

    def waiting(self) -> int:
        """Return the number of reports on disk."""
        with self._storage.transaction(self._secret) as connection:
            return count_waiting(connection, self._origin)

    def spooled(self, now: float = 0.0) -> int:
        """Return the number of reports that are in no batch yet, without those that are put off."""
        with self._storage.transaction(self._secret) as connection:
            return self._count_spooled(connection, now)

    def lease(self, now: float, least: int, most: int) -> LeasedBatch | None:
        """Lease the oldest batch that nobody else is sending.

        `least`: put reports into batches while at least so many are in none. `most`: reports of a
        batch.
        """
        with self._transaction() as connection:
            self._trim(connection, now)
            blocked = self._set_apart(connection, now)
            switch = self._switch(connection)
            while self._count_spooled(connection, now) >= least:
                self._make_batch(connection, most, now)
            batches = connection.execute(
                "SELECT id, batch_id, checksum, holder, lease_expires_at FROM batches "
                "WHERE origin = ? ORDER BY id",
                (self._origin,),
            )
            for key, batch_id, checksum, holder, lease_expires_at in batches.fetchall():
                if key in blocked or self._is_leased(holder, lease_expires_at, now):
                    continue
                fault = None
                if batch_id is not None and checksum != _checksum(batch_id):
                    fault = DAMAGED
                if leased := self._read(connection, key, batch_id, fault, switch, now):
                    connection.execute(
                        "UPDATE batches SET batch_id = ?, checksum = ?, holder = ?, "
                        "lease_expires_at = ? WHERE id = ?",
                        (
                            leased.batch.batch_id,
                            _checksum(leased.batch.batch_id),
                            self._holder,
                            now + self._lease_seconds,
                            key,
                        ),
                    )
                    return leased
        return None

    def trim(self, now: float) -> None:
        """Drop reports that are too old, and the oldest of what is beyond the cap."""
        with self._transaction() as connection:
            self._trim(connection, now)

    def clear(self, now: float) -> int:
        """Delete all reports; return how many.

        Those that are being sent aren't counted: whoever sends them counts them (see `release`).
        """
        with self._storage.transaction(self._secret) as connection:
            count = count_waiting(connection)
            for key in self._leased(connection, now):
                query = "SELECT count(*) FROM reports WHERE batch = ?"
                count -= connection.execute(query, (key,)).fetchone()[0]
            delete_unsent(connection)
        return count

    def note_sent(self, metrics: Collection[str], now: float) -> None:
        """Note that reports of these metrics may have arrived today."""
        with self._storage.transaction(self._secret) as connection:
            note_sent(connection, metrics, now)

    def remove(self, batch: LeasedBatch, indices: Collection[int] | None = None) -> bool:
        """Forget reports that are settled: all, or some; return whether the batch was still there.

        The others wait for another attempt, under the same id.
        """
        if indices is None:
            for report in batch.batch.reports:
                self._waits.pop((report.metric, report.version), None)
        settled = range(batch.reports) if indices is None else indices
        with self._storage.transaction(self._secret) as connection:
            connection.executemany(
                "DELETE FROM reports WHERE id = ? AND batch = ?",
                [(batch.rows[index], batch.key) for index in settled],
            )
            is_there = _give_up(connection, batch)
            _delete_empty(connection)
        return is_there

    def release(self, batch: LeasedBatch, *, may_be_stored: bool = True) -> bool:
        """Give up the lease, for a later attempt; return whether the batch is still there.

        An id that was drawn for this attempt is forgotten if no collector can have stored it: to
        show it again, perhaps from another network, would tell that it is the same client's.
        """
        with self._storage.transaction(self._secret) as connection:
            return self._let_go(connection, batch, may_be_stored=may_be_stored)

    def _let_go(
        self, connection: sqlite3.Connection, batch: LeasedBatch, *, may_be_stored: bool
    ) -> bool:
        if batch.is_new and not may_be_stored:
            connection.execute(
                "UPDATE batches SET batch_id = NULL, checksum = NULL "
                "WHERE id = ? AND holder = ?",  # else others have sent it since, under this id
                (batch.key, self._holder),
            )
        return _give_up(connection, batch)

    def put_off(
        self,
        batch: LeasedBatch,
        unknown: Collection[tuple[str, int]],
        refused: Collection[int],
        now: float,
        chance: Callable[[], float],
    ) -> bool:
        """Keep reports whose metric and version the collector doesn't know yet, for a while.

        They wait a second at first and then twice as long each time, an hour at most; reports that
        are refused for good are deleted, and the others go at once. Nothing of the batch was
        stored, so they go under another id, unless an earlier attempt may have stored all of it
        under this one: then the whole batch waits, or a report might count twice. Returns whether
        the batch was still there.
        """
        for one in unknown:
            failures, _ = self._waits.get(one, (0, 0.0))
            bound = min(_FIRST_WAIT * 2.0**failures, _LONGEST_WAIT)
            self._waits[one] = min(failures + 1, 30), now + bound * (0.5 + 0.5 * chance())
        rows = [(batch.rows[index],) for index in refused]
        with self._storage.transaction(self._secret) as connection:
            query = f"DELETE FROM reports WHERE id = ? AND batch = {batch.key}"  # noqa: S608
            connection.executemany(query, rows)
            is_there = self._let_go(connection, batch, may_be_stored=False)
            _delete_empty(connection)
        return is_there

    def end_waits(self) -> None:
        """Try again at once what was put off."""
        self._waits = {one: (failures, 0.0) for one, (failures, _) in self._waits.items()}

    def rest(self, now: float) -> float:
        """Return the seconds until something is no longer put off."""
        return min((self._waits[one][1] - now for one in self._put_off(now)), default=math.inf)

    def _put_off(self, now: float) -> list[tuple[str, int]]:
        waits = self._waits.items()
        return [one for one, (_, until) in waits if now < until <= now + _LONGEST_WAIT]

    def _set_apart(self, connection: sqlite3.Connection, now: float) -> set[int]:
        """Take what is put off out of batches; return those that can't be changed any more."""
        if not (put_off := self._put_off(now)):
            return set()
        of_these, values = _among(put_off)
        unshown = "SELECT id FROM batches WHERE batch_id IS NULL"
        connection.execute(
            f"UPDATE reports SET batch = NULL WHERE {of_these} AND batch IN ({unshown})",  # noqa: S608
            values,
        )
        _delete_empty(connection)
        query = f"SELECT DISTINCT batch FROM reports WHERE {of_these} AND batch IS NOT NULL"  # noqa: S608
        return {key for (key,) in connection.execute(query, values)}

    def has_batches(self) -> bool:
        """Whether reports are in batches, which others may be sending."""
        with self._storage.transaction(self._secret) as connection:
            query = "SELECT 1 FROM batches WHERE origin = ? LIMIT 1"
            return connection.execute(query, (self._origin,)).fetchone() is not None

    def _count_spooled(self, connection: sqlite3.Connection, now: float) -> int:
        of_these, values = _among(self._put_off(now))
        query = (
            f"SELECT count(*) FROM reports WHERE batch IS NULL AND origin = ? AND NOT {of_these}"  # noqa: S608
        )
        return int(connection.execute(query, (self._origin, *values)).fetchone()[0])

    def _make_batch(self, connection: sqlite3.Connection, most: int, now: float) -> None:
        """Make a batch of the oldest reports that may share one, as many as a body has room for."""
        put_off, values = _among(self._put_off(now))
        spooled = f"FROM reports WHERE batch IS NULL AND origin = ? AND NOT {put_off}"
        query = f"SELECT lasting {spooled} AND lasting != '' ORDER BY id LIMIT 1"
        first = connection.execute(query, (self._origin, *values)).fetchone()
        rows = connection.execute(
            f"SELECT id, metric, slice, length(record) {spooled} "
            "AND lasting IN ('', ?) ORDER BY id LIMIT ?",
            (self._origin, *values, first[0] if first else "", most),
        ).fetchall()
        key = connection.execute(
            "INSERT INTO batches (origin) VALUES (?)", (self._origin,)
        ).lastrowid
        room = MOST_BYTES - EMPTY_BODY_BYTES
        taken: list[tuple[int | None, int]] = []
        for row, metric, slice_, size in rows:
            room -= json_size(metric, size - COHORT_BYTES, slice_)
            if room < 0 and taken:
                break
            taken.append((key, row))
        connection.executemany("UPDATE reports SET batch = ? WHERE id = ?", taken)

    def _read(
        self,
        connection: sqlite3.Connection,
        key: int,
        batch_id: str | None,
        fault: str | None,
        switch: Switch,
        now: float,
    ) -> LeasedBatch | None:
        """Return a batch; drop what can't be sent of it, and the batch if that is all."""
        whole = []
        for row, *content, checksum in connection.execute(
            "SELECT id, metric, version, record, slice, checksum FROM reports WHERE batch = ?",
            (key,),
        ).fetchall():
            reason = fault or (None if checksum == _checksum(*content) else DAMAGED)
            if reason is None and switch.is_off(*content[:2]):
                reason = SWITCHED_OFF
                if batch_id is not None:
                    note_sent(connection, [content[0]], now)  # what shows that is deleted
            if reason is None:
                metric, version, record, slice_ = content
                order = section_name(metric, slice_), version, record, row
                whole.append((order, Report.of_record(*content), row))
            else:
                connection.execute("DELETE FROM reports WHERE id = ?", (row,))
                self._dropping[reason] += 1
        if not whole:
            connection.execute("DELETE FROM batches WHERE id = ?", (key,))
            return None
        _, reports, rows = zip(*sorted(whole), strict=True)
        batch = Batch(reports, batch_id or new_batch_id())
        return LeasedBatch(key, batch, rows, is_new=batch_id is None)

    def _trim(self, connection: sqlite3.Connection, now: float) -> None:
        sums = f"SELECT total({_SIZE}), min(created) FROM reports"  # noqa: S608 (a constant)
        size, oldest = connection.execute(sums).fetchone()
        surplus, earliest = size - self._max_bytes, now - self._max_age
        if surplus <= 0 and (oldest is None or oldest >= earliest):
            return
        leased = self._leased(connection, now)
        query = f"SELECT id, batch, created, {_SIZE}, metric, version FROM reports ORDER BY id"  # noqa: S608
        put_off = set(self._put_off(now))
        # What the collector doesn't know makes room for what it does.
        rows = sorted(connection.execute(query), key=lambda row: row[4:] not in put_off)
        dropped = []
        for row, batch, created, size, *_ in rows:
            is_old = created < earliest
            if batch in leased or not (is_old or surplus > 0):
                continue
            dropped.append((row,))
            self._dropping[TOO_OLD if is_old else NO_ROOM] += 1
            surplus -= size
        connection.executemany("DELETE FROM reports WHERE id = ?", dropped)
        if dropped:
            _delete_empty(connection)

    @property
    def _holder(self) -> int:
        return os.getpid() * _NUMBERS + self._number

    def _leased(self, connection: sqlite3.Connection, now: float) -> set[int]:
        query = "SELECT id, holder, lease_expires_at FROM batches WHERE holder != 0"
        leases = connection.execute(query)
        return {key for key, holder, until in leases if self._is_leased(holder, until, now)}

    def _is_leased(self, holder: int, lease_expires_at: float, now: float) -> bool:
        if holder in {0, self._holder} or not _may_be_sending(*divmod(holder, _NUMBERS)):
            return False
        # A clock that was set back extends no lease; but two processes may read it out of turn.
        return now < lease_expires_at <= now + 2 * self._lease_seconds

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._dropping.clear()
        with self._storage.transaction(self._secret) as connection:
            yield connection
        self.dropped.update(self._dropping)


def _among(versions: Sequence[tuple[str, int]]) -> tuple[str, list[str | int]]:
    if not versions:
        return "0", []
    pairs = ", ".join(["(?, ?)"] * len(versions))
    return f"(metric, version) IN (VALUES {pairs})", [value for one in versions for value in one]


_FIRST_WAIT, _LONGEST_WAIT = 1.0, 3600.0  # seconds until a metric is tried again
_ITEMS_A_TURN = 64  # far less than the interpreter's 5 ms of work
_PAUSE_SECONDS = 1e-6  # any sleep lets others run; it lasts as short as the system can make it
_NUMBERS = 2**32  # a holder is a process id and, below that, the number of one of its outboxes
_open_here: set[int] = set()
_SIZE = f"length(metric) + length(slice) + length(record) + {_ROW_BYTES}"


def round_robin(items: Sequence[_Item]) -> Iterator[_Item]:
    """Yield items, and every now and then let the app's threads run.

    The interpreter would make them wait for 5 ms each time that they want to go on.
    """
    for start in range(0, len(items), _ITEMS_A_TURN):
        yield from items[start : start + _ITEMS_A_TURN]
        time.sleep(_PAUSE_SECONDS)


def spool(
    connection: sqlite3.Connection,
    reports: Sequence[Report],
    registry: Registry,
    origin: str,
    now: float,
) -> None:
    """Put reports on disk, each with the metric whose cohort it reveals, if that is for life."""
    rows = []
    for report in round_robin(reports):
        metric = registry[report.metric]
        lasting = metric.name if metric.memory == "value" and metric.params.m > 1 else ""
        content = (report.metric, report.version, report.record, report.slice)
        rows.append((origin, *content, _checksum(*content), lasting, now))
    connection.executemany(
        "INSERT INTO reports (origin, metric, version, record, slice, checksum, lasting, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def note_sent(connection: sqlite3.Connection, metrics: Collection[str], now: float) -> None:
    """Note that reports of these metrics may have arrived today."""
    connection.execute(_SENT_DAYS)
    rows = [(metric, now // SECONDS_A_DAY) for metric in metrics]
    connection.executemany("INSERT OR REPLACE INTO sent_days VALUES (?, ?)", rows)


def is_sent(connection: sqlite3.Connection, metric: str, now: float) -> bool:
    """Return whether a report of a metric may have arrived today, or one that still waits, ever."""
    connection.execute(_SENT_DAYS)
    query = (
        "SELECT 1 FROM sent_days WHERE metric = ? AND day = ? UNION ALL "
        "SELECT 1 FROM reports JOIN batches ON reports.batch = batches.id "
        "WHERE metric = ? AND batch_id IS NOT NULL LIMIT 1"
    )
    day = now // SECONDS_A_DAY
    return connection.execute(query, (metric, day, metric)).fetchone() is not None


def delete_waiting(connection: sqlite3.Connection, metric: str, origin: str) -> int:
    """Delete a metric's reports that no collector can have; return how many there were."""
    deleted = connection.execute(
        "DELETE FROM reports WHERE metric = ? AND origin = ? AND "
        "(batch IS NULL OR batch IN (SELECT id FROM batches WHERE batch_id IS NULL))",
        (metric, origin),
    ).rowcount
    if deleted:
        _delete_empty(connection)
    return deleted


def _give_up(connection: sqlite3.Connection, batch: LeasedBatch) -> bool:
    query = "UPDATE batches SET holder = 0 WHERE id = ?"
    return connection.execute(query, (batch.key,)).rowcount == 1


def _delete_empty(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM batches WHERE id NOT IN (SELECT batch FROM reports WHERE batch IS NOT NULL)"
    )


def _checksum(*content: object) -> bytes:
    return hashlib.sha256(repr(content).encode()).digest()[:16]


def _may_be_sending(pid: int, number: int) -> bool:
    """Tell whether an outbox may still be open, in this process or in one that may be alive."""
    if pid == os.getpid():  # a former process may have had this id
        return number in _open_here
    if os.name == "nt":  # where signal 0 isn't a question; the lease expires in time
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
