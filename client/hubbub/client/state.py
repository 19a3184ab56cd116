"""The client's secret on disk: created once, owner-only, checked on every read.

A client that lost its secret and quietly drew another would answer the same question twice with
fresh noise, and so spend its privacy twice. Hence a secret that can't be trusted is an error, never
a reason to make a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import BusyError, StateError
from hubbub.client.ledger import Ledger
from hubbub.client.metrics import Registry
from hubbub.client.storage import Storage, delete_database, load_ledger

_FILE = "secret"
_REMEDY = "nothing is sent; forget() starts this client's privacy account anew"
_FORMAT = re.compile(rb"hubbub-secret-1 ([0-9a-f]{64}) ([0-9a-f]{16})\n")


def open_state(directory: str | Path, registry: Registry) -> tuple[bytes, Ledger]:
    """Return this client's secret and ledger, making both if the directory has neither.

    Safe when several processes start at once: all of them end up with the same secret. The database
    is made before the secret and tied to it afterwards, so that either one alone tells of a loss.

    Raises
    ------
    StateError
        If a file can't be read or written, is damaged, or lacks its companion.
    """
    folder = Path(directory).expanduser()
    path = folder / _FILE
    with _translated(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(Storage(folder, create=not path.exists())) as storage:
            storage.check()
            if storage.owner() is not None and not path.exists():
                raise StateError(f"{path}: missing, though reports were made with it; {_REMEDY}")
            if not path.exists():
                _create(path, os.urandom(SECRET_BYTES))
            secret = _parse(path.read_bytes(), path)
            storage.claim(secret)
            with storage.transaction() as connection:
                return secret, load_ledger(connection, registry)


def replace_secret(directory: str | Path) -> None:
    """Draw another secret in place of the old one, and count that in the ledger.

    Raises
    ------
    StateError
        If a file can't be read or written.
    """
    folder = Path(directory).expanduser()
    path = folder / _FILE
    secret = os.urandom(SECRET_BYTES)
    with _translated(folder), closing(Storage(folder)) as storage:
        storage.release()
        temporary = _write_temporary(path, secret)
        temporary.replace(path)
        _sync_directory(folder)
        storage.claim(secret)


def delete_state(directory: str | Path) -> None:
    """Remove the secret, the ledger and the outbox.

    Raises
    ------
    StateError
        If a file can't be removed.
    """
    folder = Path(directory).expanduser()
    with _translated(folder):
        (folder / _FILE).unlink(missing_ok=True)
        delete_database(folder)


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, BusyError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StateError(f"state directory {folder}: {reason}") from error


def _create(path: Path, secret: bytes) -> None:
    """Link a whole, durable file: first come, first kept."""
    temporary = _write_temporary(path, secret)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync_directory(path.parent)


def _write_temporary(path: Path, secret: bytes) -> Path:
    temporary = path.with_name(f"{_FILE}.{os.getpid()}.{os.urandom(4).hex()}")
    line = b"hubbub-secret-1 %s %s\n" % (secret.hex().encode(), _checksum(secret))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _parse(content: bytes, path: Path) -> bytes:
    match = _FORMAT.fullmatch(content)
    secret = bytes.fromhex(match[1].decode()) if match else b""
    if not match or _checksum(secret) != match[2]:
        raise StateError(f"{path}: damaged (its checksum doesn't match); {_REMEDY}")
    return secret


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(b"hubbub/1/checksum" + secret).hexdigest()[:16].encode()


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
