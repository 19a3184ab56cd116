"""The client's state directory: its secret, created once, owner-only, and its database.

A client that lost its secret and silently drew another would answer the same question twice with
fresh noise, and so spend its privacy twice. Invariant: a secret that can't be trusted is an error,
never a reason to make a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import ForgottenError, OtherApplicationError, StateError
from hubbub.client.ledger import Account
from hubbub.client.outbox import is_sent, note_sent
from hubbub.client.schedule import period_at
from hubbub.client.storage import (
    DATABASE,
    Storage,
    count_waiting,
    delete_unsent,
    load_account,
    translated_errors,
)
from hubbub.protocol.registry import Registry

_FILE = "secret"
_REMEDY = "nothing is sent; forget() starts this client's privacy account anew"
_FORMAT = re.compile(rb"hubbub-secret-1 ([0-9a-f]{64}) ([0-9a-f]{16})\n")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
PATIENCE = 5.0
"""SQLite's usual 5 s: a transaction takes milliseconds, so longer means a hung process."""
SHORT_PATIENCE = 0.5
"""Seconds that an app's own thread may wait for other processes' transactions."""
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


class State(NamedTuple):
    """What a client starts with."""

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
    loss. A deletion that was interrupted is finished first.

    `origin`: of the collector; None: of all of them. `patience`: seconds to wait for other
    processes' transactions. Raises `StateError` if a file is damaged, lacks its companion, or
    others may have read the secret. Raises `OtherApplicationError` if the directory is another
    application's. Raises `UnavailableError` if a file can't be read or written for now.
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
    with closing(Storage(folder, application, create=create, patience=patience)) as storage:
        storage.check()
        with storage.transaction() as connection:
            owner = connection.execute("SELECT owner FROM account").fetchone()[0]
            if not path.exists():
                if owner is not None:
                    raise StateError(
                        f"{path}: missing, though reports were made with it; {_REMEDY}"
                    )
                _write(path, os.urandom(SECRET_BYTES))
            secret = _parse(path.read_bytes(), path)
            if storage.claim(secret, connection) is None:
                discarded = _notice_copy(connection, folder, registry, secret)
            else:
                discarded = 0
                _note_place(connection, folder)
            account = load_account(connection, registry)
            return State(secret, account, count_waiting(connection, origin), discarded)


def read_account(directory: str | Path, registry: Registry) -> Account:
    """Return what a client has answered; an empty account if there is no state.

    Raises `StateError, UnavailableError` as `open_state`.
    """
    folder = Path(directory).expanduser()
    if not (folder / DATABASE).exists():
        return Account(registry)
    storage = Storage(folder, registry.application, patience=SHORT_PATIENCE)
    with closing(storage), storage.transaction() as connection:
        return load_account(connection, registry)


def is_reported_today(directory: str | Path, registry: Registry, metric: str) -> bool:
    """Return whether a metric with ``reports_per_day = 1`` can't be reported today any more.

    Raises `StateError, UnavailableError` as `open_state`.
    """
    folder = Path(directory).expanduser()
    if not registry[metric].reports_per_day or not (folder / DATABASE).exists():
        return False
    storage = Storage(folder, registry.application, patience=SHORT_PATIENCE)
    with closing(storage), storage.transaction() as connection:
        return is_sent(connection, metric, time.time())


def discard_unsent(directory: str | Path, application: str) -> int:
    """Delete the reports on disk, if there is a database; return how many there were.

    Raises `StateError, UnavailableError` if the state can't be read or written.
    """
    folder = Path(directory).expanduser()
    if not (folder / DATABASE).exists():
        return 0
    storage = Storage(folder, application, patience=SHORT_PATIENCE)
    with closing(storage), storage.transaction() as connection:
        waiting = count_waiting(connection)
        delete_unsent(connection)
        return waiting


def replace_secret(directory: str | Path, application: str) -> int:
    """Draw another secret in place of the old one, and count that in the ledger.

    Whenever this is interrupted, one of the two secrets is complete and the database's. If several
    processes do this at once, one succeeds, for all. Returns how many unsent reports were deleted.

    Raises `StateError, UnavailableError` if a file can't be read or written.
    """
    folder = Path(directory).expanduser()
    path = folder / _FILE
    secret = os.urandom(SECRET_BYTES)
    opened = closing(Storage(folder, application))
    with translated_errors(f"state directory {folder}"), opened as storage:
        with storage.transaction() as connection:
            deleted = storage.claim(_parse(path.read_bytes(), path), connection) or 0
            storage.announce(secret, connection)
        with storage.transaction() as connection:
            if storage.is_announced(secret, connection):
                _write(path, secret)
                deleted += storage.claim(secret, connection) or 0
                _note_place(connection, folder)
        return deleted


def delete_state(directory: str | Path, application: str) -> None:
    """Remove the secret, the account and the outbox; other processes notice, and stop.

    Raises `OtherApplicationError` if the directory is another application's: nothing is removed.
    Raises `StateError, UnavailableError` if a file can't be removed.
    """
    folder = Path(directory).expanduser()
    with translated_errors(f"state directory {folder}"):
        try:
            with closing(Storage(folder, application)) as storage:
                storage.erase()
        except OtherApplicationError:
            raise
        except StateError:
            pass  # what is missing or damaged is removed as it is
        _remove_files(folder)


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
    for path in ours if foreign else (folder, *ours):
        with contextlib.suppress(FileNotFoundError):  # a log that another process has finished
            mode = path.stat().st_mode
            if mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
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

    The original may have reported any one-time metric, in the current period any metric with mode
    "once", and today any with ``reports_per_day = 1``, so these count as reported here; and it may
    send what has no batch's id yet, under its own, so that is deleted. Returns how many reports.
    """
    (place,) = connection.execute("SELECT place FROM account").fetchone()
    if place == _place(folder):
        return 0
    _note_place(connection, folder)
    if place is None:
        return 0
    connection.execute("UPDATE account SET restores = restores + 1")
    connection.executemany(
        "INSERT OR IGNORE INTO answers SELECT ?, ?, x'', 0, ?, ?, 0 "
        "WHERE NOT EXISTS (SELECT * FROM answers WHERE metric = ? AND version = ?)",
        [
            (m.name, m.version, m.epsilon_report, m.price, m.name, m.version)
            for m in registry.values()
            if m.one_time
        ],
    )
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
    unknown = "batch IS NULL OR batch IN (SELECT id FROM batches WHERE batch_id IS NULL)"
    deleted = connection.execute(f"DELETE FROM reports WHERE {unknown}").rowcount  # noqa: S608
    connection.execute("DELETE FROM batches WHERE batch_id IS NULL")
    return deleted


def _note_place(connection: sqlite3.Connection, folder: Path) -> None:
    connection.execute("UPDATE account SET place = ?", (_place(folder),))


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
    """Put a complete, durable file in place."""
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
