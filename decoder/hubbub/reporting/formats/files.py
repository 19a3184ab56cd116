"""Files: whole or not at all, and known to be possible before the work begins.

Invariant: a reader of the old file never sees half of a new one, and a failed run leaves nothing
behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

STDOUT = "-"


def refuse_place(target: Path) -> None:
    """Refuse a file that can't be made; its folder must exist, for its name may be mistyped."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    folder = target.parent
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    fault = None
    if not folder.is_dir():
        fault = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        fault = errno.EACCES
    if fault is not None:
        raise OSError(fault, os.strerror(fault), str(target))


def check_output_paths(paths: Sequence[str]) -> None:
    """Refuse files that can't be made (OSError), or of which one is named twice (ValueError)."""
    for path in paths:
        if [os.path.normpath(other) for other in paths].count(os.path.normpath(path)) > 1:
            raise ValueError(f"{path!r} is given twice; each result needs a file of its own")
    for path in paths:
        if path != STDOUT:
            refuse_place(Path(path))


def atomic_write(target: Path, write: Callable[[BinaryIO], None]) -> None:
    """Make a file of what a function writes, or leave everything as it was."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
        temporary.replace(target)
    except OSError as error:
        if error.filename in {
            None,
            str(temporary),
        }:  # a full disk names none; nobody asked for that
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
