"""The client's database: its account and its outbox in one SQLite file, `client.db`.

One file, so that what a report costs and the report itself are committed together; SQLite, because
it is in the standard library, several processes may share it, and a transaction was measured no
slower than a file of its own. Invariant: a database that is missing, damaged or another client's is
an error and never replaced, or spent privacy would be forgotten.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sqlite3
import time
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hubbub.client.account import Account, Memo
from hubbub.client.encoder import PermanentResponse
from hubbub.client.errors import ForgottenError, ReplacedSecretError, StateError, UnavailableError
from hubbub.client.forks import before_fork, no_fork
from hubbub.client.ledger import AnswerKey, Ledger, Row
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Registry

DATABASE = "client.db"
_CONSEQUENCE = (
    "nothing is sent, because what this client has spent of its privacy is no longer known; "
    "forget() starts anew"
)
_BUSY_SECONDS = 5.0
_FORMAT = 2
_SCHEMA = """
CREATE TABLE account (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    owner BLOB,                   -- fingerprint of the secret
    next_owner BLOB,              -- of the one that is about to replace it
    place TEXT,                   -- fingerprint of the machine and the file, to notice copies
    resets INTEGER NOT NULL,
    restores INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
);
CREATE TABLE definitions (
    metric TEXT NOT NULL,
    version INTEGER NOT NULL,
    definition TEXT NOT NULL,     -- JSON: what this version's answers were made by
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
    bits BLOB NOT NULL,           -- after the permanent response, empty once the period is over
    period INTEGER,               -- NULL with memory = "value"
    behind_since REAL,
    PRIMARY KEY (metric, version)
) WITHOUT ROWID;
CREATE TABLE spool (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pseudonym TEXT NOT NULL,      -- the metric, if its cohort is one for life, else empty
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
INSERT INTO account VALUES (1, NULL, NULL, NULL, 0, 0, 0);
"""
_OF_SECRET = ("memory", "spool", "batches")
# What passes by itself: a full disk, too many open files, a file system that was mounted read-only.
_PASSING = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN",
    "SQLITE_READONLY", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_INTERRUPT", "SQLITE_PERM",
)  # fmt: skip


class Storage:
    """A connection to `client.db`, closed by a fork and opened again when needed.

    Use it in one thread.

    Parameters
    ----------
    folder : Path
        The state directory.
    create : bool
        Make the database if it isn't there.
    patience : float
        Seconds to wait for other connections' transactions.

    Raises
    ------
    StateError
        If it is damaged, or missing and mustn't be made.
    UnavailableError
        If it can't be opened for now.
    """

    def __init__(
        self, folder: Path, *, create: bool = False, patience: float = _BUSY_SECONDS
    ) -> None:
        self._path = folder / DATABASE
        self._patience = patience
        self._opened: sqlite3.Connection | None = None
        with no_fork(), translated_errors(self._path):
            if create:
                _create(self._path, patience)
            self._opened = _connect(self._path, patience)
            _storages.add(self)

    def check(self) -> None:
        """Raise StateError if the database is damaged."""
        with no_fork(), translated_errors(self._path):
            connection = self._connection
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if result == "ok" and version not in {0, _FORMAT}:
                raise StateError(
                    f"{self._path}: its format is {version}: must be {_FORMAT}; {_CONSEQUENCE}"
                )
            whole = result == "ok" and version and connection.execute("SELECT * FROM account")
            if not whole or whole.fetchone() is None:
                raise StateError(f"{self._path}: damaged ({result}); {_CONSEQUENCE}")

    def close(self) -> None:
        """Close the connection."""
        with no_fork():
            _storages.discard(self)
            self._disconnect()

    @contextmanager
    def transaction(self, secret: bytes | None = None) -> Iterator[sqlite3.Connection]:
        """Run statements that are committed together, durably, or not at all.

        Parameters
        ----------
        secret : bytes, optional
            The database must still belong to it.

        Raises
        ------
        StateError
            If the database is damaged.
        ForgottenError, ReplacedSecretError
            If another process has deleted this client, or replaced its secret, meanwhile.
        UnavailableError
            If it is in use, or the disk full, or the like: try again later.
        """
        with no_fork(), translated_errors(self._path):
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_owner(connection, secret)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise

    def claim(self, secret: bytes, connection: sqlite3.Connection) -> int:
        """Tie the database to a secret; raise StateError if it belongs to another.

        If the secret is the one that was to replace the owner's, this completes the replacement.
        Returns how many unsent reports were deleted with that.
        """
        deleted = 0
        mine = _fingerprint(secret)
        query = "SELECT owner, next_owner FROM account"
        owner, next_owner = connection.execute(query).fetchone()
        if owner is None:
            connection.execute("UPDATE account SET owner = ?", (mine,))
        elif mine not in {owner, next_owner}:
            raise StateError(f"{self._path}: belongs to another secret; {_CONSEQUENCE}")
        elif owner != mine:
            # What waits was drawn with the old secret; beside new reports it would tell of both.
            deleted = count_waiting(connection)
            for table in _OF_SECRET:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
            connection.execute(
                "UPDATE account SET owner = next_owner, next_owner = NULL, resets = resets + 1"
            )
        return deleted

    def announce(self, secret: bytes, connection: sqlite3.Connection) -> None:
        """Note the secret that is about to replace the owner's."""
        connection.execute("UPDATE account SET next_owner = ?", (_fingerprint(secret),))

    def is_announced(self, secret: bytes, connection: sqlite3.Connection) -> bool:
        """Whether this secret is still the next; another process may have announced its own."""
        (following,) = connection.execute("SELECT next_owner FROM account").fetchone()
        return bool(following == _fingerprint(secret))

    def erase(self) -> None:
        """Empty the database before it is removed, so that whoever has it open notices."""
        with self.transaction() as connection:
            for table in ("definitions", "answers", *_OF_SECRET):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
            connection.execute("UPDATE account SET owner = NULL, forgotten = 1")
        self.purge_log()

    def purge_log(self) -> None:
        """Overwrite what deleted rows left in the write-ahead log, unless it is in use."""
        with no_fork(), translated_errors(self._path), contextlib.suppress(UnavailableError):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = _connect(self._path, self._patience)
        return self._opened

    def _check_owner(self, connection: sqlite3.Connection, secret: bytes | None) -> None:
        owner, forgotten = connection.execute("SELECT owner, forgotten FROM account").fetchone()
        if forgotten:
            raise ForgottenError("forgotten: another process has deleted this client's state")
        if secret is not None and owner != _fingerprint(secret):
            raise ReplacedSecretError("another process has replaced this client's secret")

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()


def _disconnect_all() -> None:
    for storage in list(_storages):
        storage._disconnect()


before_fork(_disconnect_all)


def count_waiting(connection: sqlite3.Connection) -> int:
    """Return the number of reports on disk."""
    query = "SELECT (SELECT count(*) FROM spool) + (SELECT coalesce(sum(reports), 0) FROM batches)"
    return int(connection.execute(query).fetchone()[0])


def load_account(connection: sqlite3.Connection, registry: Registry) -> Account:
    """Return the account as it is stored."""
    columns = "metric, version, answer, reports, epsilon_report, price, changed"
    rows = [
        Row(AnswerKey(metric, version, answer), reports, epsilon_report, price, bool(changed))
        for metric, version, answer, reports, epsilon_report, price, changed in connection.execute(
            f"SELECT {columns} FROM answers"  # noqa: S608 (a constant)
        )
    ]
    resets, restores = connection.execute("SELECT resets, restores FROM account").fetchone()
    unusable = _unusable_metrics(connection, registry)
    ledger = Ledger(registry, rows, resets, restores, unusable)
    return Account(registry, ledger, _load_memory(connection, registry), unusable)


def save_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Store some answers' accounts."""
    connection.executemany(
        "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*row.answer, *row[1:]) for row in rows],
    )


def _unusable_metrics(connection: sqlite3.Connection, registry: Registry) -> frozenset[str]:
    """Return the metrics that have another definition than their answers were made by."""
    query = "SELECT metric, version, definition FROM definitions"
    stored = {(name, version): text for name, version, text in connection.execute(query)}
    return frozenset(
        metric.name
        for metric in registry.values()
        if stored.get((metric.name, metric.version), _definition(metric)) != _definition(metric)
    )


def save_definitions(connection: sqlite3.Connection, metrics: Collection[Metric]) -> None:
    """Store what answers are made by, unless it is stored."""
    connection.executemany(
        "INSERT OR IGNORE INTO definitions VALUES (?, ?, ?)",
        [(metric.name, metric.version, _definition(metric)) for metric in metrics],
    )


def _load_memory(connection: sqlite3.Connection, registry: Registry) -> dict[str, Memo]:
    """Return, by metric, the answer that was admitted last."""
    query = "SELECT metric, version, answer, cohort, bits, period, behind_since FROM memory"
    return {
        name: Memo(
            AnswerKey(name, version, answer),
            PermanentResponse(cohort, int.from_bytes(bits, "little")),
            period,
            behind_since,
            forgotten=not bits,
        )
        for name, version, answer, cohort, bits, period, behind_since in connection.execute(query)
        if name in registry and registry[name].version == version
    }


def save_memory(connection: sqlite3.Connection, registry: Registry, memory: Iterable[Memo]) -> None:
    """Store the answers that were admitted last, in place of those before."""
    for memo in memory:
        width = registry[memo.answer.metric].params.k // 8
        cohort, bits = memo.response
        connection.execute(
            "INSERT OR REPLACE INTO memory VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*memo.answer, cohort, bits.to_bytes(width, "little"), memo.period, memo.behind_since),
        )


def forget_periods(connection: sqlite3.Connection, now: float) -> bool:
    """Delete the answers of periods that are over, but for the periods' numbers.

    Returns whether there were any. The numbers stay, or what was recorded in such a period and
    comes late would be answered once more. How long a period is stands in the definition that the
    answers were made by: other processes may have another registry, and still use them.
    """
    periods = connection.execute(
        "SELECT metric, version, period, definition FROM memory "
        "JOIN definitions USING (metric, version) WHERE period IS NOT NULL AND bits != x''"
    )
    over = [
        (name, version)
        for name, version, period, definition in periods.fetchall()
        if period < now // (json.loads(definition)["period_days"] * SECONDS_A_DAY)
    ]
    connection.executemany(
        "UPDATE memory SET cohort = 0, bits = x'' WHERE metric = ? AND version = ?", over
    )
    return bool(over)


def delete_database(folder: Path) -> None:
    """Remove the database, which is empty by now, and before it its companions."""
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            (folder / f"{DATABASE}{suffix}").unlink()


def _create(path: Path, patience: float) -> None:
    """Make the tables, unless they are there: SQLite lets one process at a time do it."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(_connect(path, patience)) as connection:
        _choose_wal(connection, patience)
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    if not path.is_file():
        what = "not a file" if path.exists() else "missing"
        raise StateError(f"{path}: {what}; {_CONSEQUENCE}")
    connection = sqlite3.connect(
        path,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,  # it is closed by the thread that forks
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _choose_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Log ahead, where the file system can; the choice is kept in the file.

    SQLite doesn't wait for other processes here, as it does elsewhere.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def translated_errors(path: Path | str) -> Iterator[None]:
    """Tell damage (StateError) from what will pass (UnavailableError)."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "").startswith(_PASSING):
            raise UnavailableError(f"{path}: {error}") from error
        raise StateError(f"{path}: {error}; {_CONSEQUENCE}") from error
    except sqlite3.DatabaseError as error:
        raise StateError(f"{path}: damaged ({error}); {_CONSEQUENCE}") from error
    except OSError as error:
        if error.errno in _NOT_A_PLACE:
            raise StateError(f"{path}: {error.strerror}") from error
        raise UnavailableError(f"{path}: {error.strerror or error}") from error


_NOT_A_PLACE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP})


def _definition(metric: Metric) -> str:
    return json.dumps(metric.definition, sort_keys=True)


def _fingerprint(secret: bytes) -> bytes:
    return hashlib.sha256(b"hubbub/1/owner" + secret).digest()[:16]
