"""Files: whole or not at all, and known to be possible before the work begins.

Invariant: a reader of the old file never sees half of a new one, and a failed run leaves nothing
behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def refuse_place(target: Path) -> None:
    """Ask the nearest folder that exists whether the file, or a folder for it, may be made.

    Raises
    ------
    OSError
        If not.
    """
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    folder = next(parent for parent in target.absolute().parents if parent.exists())
    fault = None
    if not folder.is_dir():
        fault = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        fault = errno.EACCES
    if fault is not None:
        raise OSError(fault, os.strerror(fault), str(target))


def write_whole(target: Path, write: Callable[[BinaryIO], None]) -> None:
    """Make a file of what a function writes, or leave everything as it was.

    Parameters
    ----------
    target : Path
        Folders that don't exist are made.
    write : callable
        Writes to an open binary file.

    Raises
    ------
    OSError
        If the file can't be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
        temporary.replace(target)
    except OSError as error:
        if error.filename == str(temporary):  # which nobody asked for
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
