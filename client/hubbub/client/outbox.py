"""The client's database, `client.db`: its account, and the queue of reports that wait to be sent.

It is one SQLite file, so that a report and its price are committed together. Invariants:

- a database that is missing, damaged or another client's is an error and never replaced, or spent
  privacy would be forgotten;
- what a transaction deletes is in no file of the directory once it is committed (a rollback journal
  and overwritten bytes; a write-ahead log would keep them until it happens to be reused);
- a batch keeps its id for as long as the collector may have stored it, so no report is ever counted
  under two ids;
- no batch contains two cohorts that a client has for life, because together they would identify it;
- reports are sent only to the origin for which they were recorded;
- of a metric with ``reports_per_day = 1`` at most one report can be stored on a day, as far as the
  client's clock is right.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hubbub.client.forks import ORPHANED, after_fork, before_fork, is_orphaned, no_fork
from hubbub.client.schedule import NO_SWITCH, SWITCHED_OFF, Switch
from hubbub.protocol.errors import (
    ForgottenError,
    OtherApplicationError,
    StateError,
    SwitchError,
    UnavailableError,
)
from hubbub.protocol.metrics import SECONDS_A_DAY
from hubbub.protocol.params import COHORT_BYTES
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import (
    EMPTY_BODY_BYTES,
    Batch,
    Report,
    json_size,
    new_batch_id,
    section_name,
)

DATABASE = "client.db"
TOO_OLD = "too old"
NO_ROOM = "no room on disk"
MOST_BYTES = 1_000_000
"""Largest body of a batch; by default collectors accept 1 MiB."""
MAX_AGE = 13 * 86_400.0
"""Seconds after which a report is dropped: a day less than the collector remembers batch ids."""
PATIENCE = 5.0
"""Seconds, SQLite's usual: a transaction takes milliseconds, so longer means a hung process."""

CONSEQUENCE = (
    "nothing is sent, because what this client has spent of its privacy is no longer known; "
    "forget() starts a new account"
)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 3600.0  # seconds until an unknown metric is tried again
_NUMBERS = 2**32  # a holder is a process id and, below that, the number of one of its outboxes
_ROW_BYTES = 48
"""A report's bytes on disk besides its metric's name and its record: 43 to 50, measured as
the growth of the file by 10,000 reports."""
_SIZE = f"length(metric) + length(slice) + length(record) + {_ROW_BYTES}"
_SPOOLED = "FROM reports WHERE batch IS NULL AND origin = ? AND NOT put_off(metric, version, ?)"
_FORMAT = 4  # user_version of the schema below; others are refused
_SCHEMA = """
CREATE TABLE account (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    owner BLOB,                   -- fingerprint of the secret
    place TEXT,                   -- fingerprint of the machine and the files, to notice copies
    application TEXT,             -- the registry's, which shares its answers with no other
    restores INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
);
CREATE TABLE definitions (
    metric TEXT NOT NULL,
    version INTEGER NOT NULL,
    definition TEXT NOT NULL,     -- JSON: how this version's answers were made
    hides_changes INTEGER NOT NULL,  -- 0: some were reported while a change would have been seen
    PRIMARY KEY (metric, version)
) WITHOUT ROWID;
CREATE TABLE answers (
    metric TEXT NOT NULL,
    version INTEGER NOT NULL,
    answer BLOB NOT NULL,         -- a value's keyed digest, or a period's number
    reports INTEGER NOT NULL,
    epsilon_report REAL NOT NULL,
    price REAL NOT NULL,
    changed INTEGER NOT NULL,
    PRIMARY KEY (metric, version, answer)
) WITHOUT ROWID;
CREATE TABLE memory (             -- the answer that was admitted last
    metric TEXT NOT NULL,
    version INTEGER NOT NULL,
    answer BLOB NOT NULL,
    cohort INTEGER NOT NULL,
    bits BLOB NOT NULL,           -- after the permanent response
    end_day INTEGER,              -- from 1970, when it is deleted, NULL with memory = "value"
    PRIMARY KEY (metric, version)
) WITHOUT ROWID;
CREATE TABLE periods (            -- the last one that was answered, or waited in, of all versions
    metric TEXT PRIMARY KEY,
    version INTEGER NOT NULL,     -- that answered or waited
    first_day INTEGER NOT NULL,   -- counted from 1970
    end_day INTEGER NOT NULL,     -- on which it is over
    answered INTEGER NOT NULL,
    behind_since REAL             -- the clock's earliest reading before it, while it is behind
) WITHOUT ROWID;
CREATE TABLE reports (            -- that are to be sent
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,         -- of the collector for which they were recorded
    metric TEXT NOT NULL,
    version INTEGER NOT NULL,
    slice TEXT NOT NULL,          -- facts about the app, in the clear
    record BLOB NOT NULL,         -- the cohort, 2 bytes little-endian, then the bits
    lasting TEXT NOT NULL,        -- the metric, if its cohort is one for life, else empty
    created REAL NOT NULL,
    batch INTEGER                 -- NULL until they are about to be sent
);
CREATE INDEX reports_of_batch ON reports (batch);
CREATE TABLE switch (             -- once it was asked for
    key TEXT PRIMARY KEY,         -- that the app has, and that signed the body, or empty
    asked REAL NOT NULL,          -- when, last
    body BLOB NOT NULL            -- the document that is obeyed, empty if there is none
) WITHOUT ROWID;
CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a slow process may still settle it
    origin TEXT NOT NULL,
    batch_id TEXT,                -- NULL while no collector can have stored it
    holder INTEGER NOT NULL DEFAULT 0,
    lease_expires_at REAL NOT NULL DEFAULT 0
);
CREATE TABLE sent_days (          -- of metrics with reports_per_day = 1
    metric TEXT PRIMARY KEY,
    day INTEGER NOT NULL          -- on which one may have arrived last, counted from 1970
) WITHOUT ROWID
"""
# Trouble that may pass: a full disk, too many open files, a file system mounted read-only.
_PASSING = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN",
    "SQLITE_READONLY", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_INTERRUPT", "SQLITE_PERM",
)  # fmt: skip
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_NOT_A_PLACE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP})


class LeasedBatch(NamedTuple):
    """A batch for this process to send now, while its lease lasts."""

    key: int
    # Its reports ascend: this order reveals nothing, and is the same in each attempt.
    batch: Batch
    rows: tuple[int, ...]  # the reports' keys on disk
    is_new: bool  # whether its id was drawn for this attempt, so that no collector can have seen it

    @property
    def reports(self) -> int:
        """Number of reports."""
        return len(self.rows)


class Outbox:
    """A connection to `client.db`, for one thread; several processes may have one each.

    A fork closes the connection, and it reopens when it is needed.

    `secret`: the database must belong to it; None: to whichever. `origin`: of the collector.
    `max_bytes`: beyond it the oldest reports are dropped. `lease_seconds`: how long a batch is left
    to the process that sends it, in case that process disappears. `switch_key`: as `Settings` have
    it. `create`: make the database if there is none. `patience`: seconds to wait for other
    connections' transactions. `dropped`: reports dropped from the disk, by reason; the caller reads
    and empties it. Raises `StateError` if the database is damaged or missing, `UnavailableError` if
    it can't be opened for now.
    """

    def __init__(
        self,
        folder: Path,
        application: str,
        secret: bytes | None = None,
        *,
        origin: str = "",
        max_bytes: int = 2**22,
        lease_seconds: float = 60.0,
        switch_key: str | None = None,
        create: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        if is_orphaned():
            raise StateError(ORPHANED)
        self.path = folder / DATABASE
        self.secret = secret
        self.origin = origin
        self._application = application
        self._max_bytes = max_bytes
        self._lease_seconds = lease_seconds
        self._switch_key = switch_key
        self._patience = patience
        self._number = int.from_bytes(os.urandom(4), "little")
        self._waits: dict[tuple[str, int], tuple[int, float]] = {}
        self._dropping: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._opened: sqlite3.Connection | None = None
        with no_fork(), translated_errors(self.path):
            if create:
                _create(self.path, application, patience)
            _outboxes.add(self)
            _ = self.connection
        _open_here.add(self._number)

    def close(self) -> None:
        """Close the connection, and end its leases."""
        _open_here.discard(self._number)
        with no_fork():
            _outboxes.discard(self)
            self._disconnect()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, which is opened again after a fork."""
        if self._opened is None:
            self._opened = _connect(self.path, self._patience)
            self._opened.create_function("put_off", 3, self._is_put_off)
        return self._opened

    def check(self) -> None:
        """Raise StateError if the database is damaged, or of another format."""
        with no_fork(), translated_errors(self.path):
            result = self.connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            version = self.connection.execute("PRAGMA user_version").fetchone()[0]
            if result == "ok" and version not in {0, _FORMAT}:
                raise StateError(
                    f"{self.path}: its format is {version}: must be {_FORMAT}; {CONSEQUENCE}"
                )
            whole = result == "ok" and version and self.connection.execute("SELECT * FROM account")
            if not whole or whole.fetchone() is None:
                raise StateError(f"{self.path}: damaged ({result}); {CONSEQUENCE}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements that are committed together, durably, or not at all.

        Raises `UnavailableError` if the database is in use, or the disk full: try again later; and
        `ForgottenError` if another process has deleted this client.
        """
        self._dropping.clear()
        with no_fork(), translated_errors(self.path):
            connection = self.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                query = "SELECT owner, forgotten, application FROM account"
                owner, forgotten, application = connection.execute(query).fetchone()
                if application != self._application:
                    raise OtherApplicationError(
                        f"{self.path.parent}: is the state of the application {application!r}, "
                        f"must be of {self._application!r}; give each a state_dir of its own"
                    )
                # Another process may have begun a new client since it deleted this one.
                if forgotten or (self.secret is not None and owner != fingerprint(self.secret)):
                    raise ForgottenError(
                        "forgotten: another process has deleted this client's state"
                    )
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise
        self.dropped.update(self._dropping)

    def waiting(self) -> int:
        """Return the number of reports on disk."""
        with self.transaction() as connection:
            return count_waiting(connection, self.origin)

    def spooled(self, now: float = 0.0) -> int:
        """Return the number of reports that are in no batch yet, without those that are put off."""
        with self.transaction() as connection:
            return self._count_spooled(connection, now)

    def has_batches(self) -> bool:
        """Whether reports are in batches, which others may be sending."""
        with self.transaction() as connection:
            query = "SELECT 1 FROM batches WHERE origin = ? LIMIT 1"
            return connection.execute(query, (self.origin,)).fetchone() is not None

    def lease(self, now: float, least: int, most: int) -> LeasedBatch | None:
        """Lease the oldest batch that no other process is sending.

        `least`: put reports into batches while at least so many are in none. `most`: reports of a
        batch.
        """
        with self.transaction() as connection:
            # Delete old reports, set aside those that the collector doesn't know yet, and put the
            # rest into batches while there is enough of it.
            self._trim(connection, now)
            blocked = self._separate_waiting(connection, now)
            switch = self.switch(connection)
            while self._count_spooled(connection, now) >= least:
                self._make_batch(connection, most, now)
            # The oldest that is free, and still has a report that may be sent, is leased.
            batches = connection.execute(
                "SELECT id, batch_id, holder, lease_expires_at FROM batches "
                "WHERE origin = ? ORDER BY id",
                (self.origin,),
            )
            for key, batch_id, holder, lease_expires_at in batches.fetchall():
                if key in blocked or self._is_leased(holder, lease_expires_at, now):
                    continue
                if leased := self._read(connection, key, batch_id, switch, now):
                    until = now + self._lease_seconds
                    connection.execute(
                        "UPDATE batches SET batch_id = ?, holder = ?, lease_expires_at = ? "
                        "WHERE id = ?",
                        (leased.batch.batch_id, self._holder, until, key),
                    )
                    return leased
        return None

    def trim(self, now: float) -> None:
        """Drop reports that are too old, and the oldest of what is beyond `max_bytes`."""
        with self.transaction() as connection:
            self._trim(connection, now)

    def clear(self, now: float) -> int:
        """Delete all reports; return how many.

        Those that are being sent aren't counted: their sender counts them (see `release`).
        """
        with self.transaction() as connection:
            count = count_waiting(connection)
            for key in self._leased(connection, now):
                query = "SELECT count(*) FROM reports WHERE batch = ?"
                count -= connection.execute(query, (key,)).fetchone()[0]
            delete_unsent(connection)
        return count

    def settle(
        self,
        batch: LeasedBatch,
        settled: Collection[int] = (),
        *,
        may_be_stored: bool = True,
        sent: Collection[str] = (),
        now: float = 0.0,
    ) -> bool:
        """End a lease, and forget reports that are settled; return whether the batch was there.

        The others wait for another attempt under the same id. But an id that was drawn for this
        attempt is forgotten if no collector can have stored it: shown again, perhaps from another
        network, it would link the two attempts to one client. `sent`: metrics of which a report may
        have arrived today.
        """
        if len(settled) == batch.reports:
            for report in batch.batch.reports:
                self._waits.pop((report.metric, report.version), None)
        with self.transaction() as connection:
            if sent:
                note_sent(connection, sent, now)
            connection.executemany(
                "DELETE FROM reports WHERE id = ? AND batch = ?",
                [(batch.rows[index], batch.key) for index in settled],
            )
            if batch.is_new and not may_be_stored:
                connection.execute(
                    "UPDATE batches SET batch_id = NULL "
                    "WHERE id = ? AND holder = ?",  # else others have sent it since, under this id
                    (batch.key, self._holder),
                )
            query = "UPDATE batches SET holder = 0 WHERE id = ?"
            is_there = connection.execute(query, (batch.key,)).rowcount == 1
            _delete_empty(connection)
        return is_there

    def put_off(
        self, unknown: Collection[tuple[str, int]], now: float, chance: Callable[[], float]
    ) -> None:
        """Keep reports whose metric and version the collector doesn't know yet, for a while.

        They wait a second at first and then twice as long each time, an hour at most. The others
        go at once, under another id; but if an earlier attempt may have stored the batch under this
        id, all of it waits, or a report might count twice.
        """
        for one in unknown:
            failures, _ = self._waits.get(one, (0, 0.0))
            bound = min(_FIRST_WAIT * 2.0**failures, _LONGEST_WAIT)
            self._waits[one] = min(failures + 1, 30), now + bound * (0.5 + 0.5 * chance())

    def end_waits(self) -> None:
        """Try again at once what was put off."""
        self._waits = {one: (failures, 0.0) for one, (failures, _) in self._waits.items()}

    def seconds_put_off(self, now: float) -> float:
        """Return the seconds until something is no longer put off."""
        ends = (until for one, (_, until) in self._waits.items() if self._is_put_off(*one, now))
        return min(ends, default=math.inf) - now

    def switch(self, connection: sqlite3.Connection) -> Switch:
        """Return what is off for this client, as it is stored for the app's key, or for none ("").

        A switch that another key signed, or none, isn't obeyed: an app that got a new key may have
        been given a file by the thief of the old one.
        """
        if self._switch_key is None:
            return NO_SWITCH
        query = "SELECT asked, body FROM switch WHERE key = ?"
        row = connection.execute(query, (self._switch_key,)).fetchone()
        if row is None:
            return NO_SWITCH
        asked, body = row
        from hubbub.protocol.switch import parse_document

        try:
            document = parse_document(body) if body else None
        except SwitchError:  # of a later version of this client
            document = None
        return Switch(document, self.secret or b"", asked)

    def load_switch(self) -> Switch:
        """Return what is off for this client."""
        with self.transaction() as connection:
            return self.switch(connection)

    def claim_fetch(self, now: float) -> bool:
        """Return whether to ask for the switch now; then no process does so for a day."""
        if self._switch_key is None:
            return False
        with self.transaction() as connection:
            if not self.switch(connection).is_due(now):
                return False
            connection.execute(
                "INSERT INTO switch VALUES (?, ?, x'') "
                "ON CONFLICT DO UPDATE SET asked = excluded.asked",
                (self._switch_key, now),
            )
        return True

    def keep_switch(self, body: bytes, issued: str) -> bool:
        """Obey a checked switch from now on; return False if a later one is obeyed.

        A document isn't replaced by one that the same key signed before, so an old
        file can't be brought back. Without a signature anybody could state any time.
        """
        with self.transaction() as connection:
            kept = self.switch(connection).document
            if self._switch_key and kept and issued < kept.issued:
                return False
            connection.execute(
                "UPDATE switch SET body = ? WHERE key = ?", (body, self._switch_key or "")
            )
        return True

    def _is_put_off(self, metric: str, version: int, now: float) -> bool:
        _, until = self._waits.get((metric, version), (0, now))
        return now < until <= now + _LONGEST_WAIT

    def _separate_waiting(self, connection: sqlite3.Connection, now: float) -> set[int]:
        """Take what is put off out of batches; return those that can't be changed any more."""
        if not self._waits:
            return set()
        connection.execute(
            "UPDATE reports SET batch = NULL WHERE put_off(metric, version, ?) "
            "AND batch IN (SELECT id FROM batches WHERE batch_id IS NULL)",
            (now,),
        )
        _delete_empty(connection)
        query = "SELECT DISTINCT batch FROM reports WHERE batch > 0 AND put_off(metric, version, ?)"
        return {key for (key,) in connection.execute(query, (now,))}

    def _count_spooled(self, connection: sqlite3.Connection, now: float) -> int:
        query = f"SELECT count(*) {_SPOOLED}"
        return int(connection.execute(query, (self.origin, now)).fetchone()[0])

    def _make_batch(self, connection: sqlite3.Connection, most: int, now: float) -> None:
        """Make a batch of the oldest reports that may share one, as many as a body has room for."""
        # At most one metric whose cohort is for life: that of the oldest report which has one.
        query = f"SELECT lasting {_SPOOLED} AND lasting != '' ORDER BY id LIMIT 1"
        first = connection.execute(query, (self.origin, now)).fetchone()
        rows = connection.execute(
            f"SELECT id, metric, slice, length(record) {_SPOOLED} "
            "AND lasting IN ('', ?) ORDER BY id LIMIT ?",
            (self.origin, now, first[0] if first else "", most),
        ).fetchall()
        insert = "INSERT INTO batches (origin) VALUES (?)"
        key = connection.execute(insert, (self.origin,)).lastrowid
        # Take as many as fit into a body, even as JSON, which is longer.
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
        switch: Switch,
        now: float,
    ) -> LeasedBatch | None:
        """Return a batch; drop what is switched off, and the batch if that is all."""
        whole = []
        query = "SELECT id, metric, version, record, slice FROM reports WHERE batch = ?"
        for row, metric, version, record, slice_ in connection.execute(query, (key,)).fetchall():
            if switch.is_off(metric, version):
                if batch_id is not None:
                    note_sent(connection, [metric], now)  # the row that shows it is deleted
                connection.execute("DELETE FROM reports WHERE id = ?", (row,))
                self._dropping[SWITCHED_OFF] += 1
            else:
                order = section_name(metric, slice_), version, record, row
                whole.append((order, Report.of_record(metric, version, record, slice_), row))
        if not whole:
            connection.execute("DELETE FROM batches WHERE id = ?", (key,))
            return None
        _, reports, rows = zip(*sorted(whole), strict=True)
        batch = Batch(reports, batch_id or new_batch_id())
        return LeasedBatch(key, batch, rows, is_new=batch_id is None)

    def _trim(self, connection: sqlite3.Connection, now: float) -> None:
        sums = f"SELECT total({_SIZE}), min(created) FROM reports"  # noqa: S608 (a constant)
        size, oldest = connection.execute(sums).fetchone()
        surplus, earliest = size - self._max_bytes, now - MAX_AGE
        # Mostly nothing is too old, and there is room.
        if surplus <= 0 and (oldest is None or oldest >= earliest):
            return
        leased = self._leased(connection, now)
        query = f"SELECT id, batch, created, {_SIZE} FROM reports ORDER BY id"  # noqa: S608
        dropped = []
        for row, batch, created, size in connection.execute(query):
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

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_outboxes: weakref.WeakSet[Outbox] = weakref.WeakSet()
_open_here: set[int] = set()  # numbers of the outboxes of this process
_abandoned: list[sqlite3.Connection | None] = []  # never closed: their locks are the parent's


def _disconnect_all() -> None:
    for outbox in list(_outboxes):
        outbox._disconnect()


def _abandon_all() -> None:
    if is_orphaned():
        _abandoned.extend(outbox._opened for outbox in _outboxes)
        _outboxes.clear()


before_fork(_disconnect_all)
after_fork(_abandon_all)


def spool(
    connection: sqlite3.Connection,
    reports: Sequence[Report],
    registry: Registry,
    origin: str,
    now: float,
) -> None:
    """Put reports on disk, each with the metric whose cohort it reveals, if that is for life."""
    rows = []
    for report in reports:
        metric = registry[report.metric]
        lasting = metric.name if metric.memory == "value" and metric.params.m > 1 else ""
        content = (report.metric, report.version, report.record, report.slice)
        rows.append((origin, *content, lasting, now))
    connection.executemany(
        "INSERT INTO reports (origin, metric, version, record, slice, lasting, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def count_waiting(connection: sqlite3.Connection, origin: str | None = None) -> int:
    """Return the number of reports on disk, of all origins or of one."""
    query = "SELECT count(*) FROM reports WHERE origin = coalesce(?, origin)"
    return int(connection.execute(query, (origin,)).fetchone()[0])


def delete_unsent(connection: sqlite3.Connection) -> None:
    """Delete all reports on disk."""
    connection.execute("DELETE FROM reports")
    connection.execute("DELETE FROM batches")


def note_sent(connection: sqlite3.Connection, metrics: Collection[str], now: float) -> None:
    """Note that reports of these metrics may have arrived today."""
    rows = [(metric, now // SECONDS_A_DAY) for metric in metrics]
    connection.executemany("INSERT OR REPLACE INTO sent_days VALUES (?, ?)", rows)


def is_sent(connection: sqlite3.Connection, metric: str, now: float) -> bool:
    """Return whether a report of a metric may have arrived today, or one that still waits, ever."""
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


@contextmanager
def translated_errors(path: Path | str) -> Iterator[None]:
    """Distinguish damage (StateError) from trouble that may pass (UnavailableError)."""
    try:
        yield
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_PASSING):
            unavailable = UnavailableError(f"{path}: {error}")
            unavailable.is_busy = name.startswith(_BUSY)
            raise unavailable from error
        raise StateError(f"{path}: {error}; {CONSEQUENCE}") from error
    except sqlite3.DatabaseError as error:
        raise StateError(f"{path}: damaged ({error}); {CONSEQUENCE}") from error
    except OSError as error:
        if error.errno in _NOT_A_PLACE:
            raise StateError(f"{path}: {error.strerror}") from error
        raise UnavailableError(f"{path}: {error.strerror or error}") from error


def fingerprint(secret: bytes) -> bytes:
    """Return what the database knows of its owner's secret."""
    return hashlib.sha256(b"hubbub/1/owner" + secret).digest()[:16]


def _create(path: Path, application: str, patience: float) -> None:
    """Make the tables unless they exist; SQLite lets one process at a time do so."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(_connect(path, patience)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            account = "INSERT INTO account VALUES (1, NULL, NULL, ?, 0, 0)"
            connection.execute(account, (application,))
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    if not path.is_file():
        problem = "not a file" if path.exists() else "missing"
        raise StateError(f"{path}: {problem}; {CONSEQUENCE}")
    connection = sqlite3.connect(
        path,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,  # it is closed by the thread that forks
    )
    try:
        # Commits survive a power cut: the journal's removal is durable, too.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # no copy in another directory
    except BaseException:
        connection.close()
        raise
    return connection


def _delete_empty(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM batches WHERE id NOT IN (SELECT batch FROM reports WHERE batch IS NOT NULL)"
    )


def _may_be_sending(pid: int, number: int) -> bool:
    """Return whether an outbox may still be open, here or in a process that may be alive."""
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
