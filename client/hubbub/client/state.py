"""The client's state directory: its secret, created once and owner-only, and its stored account.

A client that lost its secret and silently drew another would answer the same question twice with
fresh noise, and so spend its privacy twice. Invariant: a secret that can't be trusted is an error,
never a reason to make a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from hubbub.client.encoder import SECRET_BYTES, PermanentResponse
from hubbub.client.ledger import Account, AnswerKey, CachedResponse, LastPeriod, LedgerRow
from hubbub.client.outbox import (
    CONSEQUENCE,
    DATABASE,
    PATIENCE,
    Outbox,
    count_waiting,
    delete_unsent,
    fingerprint,
    is_sent,
    note_sent,
    translated_errors,
)
from hubbub.client.schedule import period_at
from hubbub.protocol.errors import ForgottenError, OtherApplicationError, StateError
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Registry

_FILE = "secret"
_REMEDY = "nothing is sent; forget() starts a new privacy account"
_FORMAT = re.compile(rb"hubbub-secret-1 ([0-9a-f]{64}) ([0-9a-f]{16})\n")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
SHORT_PATIENCE = 0.5
"""Seconds that an app's own thread may wait for other processes' transactions."""
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


class State(NamedTuple):
    """A client's secret and account."""

    secret: bytes
    account: Account
    waiting: int  # reports on disk that are still to be sent to the origin
    discarded: int  # reports that were deleted because the original of this copy may send them, too


def open_state(
    directory: str | Path,
    registry: Registry,
    origin: str | None = None,
    patience: float = PATIENCE,
) -> State:
    """Return this client's secret and account, making both if the directory has neither.

    Several processes may start at once: all get the same secret. The database is made before the
    secret, and both are tied together in one transaction, so that one without the other reveals a
    loss. `origin`: of the collector; None: of all. Raises `StateError` if a file is damaged, lacks
    its companion, or others may have read the secret; `UnavailableError` if one can't be used for
    now.
    """
    folder = Path(directory).expanduser()
    with translated_errors(f"state directory {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _keep_to_owner(folder)
        try:
            return _open(folder, registry, origin, patience)
        except ForgottenError:
            _remove_files(folder)
            return _open(folder, registry, origin, patience)


def _open(folder: Path, registry: Registry, origin: str | None, patience: float) -> State:
    path = folder / _FILE
    create = not path.exists()
    application = registry.application
    with closing(Outbox(folder, application, create=create, patience=patience)) as outbox:
        outbox.check()
        with outbox.transaction() as connection:
            # Without a secret the client is new; if its database has an owner, the secret was lost.
            owner = connection.execute("SELECT owner FROM account").fetchone()[0]
            if not path.exists():
                if owner is not None:
                    raise StateError(
                        f"{path}: missing, though reports were made with it; {_REMEDY}"
                    )
                _write(path, os.urandom(SECRET_BYTES))
            secret = _parse(path.read_bytes(), path)
            # Tie the two together.
            if owner is None:
                connection.execute("UPDATE account SET owner = ?", (fingerprint(secret),))
            elif owner != fingerprint(secret):
                database = path.with_name(DATABASE)
                raise StateError(f"{database}: belongs to another secret; {CONSEQUENCE}")
            discarded = _notice_copy(connection, folder, registry, secret)
            account = load_account(connection, registry)
            return State(secret, account, count_waiting(connection, origin), discarded)


def read_account(directory: str | Path, registry: Registry) -> Account:
    """Return what a client has answered; an empty account if there is no state."""
    with _existing(directory, registry.application) as connection:
        return Account(registry) if connection is None else load_account(connection, registry)


def is_reported_today(directory: str | Path, registry: Registry, metric: str) -> bool:
    """Return whether a metric with ``reports_per_day = 1`` can't be reported today any more."""
    if not registry[metric].reports_per_day:
        return False
    with _existing(directory, registry.application) as connection:
        return connection is not None and is_sent(connection, metric, time.time())


def discard_unsent(directory: str | Path, application: str) -> int:
    """Delete the reports on disk, if there is a database; return how many there were."""
    with _existing(directory, application) as connection:
        if connection is None:
            return 0
        waiting = count_waiting(connection)
        delete_unsent(connection)
        return waiting


@contextlib.contextmanager
def _existing(directory: str | Path, application: str) -> Iterator[sqlite3.Connection | None]:
    folder = Path(directory).expanduser()
    if not (folder / DATABASE).exists():
        yield None
        return
    outbox = Outbox(folder, application, patience=SHORT_PATIENCE)
    with closing(outbox), outbox.transaction() as connection:
        yield connection


def delete_state(directory: str | Path, application: str) -> None:
    """Remove the secret, the account and the outbox; other processes notice, and stop."""
    folder = Path(directory).expanduser()
    with translated_errors(f"state directory {folder}"):
        try:
            with closing(Outbox(folder, application)) as outbox:
                erase(outbox)
        except OtherApplicationError:
            raise
        except StateError:
            pass  # what is missing or damaged is removed as it is
        _remove_files(folder)


def erase(outbox: Outbox) -> None:
    """Empty the database before it is removed, so that other processes notice."""
    with outbox.transaction() as connection:
        tables = "definitions", "answers", "switch", "memory", "periods", "reports", "batches"
        for table in tables:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a constant)
        connection.execute("UPDATE account SET owner = NULL, forgotten = 1")


def load_account(connection: sqlite3.Connection, registry: Registry) -> Account:
    """Return the account as it is stored."""
    rows = [
        LedgerRow(AnswerKey(metric, version, answer), reports, epsilon, price, bool(changed))
        for metric, version, answer, reports, epsilon, price, changed in connection.execute(
            "SELECT * FROM answers"
        )
    ]
    (restores,) = connection.execute("SELECT restores FROM account").fetchone()

    # Metrics whose definition changed under the same version aren't reported any more.
    definitions = connection.execute("SELECT * FROM definitions")
    stored = {(name, version): rest for name, version, *rest in definitions}
    revealing = {key for key, (_, hides_changes) in stored.items() if not hides_changes}
    unusable = frozenset(
        metric.name
        for metric in registry.values()
        if (found := stored.get((metric.name, metric.version))) and found[0] != _definition(metric)
    )
    memory = {
        name: CachedResponse(
            AnswerKey(name, version, answer),
            PermanentResponse(cohort, int.from_bytes(bits, "little")),
            end_day,
        )
        for name, version, answer, cohort, bits, end_day in connection.execute(
            "SELECT * FROM memory"
        )
        if name in registry and registry[name].version == version
    }
    periods = {
        name: LastPeriod(version, first_day, end_day, bool(answered), behind_since)
        for name, version, first_day, end_day, answered, behind_since in connection.execute(
            "SELECT * FROM periods"
        )
    }
    return Account(
        registry,
        rows,
        memory,
        periods,
        restores=restores,
        unusable=unusable,
        revealing=revealing,
    )


def save_account(
    connection: sqlite3.Connection,
    registry: Registry,
    before: Account,
    account: Account,
    answers: Iterable[AnswerKey],
) -> None:
    """Store where an account differs from the stored one: some answers' rows, memory, periods."""
    rows = [account.row(answer) for answer in answers]
    connection.executemany(
        "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*row.answer, *row[1:]) for row in rows],
    )
    save_definitions(connection, {registry[row.answer.metric] for row in rows})
    connection.executemany(
        "INSERT OR REPLACE INTO memory VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                *cached.answer,
                cached.response.cohort,
                cached.response.bits.to_bytes(registry[name].params.k // 8, "little"),
                cached.end_day,
            )
            for name, cached in account.memory.items()
            if before.memory.get(name) != cached
        ],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO periods VALUES (?, ?, ?, ?, ?, ?)",
        [
            (name, *last)
            for name, last in account.periods.items()
            if before.periods.get(name) != last
        ],
    )


def forget_periods(connection: sqlite3.Connection, now: float) -> None:
    """Delete the answers of past periods; that these were answered stays."""
    connection.execute("DELETE FROM memory WHERE end_day <= ?", (now // SECONDS_A_DAY,))


def save_definitions(connection: sqlite3.Connection, metrics: Iterable[Metric]) -> None:
    """Store how answers are made, for each metric's version once, and whether changes were seen."""
    connection.executemany(
        "INSERT INTO definitions VALUES (?, ?, ?, ?) "
        "ON CONFLICT (metric, version) "
        "DO UPDATE SET hides_changes = min(hides_changes, excluded.hides_changes)",
        [(m.name, m.version, _definition(m), m.hides_changes) for m in metrics],
    )


def _definition(metric: Metric) -> str:
    return json.dumps(metric.definition, sort_keys=True)


def _remove_files(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)
    for suffix in ("-journal", ""):
        (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)


def _keep_to_owner(folder: Path) -> None:
    """Remove others' permissions on directory and database; refuse a secret they could read.

    The database reveals little without the secret (docs/understand/proofs.md, State at rest). A
    directory that contains other files, too, is left as it is, unless others may write there.
    """
    if os.name == "nt":  # which has no such modes
        return
    ours = tuple(folder.glob(f"{DATABASE}*"))
    foreign = [p.name for p in folder.iterdir() if not p.name.startswith((_FILE, DATABASE))]
    mode = stat.S_IMODE(folder.stat().st_mode)
    if foreign and mode & _OTHERS_WRITE and not folder.stat().st_mode & stat.S_ISVTX:
        raise StateError(
            f"{folder}: its mode is {mode:o}, others may write there: must be 700, in a directory "
            "of the client's own"
        )
    # The directory, if it is the client's own, and the database are mended.
    for path in ours if foreign else (folder, *ours):
        with contextlib.suppress(FileNotFoundError):  # a log that another process has finished
            mode = path.stat().st_mode
            if mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    # The secret can't be: others may have read it.
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE((folder / _FILE).stat().st_mode)
        if mode & _OTHERS:
            raise StateError(
                f"{folder / _FILE}: its mode is {mode:o}, others may have read it: must be 600; "
                f"{_REMEDY}, or chmod 600 takes the risk"
            )


def _notice_copy(
    connection: sqlite3.Connection, folder: Path, registry: Registry, secret: bytes
) -> int:
    """Count a restore if this state is a copy, whose original may have reported since.

    What the original may have reported in this period, today or ever counts as reported here; what
    it may still send is deleted. Returns how many reports.
    """
    (place,) = connection.execute("SELECT place FROM account").fetchone()
    if place == _place(folder):
        return 0
    connection.execute("UPDATE account SET place = ?", (_place(folder),))
    if place is None:
        return 0
    connection.execute("UPDATE account SET restores = restores + 1")
    # One-time metrics count as reported, at the price of a report.
    connection.executemany(
        "INSERT OR IGNORE INTO answers SELECT ?, ?, x'', 0, ?, ?, 0 "
        "WHERE NOT EXISTS (SELECT * FROM answers WHERE metric = ? AND version = ?)",
        [
            (m.name, m.version, m.epsilon_report, m.price, m.name, m.version)
            for m in registry.values()
            if m.one_time
        ],
    )
    # So do the current period of metrics with mode "once", and today with ``reports_per_day = 1``.
    now = time.time()
    connection.executemany(
        "INSERT OR REPLACE INTO periods VALUES (?, ?, ?, ?, 0, NULL)",
        [
            (m.name, m.version, *period_at(m, secret, now)[1:])
            for m in registry.values()
            if m.mode == "once"
        ],
    )
    note_sent(connection, [m.name for m in registry.values() if m.reports_per_day], now)
    # The original may send what has no batch's id yet, under its own.
    unknown = "batch IS NULL OR batch IN (SELECT id FROM batches WHERE batch_id IS NULL)"
    deleted = connection.execute(f"DELETE FROM reports WHERE {unknown}").rowcount  # noqa: S608
    connection.execute("DELETE FROM batches WHERE batch_id IS NULL")
    return deleted


def _place(folder: Path) -> str:
    """Return a fingerprint of this machine and of the files, which a copy doesn't have.

    A database that is copied has another inode, unless the copy is written into the old file. Then
    the secret's time of change, which no program can set, shows it: nothing else writes that file.
    """
    machine = b""
    for path in map(Path, _MACHINE_IDS):
        with contextlib.suppress(OSError):
            machine = machine or path.read_bytes()
    inode = (folder / DATABASE).stat().st_ino
    changed = 0 if os.name == "nt" else (folder / _FILE).stat().st_ctime_ns  # there: of creation
    message = b"hubbub/1/place %d %d " % (inode, changed) + machine
    return hashlib.sha256(message).hexdigest()[:32]


def _write(path: Path, secret: bytes) -> None:
    temporary = path.with_name(f"{_FILE}.{os.getpid()}.{os.urandom(4).hex()}")
    line = b"hubbub-secret-1 %s %s\n" % (secret.hex().encode(), _checksum(secret))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _parse(content: bytes, path: Path) -> bytes:
    match = _FORMAT.fullmatch(content)
    secret = bytes.fromhex(match[1].decode()) if match else b""
    if not match or _checksum(secret) != match[2]:
        raise StateError(f"{path}: damaged (its checksum doesn't match); {_REMEDY}")
    return secret


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(b"hubbub/1/checksum" + secret).hexdigest()[:16].encode()


def _sync_directory(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
