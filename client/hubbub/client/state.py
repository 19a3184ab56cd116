"""The client's state directory: its secret, created once, owner-only, and its database.

A client that lost its secret and quietly drew another would answer the same question twice with
fresh noise, and so spend its privacy twice. Hence a secret that can't be trusted is an error, never
a reason to make a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from hubbub.client.account import Account
from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import ForgottenError, StateError
from hubbub.client.outbox import delete_unsent
from hubbub.client.storage import (
    DATABASE,
    Storage,
    count_waiting,
    delete_database,
    load_account,
    translated_errors,
)
from hubbub.protocol.registry import Registry

_FILE = "secret"
_REMEDY = "nothing is sent; forget() starts this client's privacy account anew"
_FORMAT = re.compile(rb"hubbub-secret-1 ([0-9a-f]{64}) ([0-9a-f]{16})\n")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PATIENCE = 5.0
SHORT_PATIENCE = 0.5
"""Seconds that an app's own thread may wait for other processes' transactions."""
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


class State(NamedTuple):
    """What a client starts with.

    Attributes
    ----------
    secret : bytes
    account : Account
    waiting : int
        Reports on disk that are still to be sent.
    discarded : int
        Reports that were deleted, because the original of this copy may send them, too.
    """

    secret: bytes
    account: Account
    waiting: int
    discarded: int


def open_state(directory: str | Path, registry: Registry, patience: float = _PATIENCE) -> State:
    """Return this client's secret and account, making both if the directory has neither.

    Safe when several processes start at once: all of them end up with the same secret. The database
    is made before the secret and tied to it in one transaction with its creation, so that either
    one alone tells of a loss. A deletion that was cut off is finished first.

    Parameters
    ----------
    directory : str or Path
    registry : Registry
    patience : float
        Seconds to wait for other processes' transactions.

    Raises
    ------
    StateError
        If a file is damaged, lacks its companion, or others may have read the secret.
    UnavailableError
        If a file can't be read or written for now.
    """
    folder = Path(directory).expanduser()
    with translated_errors(f"state directory {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _keep_to_owner(folder)
        try:
            return _open(folder, registry, patience)
        except ForgottenError:
            _remove_files(folder)
            return _open(folder, registry, patience)


def _open(folder: Path, registry: Registry, patience: float) -> State:
    path = folder / _FILE
    create = not path.exists()
    with closing(Storage(folder, create=create, patience=patience)) as storage:
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
            storage.claim(secret, connection)
            discarded = _notice_copy(connection, folder, registry)
            account = load_account(connection, registry)
            return State(secret, account, count_waiting(connection), discarded)


def read_account(directory: str | Path, registry: Registry) -> Account:
    """Return what a client has answered; an empty account if there is no state.

    Raises
    ------
    StateError, UnavailableError
        As `open_state`.
    """
    folder = Path(directory).expanduser()
    if not (folder / DATABASE).exists():
        return Account(registry)
    storage = Storage(folder, patience=SHORT_PATIENCE)
    with closing(storage), storage.transaction() as connection:
        return load_account(connection, registry)


def discard_unsent(directory: str | Path) -> int:
    """Delete the reports on disk; return how many there were. Nothing is made where nothing is.

    Raises
    ------
    StateError, UnavailableError
        If the state can't be read or written.
    """
    folder = Path(directory).expanduser()
    if not (folder / DATABASE).exists():
        return 0
    storage = Storage(folder, patience=SHORT_PATIENCE)
    with closing(storage), storage.transaction() as connection:
        waiting = count_waiting(connection)
        delete_unsent(connection)
        return waiting


def replace_secret(directory: str | Path) -> int:
    """Draw another secret in place of the old one, and count that in the ledger.

    Whenever this is cut off, one of the two secrets is whole and the database's. Of several
    processes that do this at once, one succeeds, for all. Returns how many unsent reports were
    deleted.

    Raises
    ------
    StateError, UnavailableError
        If a file can't be read or written.
    """
    folder = Path(directory).expanduser()
    path = folder / _FILE
    secret = os.urandom(SECRET_BYTES)
    with translated_errors(f"state directory {folder}"), closing(Storage(folder)) as storage:
        with storage.transaction() as connection:
            deleted = storage.claim(_parse(path.read_bytes(), path), connection)
            storage.announce(secret, connection)
        with storage.transaction() as connection:
            if storage.is_announced(secret, connection):
                _write(path, secret)
                deleted += storage.claim(secret, connection)
        return deleted


def delete_state(directory: str | Path) -> None:
    """Remove the secret, the account and the outbox; other processes notice, and stop.

    Raises
    ------
    StateError, UnavailableError
        If a file can't be removed.
    """
    folder = Path(directory).expanduser()
    with translated_errors(f"state directory {folder}"):
        with contextlib.suppress(StateError), closing(Storage(folder)) as storage:
            storage.erase()
        _remove_files(folder)


def _remove_files(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)
    delete_database(folder)


def _keep_to_owner(folder: Path) -> None:
    """Take others' permissions on the directory and the database away; refuse a secret they had.

    The database tells others little without the secret (docs/privacy.md, State at rest). A
    directory that holds other things, too, is left as it is, unless others may write there.
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


def _notice_copy(connection: sqlite3.Connection, folder: Path, registry: Registry) -> int:
    """Count it if this state is a copy, whose original may have answered since.

    A one-time metric may have been reported by the original, so it counts as reported here; and
    what is in no batch yet, with an id of its own, may be sent by the original, so it is deleted.
    Returns how many reports that were.
    """
    here = _place(folder)
    (place,) = connection.execute("SELECT place FROM account").fetchone()
    if place == here:
        return 0
    connection.execute("UPDATE account SET place = ?", (here,))
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
    return connection.execute("DELETE FROM spool").rowcount


def _place(folder: Path) -> str:
    """Return a fingerprint of this machine and the database's file, of which a copy has another."""
    machine = b""
    for path in map(Path, _MACHINE_IDS):
        with contextlib.suppress(OSError):
            machine = machine or path.read_bytes()
    inode = (folder / DATABASE).stat().st_ino
    return hashlib.sha256(b"hubbub/1/place %d " % inode + machine).hexdigest()[:32]


def _write(path: Path, secret: bytes) -> None:
    """Put a whole, durable file in place."""
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
    """Make a new name durable, where the file system can."""
    with contextlib.suppress(OSError), _opened(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
