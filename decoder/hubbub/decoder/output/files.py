"""Results as files: whole or not at all, and known to be possible before the work begins.

A rendering is a function that writes one form of a result into an open binary file; the end of a
file's name chooses it. What a maintainer must not break: a reader of the old file never sees half
of a new one, and a failed run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

STDOUT = "-"
SUFFIXES = (".csv", ".json", ".parquet", ".html")
Rendering = Callable[[BinaryIO], None]


def utf8(chunks: Callable[[], Iterable[str]]) -> Rendering:
    """Return the rendering of text that comes in pieces."""

    def render(file: BinaryIO) -> None:
        file.writelines(chunk.encode("utf-8") for chunk in chunks())

    return render


def refuse_unwritable(paths: Sequence[str]) -> None:
    """Refuse files that could not be written, before the work instead of after it.

    Parameters
    ----------
    paths : sequence of str
        "-" is standard output.

    Raises
    ------
    ValueError
        If a name ends in nothing that can be written, or stands there twice.
    OSError
        If a file could not be made there.
    """
    for path in paths:
        if path != STDOUT and Path(path).suffix not in SUFFIXES:
            raise ValueError(
                f"{path!r} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, "
                "or be - for CSV on stdout"
            )
        if [os.path.normpath(other) for other in paths].count(os.path.normpath(path)) > 1:
            raise ValueError(f"{path!r} is given twice; each result needs a file of its own")
    for path in paths:
        if path != STDOUT:
            refuse_place(Path(path))


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


def write_rendered(path: str, renderings: Mapping[str, Rendering]) -> None:
    """Write the rendering that a file's name asks for, whole or not at all.

    Parameters
    ----------
    path : str
        Folders that don't exist are made.
    renderings : mapping of str to Rendering
        By suffix, such as ".csv".

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file can't be written.
    """
    render = renderings.get(Path(path).suffix)
    if render is None:
        raise ValueError(f"output {path!r}: must end in {' or '.join(renderings)}")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            render(file)
        temporary.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
