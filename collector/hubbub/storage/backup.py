"""A copy of an SQLite file that is in use, as of one moment.

The file alone isn't the store: recent commits are in the log next to it, and `cp` reads
neither at one moment. SQLite's own backup does, in a transaction that is held open meanwhile, or
each commit would restart it. Writers don't wait for it, but their log can't be restarted
before it ends. Invariant: the target has its name only once it is whole, checked and on the disk.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from hubbub.storage.errors import StoreError

_PAGES_A_STEP = 256
"""1 MiB: a few milliseconds of a disk, after which it is left to others for as long."""

_BUSY_SECONDS = 10.0  # twice what a statement of the service may wait


def copy_database(source: Path, target: Path, progress: Callable[[int, int], None]) -> None:
    """Copy a database to a new file that its owner alone may read.

    `progress`: called with the pages that were copied, and with all. Raises `StoreError` if the
    target already exists, or either file refuses; then there is no target.
    """
    if target.exists():
        raise StoreError(f"{target}: already exists; a backup overwrites nothing")
    partial = target.with_name(f"{target.name}.partial")
    try:
        # The file that a killed attempt left isn't a backup.
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        partial.chmod(0o600)
        try:
            _copy(source, partial, progress)
            _check(partial)
            _sync(partial)
            partial.rename(target)
            _sync(target.absolute().parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except sqlite3.Error as error:
        raise StoreError(f"backup of {source} to {target}: {error}") from error
    except OSError as error:
        raise StoreError(f"backup to {target}: {error.strerror}") from error


def _copy(source: Path, target: Path, progress: Callable[[int, int], None]) -> None:
    begun = time.monotonic()

    def rest(_status: int, remaining: int, total: int) -> None:
        nonlocal begun
        progress(total - remaining, total)
        if remaining:
            time.sleep(time.monotonic() - begun)
        begun = time.monotonic()

    address = f"{source.absolute().as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(address, timeout=_BUSY_SECONDS, uri=True)) as reading,
        contextlib.closing(sqlite3.connect(target)) as writing,
    ):
        reading.isolation_level = None
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_schema")  # from here on it sees this moment
        # Half a copy is useless, so there is nothing to roll back.
        writing.execute("PRAGMA journal_mode=OFF")
        writing.execute("PRAGMA synchronous=OFF")
        reading.backup(writing, pages=_PAGES_A_STEP, progress=rest)


def _check(file: Path) -> None:
    # No other process uses it, so that no log and no locks are needed.
    address = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreError(f"backup: the database is damaged: {found}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
