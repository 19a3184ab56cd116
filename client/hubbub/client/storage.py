"""The client's database: its account and its outbox in one SQLite file, `client.db`.

It is one file, so that a report and what it costs are committed together; and SQLite, because that
is in the standard library, several processes may share it, and a transaction was measured to be no
slower than a separate file. Invariants: a database that is missing, damaged or another client's is
an error and never replaced, or spent privacy would be forgotten; and what a transaction deletes is
in no file of the directory once it is committed (a rollback journal, and deleted bytes overwritten:
a write-ahead log would keep them until it happens to be reused).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sqlite3
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hubbub.client.encoder import PermanentResponse
from hubbub.client.errors import (
    ForgottenError,
    OtherApplicationError,
    ReplacedSecretError,
    StateError,
    UnavailableError,
)
from hubbub.client.forks import ORPHANED, after_fork, before_fork, is_orphaned, no_fork
from hubbub.client.ledger import (
    Account,
    AnswerKey,
    CachedResponse,
    ClientLedger,
    LastPeriod,
    LedgerRow,
)
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Registry

DATABASE = "client.db"
_CONSEQUENCE = (
    "nothing is sent, because what this client has spent of its privacy is no longer known; "
    "forget() starts anew"
)
BUSY_SECONDS = 5.0  # as `State` waits
_FORMAT = 3  # user_version of the schema below; others are refused
_SCHEMA = """
CREATE TABLE account (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    owner BLOB,                   -- fingerprint of the secret
    next_owner BLOB,              -- of the secret that is about to replace it
    place TEXT,                   -- fingerprint of the machine and the files, to notice copies
    application TEXT,             -- the registry's, which shares its answers with no other
    resets INTEGER NOT NULL,
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
    slice TEXT NOT NULL,          -- what it says of the app, in the clear
    record BLOB NOT NULL,         -- the cohort, 2 bytes little-endian, then the bits
    checksum BLOB NOT NULL,
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
    checksum BLOB,                -- of that
    holder INTEGER NOT NULL DEFAULT 0,
    lease_expires_at REAL NOT NULL DEFAULT 0
);
"""
_OF_SECRET = ("memory", "periods", "reports", "batches")
# Trouble that may pass: a full disk, too many open files, a file system mounted read-only.
_PASSING = (
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN",
    "SQLITE_READONLY", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_INTERRUPT", "SQLITE_PERM",
)  # fmt: skip
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")


class Storage:
    """A connection to `client.db`, for one thread; a fork closes it, and it reopens when needed.

    `folder`: the state directory. `application`: the registry's: a database of another one is left
    alone. `create`: make the database if there is none. `patience`: seconds to wait for other
    connections' transactions. Raises `StateError` if it is damaged, or missing and not to be made,
    or this process can't use any. Raises `UnavailableError` if it can't be opened for now.
    """

    def __init__(
        self,
        folder: Path,
        application: str,
        *,
        create: bool = False,
        patience: float = BUSY_SECONDS,
    ) -> None:
        if is_orphaned():
            raise StateError(ORPHANED)
        self._path = folder / DATABASE
        self._application = application
        self._patience = patience
        self._opened: sqlite3.Connection | None = None
        with no_fork(), translated_errors(self._path):
            if create:
                _create(self._path, application, patience)
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

        `secret`: the database must still belong to it. Raises `StateError` if the database is
        damaged. Raises `OtherApplicationError` if it is another application's. Raises
        `ForgottenError, ReplacedSecretError` if another process has deleted this client, or
        replaced its secret, meanwhile. Raises `UnavailableError` if it is in use, or the disk full,
        or the like: try again later.
        """
        with no_fork(), translated_errors(self._path):
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                query = "SELECT owner, forgotten, application FROM account"
                owner, forgotten, application = connection.execute(query).fetchone()
                if application != self._application:
                    raise OtherApplicationError(
                        f"{self._path.parent}: is the state of the application {application!r}, "
                        f"must be of {self._application!r}; give each a state_dir of its own"
                    )
                if forgotten:
                    raise ForgottenError(
                        "forgotten: another process has deleted this client's state"
                    )
                if secret is not None and owner != _fingerprint(secret):
                    raise ReplacedSecretError("another process has replaced this client's secret")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise

    def claim(self, secret: bytes, connection: sqlite3.Connection) -> int | None:
        """Tie the database to a secret; raise StateError if it belongs to another.

        If the secret is the one that was to replace the owner's, this completes the replacement.
        Returns how many unsent reports were deleted with that; None if nothing was replaced.
        """
        mine = _fingerprint(secret)
        query = "SELECT owner, next_owner FROM account"
        owner, next_owner = connection.execute(query).fetchone()
        if owner is None:
            connection.execute("UPDATE account SET owner = ?", (mine,))
        elif mine not in {owner, next_owner}:
            raise StateError(f"{self._path}: belongs to another secret; {_CONSEQUENCE}")
        elif owner != mine:
            # Unsent reports were drawn with the old secret; beside new ones they would link both.
            deleted = count_waiting(connection)
            for table in _OF_SECRET:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
            connection.execute(
                "UPDATE account SET owner = next_owner, next_owner = NULL, resets = resets + 1"
            )
            return deleted
        return None

    def announce(self, secret: bytes, connection: sqlite3.Connection) -> None:
        """Store which secret is about to replace the owner's."""
        connection.execute("UPDATE account SET next_owner = ?", (_fingerprint(secret),))

    def is_announced(self, secret: bytes, connection: sqlite3.Connection) -> bool:
        """Whether this secret is still the next one; another process may have announced its own."""
        (following,) = connection.execute("SELECT next_owner FROM account").fetchone()
        return bool(following == _fingerprint(secret))

    def erase(self) -> None:
        """Empty the database before it is removed, so that whoever has it open notices."""
        with self.transaction() as connection:
            for table in ("definitions", "answers", "switch", *_OF_SECRET):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
            connection.execute("UPDATE account SET owner = NULL, forgotten = 1")

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = _connect(self._path, self._patience)
        return self._opened

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()


def _disconnect_all() -> None:
    for storage in list(_storages):
        storage._disconnect()


def _abandon_all() -> None:
    if is_orphaned():
        _abandoned.extend(storage._opened for storage in _storages)
        _storages.clear()


_abandoned: list[sqlite3.Connection | None] = []
before_fork(_disconnect_all)
after_fork(_abandon_all)


def count_waiting(connection: sqlite3.Connection, origin: str | None = None) -> int:
    """Return the number of reports on disk, of all origins or of one."""
    query = "SELECT count(*) FROM reports WHERE origin = coalesce(?, origin)"
    return int(connection.execute(query, (origin,)).fetchone()[0])


def delete_unsent(connection: sqlite3.Connection) -> None:
    """Delete all reports on disk."""
    connection.execute("DELETE FROM reports")
    connection.execute("DELETE FROM batches")


def load_account(connection: sqlite3.Connection, registry: Registry) -> Account:
    """Return the account as it is stored."""
    columns = "metric, version, answer, reports, epsilon_report, price, changed"
    rows = [
        LedgerRow(AnswerKey(metric, version, answer), reports, epsilon_report, price, bool(changed))
        for metric, version, answer, reports, epsilon_report, price, changed in connection.execute(
            f"SELECT {columns} FROM answers"  # noqa: S608 (a constant)
        )
    ]
    resets, restores = connection.execute("SELECT resets, restores FROM account").fetchone()
    query = "SELECT metric, version, definition, hides_changes FROM definitions"
    made_by, revealing = {}, set()
    for name, version, text, hides_changes in connection.execute(query):
        made_by[name, version] = text
        if not hides_changes:
            revealing.add((name, version))
    unusable = frozenset(
        metric.name
        for metric in registry.values()
        if made_by.get((metric.name, metric.version), _definition(metric)) != _definition(metric)
    )
    ledger = ClientLedger(registry, rows, resets, restores, unusable, revealing)
    memory, periods = _load_memory(connection, registry), _load_periods(connection)
    return Account(registry, ledger, memory, periods, unusable)


def save_rows(connection: sqlite3.Connection, rows: Iterable[LedgerRow]) -> None:
    """Store some answers' accounts."""
    connection.executemany(
        "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*row.answer, *row[1:]) for row in rows],
    )


def save_definitions(connection: sqlite3.Connection, metrics: Collection[Metric]) -> None:
    """Store how answers are made, for each metric's version once, and whether changes were seen."""
    connection.executemany(
        "INSERT INTO definitions VALUES (?, ?, ?, ?) "
        "ON CONFLICT (metric, version) "
        "DO UPDATE SET hides_changes = min(hides_changes, excluded.hides_changes)",
        [(m.name, m.version, _definition(m), m.hides_changes) for m in metrics],
    )


def _load_memory(connection: sqlite3.Connection, registry: Registry) -> dict[str, CachedResponse]:
    """Return, by metric, the answer that was admitted last."""
    query = "SELECT metric, version, answer, cohort, bits, end_day FROM memory"
    return {
        name: CachedResponse(
            AnswerKey(name, version, answer),
            PermanentResponse(cohort, int.from_bytes(bits, "little")),
            end_day,
        )
        for name, version, answer, cohort, bits, end_day in connection.execute(query)
        if name in registry and registry[name].version == version
    }


def _load_periods(connection: sqlite3.Connection) -> dict[str, LastPeriod]:
    query = "SELECT metric, version, first_day, end_day, answered, behind_since FROM periods"
    return {
        name: LastPeriod(version, first_day, end_day, bool(answered), behind_since)
        for name, version, first_day, end_day, answered, behind_since in connection.execute(query)
    }


def save_memory(
    connection: sqlite3.Connection,
    registry: Registry,
    before: Mapping[str, CachedResponse],
    memory: Mapping[str, CachedResponse],
) -> None:
    """Store the answers that were admitted last, where they aren't what they were before."""
    for name, cached in memory.items():
        if before.get(name) != cached:
            cohort, bits = cached.response
            data = bits.to_bytes(registry[name].params.k // 8, "little")
            connection.execute(
                "INSERT OR REPLACE INTO memory VALUES (?, ?, ?, ?, ?, ?)",
                (*cached.answer, cohort, data, cached.end_day),
            )


def save_periods(
    connection: sqlite3.Connection,
    before: Mapping[str, LastPeriod],
    periods: Mapping[str, LastPeriod],
) -> None:
    """Store the last periods, where they aren't what they were before."""
    connection.executemany(
        "INSERT OR REPLACE INTO periods VALUES (?, ?, ?, ?, ?, ?)",
        [(name, *last) for name, last in periods.items() if before.get(name) != last],
    )


def forget_periods(connection: sqlite3.Connection, now: float) -> None:
    """Delete the answers of past periods; that these were answered stays."""
    connection.execute("DELETE FROM memory WHERE end_day <= ?", (now // SECONDS_A_DAY,))


def _create(path: Path, application: str, patience: float) -> None:
    """Make the tables unless they exist; SQLite lets one process at a time do so."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(_connect(path, patience)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            account = "INSERT INTO account VALUES (1, NULL, NULL, NULL, ?, 0, 0, 0)"
            connection.execute(account, (application,))
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
        # What is committed survives a power cut: the journal's removal is durable, too.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # no copy in another directory
    except BaseException:
        connection.close()
        raise
    return connection


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
