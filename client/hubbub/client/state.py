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
from pathlib import Path

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.errors import StateError

_FILE = "secret"
_FORMAT = re.compile(rb"hubbub-secret-1 ([0-9a-f]{64}) ([0-9a-f]{16})\n")


def load_or_create_secret(directory: str | Path) -> bytes:
    """Return this client's 32 secret bytes, drawing them if the directory has none yet.

    Safe when several processes start at once: all of them end up with the same secret.

    Raises
    ------
    StateError
        If the file can't be read or written, or its checksum is wrong.
    """
    folder = Path(directory).expanduser()
    path = folder / _FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _create(path, os.urandom(SECRET_BYTES))
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise StateError(f"state directory {folder}: {error.strerror or error}") from error


def _create(path: Path, secret: bytes) -> None:
    """Write a whole, durable file under another name, then link it: first come, first kept."""
    temporary = path.with_name(f"{_FILE}.{os.getpid()}.{os.urandom(4).hex()}")
    line = b"hubbub-secret-1 %s %s\n" % (secret.hex().encode(), _checksum(secret))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync_directory(path.parent)


def _parse(content: bytes, path: Path) -> bytes:
    match = _FORMAT.fullmatch(content)
    secret = bytes.fromhex(match[1].decode()) if match else b""
    if not match or _checksum(secret) != match[2]:
        raise StateError(
            f"{path}: damaged (its checksum doesn't match); nothing is sent until someone decides "
            "to delete it, which starts this client's privacy account anew"
        )
    return secret


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(b"hubbub/1/checksum" + secret).hexdigest()[:16].encode()


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
