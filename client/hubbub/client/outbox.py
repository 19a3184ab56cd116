"""The queue on disk: reports after both responses, until the collector has acknowledged them.

Reports are spooled as they come, made into a batch when it is due, and a batch is held by one
process while that one sends it. What a maintainer must not break: a batch's id is drawn when its
reports leave the spool, in the same transaction, and stays with it; so no report is ever sent under
two ids.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from hubbub.client.storage import Storage
from hubbub.client.wire import Report, assemble_body, new_batch_id, reports_to_json

DAMAGED = "damaged on disk"
TOO_OLD = "too old"
NO_ROOM = "no room on disk"


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
        self, storage: Storage, max_bytes: int, max_age: float, hold_seconds: float
    ) -> None:
        self._storage = storage
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
        with self._storage.transaction() as connection:
            return _sum(connection, "reports", "spool") + _sum(connection, "reports", "batches")

    def spooled(self) -> int:
        """Return the number of reports that are in no batch yet."""
        with self._storage.transaction() as connection:
            return _sum(connection, "reports", "spool")

    def batched(self) -> int:
        """Return the number of reports that are in batches."""
        with self._storage.transaction() as connection:
            return _sum(connection, "reports", "batches")

    def make_batch(self, enough: int, now: float) -> None:
        """Make a batch of the oldest spooled pieces, until there are enough reports in it."""
        with self._transaction() as connection:
            pieces, reports = self._take_pieces(connection, enough)
            if pieces:
                body = assemble_body(new_batch_id(), pieces)
                connection.execute(
                    "INSERT INTO batches (reports, body, checksum, created) VALUES (?, ?, ?, ?)",
                    (reports, body, _checksum(body), now),
                )

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
        with self._storage.transaction() as connection:
            connection.execute("DELETE FROM batches WHERE id = ?", (parcel.key,))

    def put_back(self, parcel: Parcel) -> None:
        """Leave a batch for a later attempt."""
        with self._storage.transaction() as connection:
            connection.execute("UPDATE batches SET holder = 0 WHERE id = ?", (parcel.key,))

    def shorten(self, parcel: Parcel, body: bytes, reports: int) -> None:
        """Keep less of a batch, under its id, for another attempt."""
        with self._storage.transaction() as connection:
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

    def _take_pieces(self, connection: sqlite3.Connection, enough: int) -> tuple[list[bytes], int]:
        """Take the first pieces out of the spool; return the whole ones and their reports."""
        pieces: list[bytes] = []
        total = 0
        query = "SELECT id, reports, body, checksum FROM spool ORDER BY id"
        for key, reports, body, checksum in connection.execute(query).fetchall():
            if not _is_whole(body, checksum):
                self._drop(connection, "spool", key, reports, DAMAGED)
                continue
            if total >= enough:
                break
            connection.execute("DELETE FROM spool WHERE id = ?", (key,))
            pieces.append(body)
            total += reports
        return pieces, total

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
        with self._storage.transaction() as connection:
            yield connection
        self.dropped.update(self._dropping)


_NUMBERS = 2**32  # a holder is a process id and, below that, the number of one of its outboxes
_open_here: set[int] = set()
_OLDEST_FIRST = ("batches", "spool")


def spool(connection: sqlite3.Connection, reports: Sequence[Report], at_most: int) -> None:
    """Put reports on disk, in pieces of at most so many."""
    for start in range(0, len(reports), at_most):
        piece = reports[start : start + at_most]
        body = reports_to_json(piece)
        connection.execute(
            "INSERT INTO spool (reports, body, checksum) VALUES (?, ?, ?)",
            (len(piece), body, _checksum(body)),
        )


def _entries(connection: sqlite3.Connection) -> Iterator[tuple[str, int, int, int, int, float]]:
    """Yield (table, key, reports, bytes, holder, held until), the oldest first."""
    queries = (
        "SELECT id, reports, length(body), holder, held_until FROM batches ORDER BY id",
        "SELECT id, reports, length(body), 0, 0 FROM spool ORDER BY id",
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
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
