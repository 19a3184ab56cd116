"""The queue on disk: reports after both responses, until the collector has acknowledged them.

Reports are spooled as they come, made into batches when these are due, and a batch is held by one
process while that one sends it. Invariants: a batch's id is drawn when its reports leave the spool,
in the same transaction, and stays with it, so no report is ever sent under two ids; and no batch
holds two cohorts that are a client's for life, which together would name it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from hubbub.client.consent import WITHDRAWN
from hubbub.client.storage import Storage, count_waiting
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Report, assemble_body, new_batch_id, reports_to_json

DAMAGED = "damaged on disk"
TOO_OLD = "too old"
NO_ROOM = "no room on disk"
MOST_BYTES = 1_000_000
"""Largest body of a batch; collectors take 1 MiB unless told otherwise."""


class Parcel(NamedTuple):
    """A batch that this process holds, to be sent now.

    Attributes
    ----------
    key : int
    reports : int
    body : bytes
        JSON, with the batch's id in it.
    """

    key: int
    reports: int
    body: bytes


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
    hold_seconds : float
        How long a batch is left to the process that sends it, should that one vanish unnoticed.

    Attributes
    ----------
    dropped : Counter of str
        Reports dropped from the disk, by reason; whoever reads it empties it.
    """

    def __init__(
        self,
        storage: Storage,
        secret: bytes,
        max_bytes: int,
        max_age: float,
        hold_seconds: float,
    ) -> None:
        self._storage = storage
        self._secret = secret
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._hold_seconds = hold_seconds
        self._number = int.from_bytes(os.urandom(4), "little")
        self._dropping: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        _open_here.add(self._number)

    def close(self) -> None:
        """Leave what is held to others."""
        _open_here.discard(self._number)

    def waiting(self) -> int:
        """Return the number of reports on disk."""
        with self._storage.transaction(self._secret) as connection:
            return count_waiting(connection)

    def spooled(self) -> int:
        """Return the number of reports that are in no batch yet."""
        with self._storage.transaction(self._secret) as connection:
            return _spooled(connection)

    def batched(self) -> int:
        """Return the number of reports that are in batches."""
        with self._storage.transaction(self._secret) as connection:
            return _batched(connection)

    def make_batch(self, at_most: int, now: float) -> None:
        """Make a batch of the oldest spooled reports, as many as may share one."""
        with self._transaction() as connection:
            pieces = self._take_reports(connection, at_most)
            if pieces:
                pieces.sort(key=lambda _: os.urandom(8))  # their order would tell of changes
                body = assemble_body(new_batch_id(), pieces)
                connection.execute(
                    "INSERT INTO batches (reports, body, checksum, created) VALUES (?, ?, ?, ?)",
                    (len(pieces), body, _checksum(body), now),
                )

    def clear(self, now: float) -> None:
        """Drop everything: the user has withdrawn the consent.

        What is being sent isn't counted here, but by whoever sends it (see `put_back`).
        """
        with self._transaction() as connection:
            self._dropping[WITHDRAWN] += count_waiting(connection)
            held = "SELECT reports, holder, held_until FROM batches"
            for reports, holder, held_until in connection.execute(held):
                if self._is_held(holder, held_until, now):
                    self._dropping[WITHDRAWN] -= reports
            delete_unsent(connection)

    def hold_oldest(self, now: float) -> Parcel | None:
        """Take the oldest batch that nobody else is sending."""
        query = "SELECT id, reports, body, checksum, holder, held_until FROM batches ORDER BY id"
        with self._transaction() as connection:
            for key, reports, body, checksum, holder, held_until in connection.execute(query):
                if self._is_held(holder, held_until, now):
                    continue
                if _is_whole(body, checksum):
                    connection.execute(
                        "UPDATE batches SET holder = ?, held_until = ? WHERE id = ?",
                        (self._holder, now + self._hold_seconds, key),
                    )
                    return Parcel(key, reports, body)
                self._drop(connection, "batches", key, reports, DAMAGED)
        return None

    def remove(self, parcel: Parcel) -> None:
        """Forget a batch that is settled."""
        with self._storage.transaction(self._secret) as connection:
            connection.execute("DELETE FROM batches WHERE id = ?", (parcel.key,))

    def put_back(self, parcel: Parcel) -> bool:
        """Leave a batch for a later attempt; return whether it is still there."""
        with self._storage.transaction(self._secret) as connection:
            query = "UPDATE batches SET holder = 0 WHERE id = ?"
            return connection.execute(query, (parcel.key,)).rowcount == 1

    def shorten(self, parcel: Parcel, body: bytes, reports: int) -> None:
        """Keep less of a batch, under its id, for another attempt."""
        with self._storage.transaction(self._secret) as connection:
            connection.execute(
                "UPDATE batches SET body = ?, checksum = ?, reports = ?, holder = 0 WHERE id = ?",
                (body, _checksum(body), reports, parcel.key),
            )

    def trim(self, now: float) -> None:
        """Drop batches that are too old, and the oldest of what is beyond the cap."""
        with self._transaction() as connection:
            aged = "SELECT id, reports, holder, held_until FROM batches WHERE created < ?"
            old = connection.execute(aged, (now - self._max_age,)).fetchall()
            for key, reports, holder, held_until in old:
                if not self._is_held(holder, held_until, now):
                    self._drop(connection, "batches", key, reports, TOO_OLD)
            surplus = sum(_sum(connection, "length(body)", table) for table in _OLDEST_FIRST)
            surplus -= self._max_bytes
            for table, key, reports, size, holder, held_until in _entries(connection):
                if surplus <= 0:
                    break
                if not self._is_held(holder, held_until, now):
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

    def _is_held(self, holder: int, held_until: float, now: float) -> bool:
        if holder in {0, self._holder} or not _is_open(*divmod(holder, _NUMBERS)):
            return False
        # A clock set back holds nothing; but who holds it may have read the clock a little later.
        return now < held_until <= now + 2 * self._hold_seconds

    def _drop(
        self, connection: sqlite3.Connection, table: str, key: int, reports: int, reason: str
    ) -> None:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 (two constants)
        self._dropping[reason] += reports

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements as the storage does; what they drop is counted once that is committed."""
        self._dropping.clear()
        with self._storage.transaction(self._secret) as connection:
            yield connection
        self.dropped.update(self._dropping)


_NUMBERS = 2**32  # a holder is a process id and, below that, the number of one of its outboxes
_open_here: set[int] = set()
_OLDEST_FIRST = ("batches", "spool")


def spool(connection: sqlite3.Connection, reports: Sequence[Report], registry: Registry) -> None:
    """Put reports on disk, each with what it must not share a batch with."""
    bodies = [(_pseudonym(registry[r.metric]), reports_to_json([r])) for r in reports]
    connection.executemany(
        "INSERT INTO spool (pseudonym, body, checksum) VALUES (?, ?, ?)",
        [(pseudonym, body, _checksum(body)) for pseudonym, body in bodies],
    )


def delete_unsent(connection: sqlite3.Connection) -> None:
    """Delete all reports on disk."""
    for table in _OLDEST_FIRST:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 (two constants)


def _pseudonym(metric: Metric) -> str:
    """Return the metric's name if its cohort is one for life, and there are several; else empty."""
    return metric.name if metric.memory == "value" and metric.params.m > 1 else ""


def _spooled(connection: sqlite3.Connection) -> int:
    return _sum(connection, "1", "spool")


def _batched(connection: sqlite3.Connection) -> int:
    return _sum(connection, "reports", "batches")


def _entries(connection: sqlite3.Connection) -> Iterator[tuple[str, int, int, int, int, float]]:
    """Yield (table, key, reports, bytes, holder, held until), the oldest first."""
    queries = (
        "SELECT id, reports, length(body), holder, held_until FROM batches ORDER BY id",
        "SELECT id, 1, length(body), 0, 0 FROM spool ORDER BY id",
    )
    for table, query in zip(_OLDEST_FIRST, queries, strict=True):
        for row in connection.execute(query).fetchall():
            yield (table, *row)


def _sum(connection: sqlite3.Connection, what: str, table: str) -> int:
    query = f"SELECT coalesce(sum({what}), 0) FROM {table}"  # noqa: S608 (constants)
    return int(connection.execute(query).fetchone()[0])


def _is_whole(body: object, checksum: bytes) -> bool:
    return isinstance(body, bytes) and checksum == _checksum(body)


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:16]


def _is_open(pid: int, number: int) -> bool:
    """Tell whether an outbox may still be sending; its process may have had our id before us."""
    return number in _open_here if pid == os.getpid() else _is_alive(pid)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 isn't a question; what is held is free again in time
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
