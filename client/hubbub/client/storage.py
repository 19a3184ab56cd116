"""The client's database: its ledger and its outbox in one SQLite file, `client.db`.

One file, so that what a report costs and the report itself are committed together; SQLite, because
it is in the standard library, several processes may share it, and a transaction was measured no
slower than a file of its own. What a maintainer must not break: a database that is missing, damaged
or another client's is an error and never replaced, or spent privacy would be forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hubbub.client.errors import BusyError, StateError
from hubbub.client.forks import before_fork, no_fork
from hubbub.client.ledger import Ledger, Price, Row, Spend
from hubbub.client.metrics import Registry

DATABASE = "client.db"
_CONSEQUENCE = (
    "nothing is sent, because what this client has spent of its privacy is no longer known; "
    "forget() starts anew"
)
_BUSY_SECONDS = 5.0
_FORMAT = 1
_SCHEMA = """
CREATE TABLE account (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    owner BLOB,
    resets INTEGER NOT NULL
);
CREATE TABLE spending (
    metric TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    reports INTEGER NOT NULL,
    epsilon_report REAL NOT NULL,
    epsilon_permanent REAL NOT NULL,
    PRIMARY KEY (metric, version, digest)
) WITHOUT ROWID;
CREATE TABLE spool (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    reports INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum BLOB NOT NULL
);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: somebody slow may still settle it
    reports INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum BLOB NOT NULL,
    created REAL NOT NULL,
    holder INTEGER NOT NULL DEFAULT 0,
    held_until REAL NOT NULL DEFAULT 0
);
INSERT INTO account VALUES (1, NULL, 0);
"""


class Storage:
    """A connection to `client.db`, closed by a fork and opened again when needed.

    Use it in one thread.

    Parameters
    ----------
    folder : Path
        The state directory.
    create : bool
        Make the database if it isn't there.

    Raises
    ------
    StateError
        If it can't be opened, is damaged, or is missing and mustn't be made.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self._path = folder / DATABASE
        self._opened: sqlite3.Connection | None = None
        with no_fork(), _translated(self._path):
            if create:
                _create(self._path)
            self._opened = _connect(self._path)
            _storages.add(self)

    def check(self) -> None:
        """Raise StateError if the database is damaged."""
        with no_fork(), _translated(self._path):
            result = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            known = version == _FORMAT and self._connection.execute("SELECT * FROM account")
        if result != "ok" or not known or known.fetchone() is None:
            raise StateError(f"{self._path}: damaged ({result}); {_CONSEQUENCE}")

    def close(self) -> None:
        """Close the connection."""
        with no_fork():
            _storages.discard(self)
            self._disconnect()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements that are committed together, durably, or not at all.

        Raises
        ------
        StateError
            If the database is damaged.
        BusyError
            If it is in use, or the disk full: try again later.
        """
        with no_fork(), _translated(self._path):
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise

    def owner(self) -> bytes | None:
        """Return the fingerprint of the secret that this database belongs to, if it has one."""
        with self.transaction() as connection:
            owner: bytes | None = connection.execute("SELECT owner FROM account").fetchone()[0]
            return owner

    def claim(self, secret: bytes) -> None:
        """Tie the database to a secret; raise StateError if it belongs to another."""
        mine = _fingerprint(secret)
        with self.transaction() as connection:
            connection.execute("UPDATE account SET owner = ? WHERE owner IS NULL", (mine,))
            owner = connection.execute("SELECT owner FROM account").fetchone()[0]
        if owner != mine:
            raise StateError(f"{self._path}: belongs to another secret; {_CONSEQUENCE}")

    def release(self) -> None:
        """Untie the database from its secret, and count that as a reset."""
        with self.transaction() as connection:
            connection.execute("UPDATE account SET owner = NULL, resets = resets + 1")

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = _connect(self._path)
        return self._opened

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()


def _disconnect_all() -> None:
    for storage in list(_storages):
        storage._disconnect()


before_fork(_disconnect_all)


def load_ledger(connection: sqlite3.Connection, registry: Registry) -> Ledger:
    """Return the ledger as it is stored."""
    columns = "metric, version, digest, reports, epsilon_report, epsilon_permanent"
    rows = [
        Row(Spend(metric, version, digest), reports, Price(*price))
        for metric, version, digest, reports, *price in connection.execute(
            f"SELECT {columns} FROM spending"  # noqa: S608 (a constant)
        )
    ]
    resets = connection.execute("SELECT resets FROM account").fetchone()[0]
    return Ledger(registry, rows, resets)


def save_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Store the accounts of some values."""
    connection.executemany(
        "INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?, ?, ?)",
        [(*row.spend, row.reports, *row.price) for row in rows],
    )


def delete_database(folder: Path) -> None:
    """Remove the database and its companions."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            (folder / f"{DATABASE}{suffix}").unlink()


def _create(path: Path) -> None:
    """Make a whole database under another name, then link it: first come, first kept."""
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")  # a property of the file, for good
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")
        finally:
            connection.close()
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise StateError(f"{path}: missing; {_CONSEQUENCE}")
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # it is closed by the thread that forks
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Tell damage (StateError) from what will pass (BusyError)."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_FULL")):
            raise BusyError(f"{path}: {error}") from error
        raise StateError(f"{path}: {error}; {_CONSEQUENCE}") from error
    except sqlite3.DatabaseError as error:
        raise StateError(f"{path}: damaged ({error}); {_CONSEQUENCE}") from error
    except OSError as error:
        raise StateError(f"{path}: {error.strerror or error}") from error


def _fingerprint(secret: bytes) -> bytes:
    return hashlib.sha256(b"hubbub/1/owner" + secret).digest()[:16]
