"""The queue on disk: reports after both responses, until the collector has acknowledged them.

Reports are spooled as they come, batches are made of them when due, and the process that sends a
batch leases it. Invariants: a batch's id is drawn when its reports leave the spool, in the same
transaction, and stays with it, so no report is ever sent under two ids; and no batch contains two
cohorts that are a client's for life, because together they would identify the client.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from hubbub.client.storage import Storage, count_waiting
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import (
    Report,
    assemble_body,
    new_batch_id,
    reports_to_json,
    without_reports,
)

_Item = TypeVar("_Item")

DAMAGED = "damaged on disk"
TOO_OLD = "too old"
NO_ROOM = "no room on disk"
MAY_HAVE_ARRIVED = "may have arrived before"
MOST_BYTES = 1_000_000
"""Largest body of a batch; by default collectors accept 1 MiB."""


class LeasedBatch(NamedTuple):
    """A batch for this process to send now, while its lease lasts.

    Attributes
    ----------
    key : int
    reports : int
    body : bytes
        JSON, with the batch's id in it.
    rest : int
        Reports of the batch that aren't in `body`, as a request has no room for them.
    """

    key: int
    reports: int
    body: bytes
    rest: int = 0

    def first(self, most: int) -> LeasedBatch:
        """Return the first reports of the batch, always the same ones, to be sent alone."""
        body, kept = without_reports(self.body, range(most, self.reports))
        return self._replace(reports=kept, body=body, rest=self.reports - kept)


class Outbox:
    """The queue of one client; several processes may use it at once.

    Parameters
    ----------
    storage : Storage
    secret : bytes
        The database must belong to it.
    max_bytes : int
        Beyond it the oldest go first.
    max_age : float
        Seconds after which a batch is dropped, because the collector might have forgotten its id.
    lease_seconds : float
        How long a batch is left to the process that sends it, in case that process disappears.

    Attributes
    ----------
    dropped : Counter of str
        Reports dropped from the disk, by reason; the caller reads and empties it.
    """

    def __init__(
        self,
        storage: Storage,
        secret: bytes,
        max_bytes: int,
        max_age: float,
        lease_seconds: float,
    ) -> None:
        self._storage = storage
        self._secret = secret
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._lease_seconds = lease_seconds
        self._number = int.from_bytes(os.urandom(4), "little")
        self._dropping: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        _open_here.add(self._number)

    def close(self) -> None:
        """End this outbox's leases."""
        _open_here.discard(self._number)

    def waiting(self) -> int:
        """Return the number of reports on disk."""
        with self._storage.transaction(self._secret) as connection:
            return count_waiting(connection)

    def spooled(self) -> int:
        """Return the number of reports that are in no batch yet."""
        with self._storage.transaction(self._secret) as connection:
            return _sum(connection, "1", "spool")

    def batched(self) -> int:
        """Return the number of reports that are in batches."""
        with self._storage.transaction(self._secret) as connection:
            return _sum(connection, "reports", "batches")

    def make_batch(self, at_most: int, now: float) -> None:
        """Make a batch of the oldest spooled reports, as many as may share one."""
        with self._transaction() as connection:
            pieces = self._take_reports(connection, at_most)
            if pieces:
                pieces.sort(key=lambda _: os.urandom(8))  # their order would reveal changes
                body = assemble_body(new_batch_id(), pieces)
                connection.execute(
                    "INSERT INTO batches (reports, body, checksum, created) VALUES (?, ?, ?, ?)",
                    (len(pieces), body, _checksum(body), now),
                )

    def clear(self, now: float) -> int:
        """Delete all reports; return how many.

        Those that are being sent aren't counted: whoever sends them counts them (see `release`).
        """
        leases = "SELECT reports, holder, lease_expires_at FROM batches"
        with self._storage.transaction(self._secret) as connection:
            count = count_waiting(connection)
            for reports, holder, lease_expires_at in connection.execute(leases):
                if self._is_leased(holder, lease_expires_at, now):
                    count -= reports
            delete_unsent(connection)
        return count

    def lease_oldest(self, now: float) -> LeasedBatch | None:
        """Lease the oldest batch that nobody else is sending."""
        query = (
            "SELECT id, reports, body, checksum, holder, lease_expires_at FROM batches ORDER BY id"
        )
        with self._transaction() as connection:
            for key, reports, body, checksum, holder, lease_expires_at in connection.execute(query):
                if self._is_leased(holder, lease_expires_at, now):
                    continue
                if _is_whole(body, checksum):
                    connection.execute(
                        "UPDATE batches SET holder = ?, lease_expires_at = ? WHERE id = ?",
                        (self._holder, now + self._lease_seconds, key),
                    )
                    return LeasedBatch(key, reports, body)
                self._drop(connection, "batches", key, reports, DAMAGED)
        return None

    def remove(self, batch: LeasedBatch) -> bool:
        """Forget a batch that is settled; return whether it was still there."""
        with self._storage.transaction(self._secret) as connection:
            query = "DELETE FROM batches WHERE id = ?"
            return connection.execute(query, (batch.key,)).rowcount == 1

    def release(self, batch: LeasedBatch) -> bool:
        """Give up the lease, for a later attempt; return whether the batch is still there."""
        with self._storage.transaction(self._secret) as connection:
            query = "UPDATE batches SET holder = 0 WHERE id = ?"
            return connection.execute(query, (batch.key,)).rowcount == 1

    def shorten(self, batch: LeasedBatch, body: bytes, reports: int) -> None:
        """Replace a batch by a part of it, under its id, for another attempt."""
        with self._storage.transaction(self._secret) as connection:
            connection.execute(
                "UPDATE batches SET body = ?, checksum = ?, reports = ?, holder = 0 WHERE id = ?",
                (body, _checksum(body), reports, batch.key),
            )

    def go_on(self, batch: LeasedBatch) -> bool:
        """Make a batch of its own of the rest of one; return whether it was still there.

        Nothing of the rest may ever have arrived. Another process may be waiting for an answer to
        the same part: its key then finds nothing.
        """
        query = "SELECT body, created FROM batches WHERE id = ?"
        with self._storage.transaction(self._secret) as connection:
            found = connection.execute(query, (batch.key,)).fetchall()
            connection.execute("DELETE FROM batches WHERE id = ?", (batch.key,))
            for body, created in found:
                rest, kept = without_reports(body, range(batch.reports), new_batch_id())
                connection.execute(
                    "INSERT INTO batches (reports, body, checksum, created) VALUES (?, ?, ?, ?)",
                    (kept, rest, _checksum(rest), created),
                )
        return bool(found)

    def trim(self, now: float) -> None:
        """Drop batches that are too old, and the oldest of what is beyond the cap."""
        with self._transaction() as connection:
            aged = "SELECT id, reports, holder, lease_expires_at FROM batches WHERE created < ?"
            old = connection.execute(aged, (now - self._max_age,)).fetchall()
            for key, reports, holder, lease_expires_at in old:
                if not self._is_leased(holder, lease_expires_at, now):
                    self._drop(connection, "batches", key, reports, TOO_OLD)
            surplus = sum(_sum(connection, "length(body)", table) for table in _TABLES)
            surplus -= self._max_bytes
            entries = connection.execute(_OLDEST_FIRST).fetchall() if surplus > 0 else ()
            for table, key, reports, size, holder, lease_expires_at in entries:
                if surplus <= 0:
                    break
                if not self._is_leased(holder, lease_expires_at, now):
                    self._drop(connection, table, key, reports, NO_ROOM)
                    surplus -= size

    def _take_reports(self, connection: sqlite3.Connection, at_most: int) -> list[bytes]:
        """Take the first reports out of the spool that may share a batch; return the whole ones."""
        first = connection.execute(
            "SELECT pseudonym FROM spool WHERE pseudonym != '' ORDER BY id LIMIT 1"
        ).fetchone()
        rows = connection.execute(
            "SELECT id, body, checksum FROM spool WHERE pseudonym IN ('', ?) ORDER BY id LIMIT ?",
            (first[0] if first else "", at_most),
        ).fetchall()
        pieces: list[bytes] = []
        room = MOST_BYTES - len(assemble_body(new_batch_id(), []))
        for key, body, checksum in rows:
            if not _is_whole(body, checksum):
                self._drop(connection, "spool", key, 1, DAMAGED)
                continue
            room -= len(body) + 1  # and a comma
            if room < 0:
                break
            connection.execute("DELETE FROM spool WHERE id = ?", (key,))
            pieces.append(body)
        return pieces

    @property
    def _holder(self) -> int:
        return os.getpid() * _NUMBERS + self._number

    def _is_leased(self, holder: int, lease_expires_at: float, now: float) -> bool:
        if holder in {0, self._holder} or not _may_be_sending(*divmod(holder, _NUMBERS)):
            return False
        # A clock that was set back extends no lease; but two processes may read it out of turn.
        return now < lease_expires_at <= now + 2 * self._lease_seconds

    def _drop(
        self, connection: sqlite3.Connection, table: str, key: int, reports: int, reason: str
    ) -> None:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 (two constants)
        self._dropping[reason] += reports

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements as the storage does, and count what they drop once they are committed."""
        self._dropping.clear()
        with self._storage.transaction(self._secret) as connection:
            yield connection
        self.dropped.update(self._dropping)


_ITEMS_A_TURN, _PAUSE_SECONDS = 64, 1e-6
_NUMBERS = 2**32  # a holder is a process id and, below that, the number of one of its outboxes
_open_here: set[int] = set()
_TABLES = ("batches", "spool")
_OLDEST_FIRST = """
SELECT 'batches', id, reports, length(body), holder, lease_expires_at FROM batches
UNION ALL SELECT 'spool', id, 1, length(body), 0, 0 FROM spool ORDER BY 1, 2
"""


def in_turns(items: Sequence[_Item]) -> Iterator[_Item]:
    """Yield items, and every now and then let the app's threads run.

    The interpreter would make them wait for 5 ms each time that they want to go on.
    """
    for start in range(0, len(items), _ITEMS_A_TURN):
        yield from items[start : start + _ITEMS_A_TURN]
        time.sleep(_PAUSE_SECONDS)


def spool(connection: sqlite3.Connection, reports: Sequence[Report], registry: Registry) -> None:
    """Put reports on disk, each with the metric whose cohort it reveals, if that is for life."""
    rows = []
    for report in in_turns(reports):
        metric = registry[report.metric]
        lasting = metric.memory == "value" and metric.params.m > 1
        body = reports_to_json([report])
        rows.append((metric.name if lasting else "", body, _checksum(body)))
    connection.executemany("INSERT INTO spool (pseudonym, body, checksum) VALUES (?, ?, ?)", rows)


def delete_unsent(connection: sqlite3.Connection) -> None:
    """Delete all reports on disk."""
    for table in _TABLES:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 (two constants)


def _sum(connection: sqlite3.Connection, what: str, table: str) -> int:
    query = f"SELECT coalesce(sum({what}), 0) FROM {table}"  # noqa: S608 (constants)
    return int(connection.execute(query).fetchone()[0])


def _is_whole(body: object, checksum: bytes) -> bool:
    return isinstance(body, bytes) and checksum == _checksum(body)


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:16]


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
