"""A list of candidates in one file or many, cut into parts that can be read apart from each other.

A part is a range of bytes of a text file, of lines of a packed one (.gz can only be read from its
beginning), or of row groups of a Parquet file. All parts one after the other are the list.

Invariant: a line belongs to the part in which it begins, so that the strings and their order don't
depend on how a file is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, NamedTuple

from hubbub.decoder.candidates.files import (
    PARQUET,
    NotParquetError,
    Piece,
    changed,
    lines_of,
    readable,
    rows_of,
)
from hubbub.storage.files.locations import FileStamp, open_unpacked, resolve
from hubbub.storage.files.parquet import open_parquet, require_pyarrow

_PACKED = ".gz"
_BYTES_A_PART = 2**23  # a second's work: progress moves, and threads end at about the same time
_ROWS_A_PART = 2**19  # about as much work as the bytes of a part of text
_BLOCK = 2**18  # read at a time: larger ones are no quicker


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a file's strings.

    Attributes
    ----------
    path : str
        Its address.
    start, stop : int
        Bytes of a text file, lines of a packed one, row groups of a Parquet file.
    stamp : FileStamp, optional
        What the file must have, if it is looked at.
    """

    path: str
    start: int
    stop: int
    stamp: FileStamp | None = None

    def require_unchanged(self) -> None:
        """Raise CandidateError if the file isn't the one that was cut."""
        if self.stamp not in (None, resolve(self.path).stamp()):
            raise changed(self.path)


class Counted(NamedTuple):
    """How many lines a packed file has, and its stamp before they were counted."""

    lines: int
    stamp: FileStamp


def count_lines(_shared: None, path: str) -> Counted:
    """Count the lines of a packed file (a task, because all of it is unpacked for that).

    Raises
    ------
    CandidateError
        If it can't be read.
    """
    lines, last = 0, b"\n"
    with readable(path):
        stamp = resolve(path).stamp()
        with open_unpacked(path) as file:
            while block := file.read(_BLOCK):
                lines += block.count(b"\n")
                last = block
    return Counted(lines + (not last.endswith(b"\n")), stamp)


def cut(path: str, counted: Counted | None = None) -> list[Part]:
    """Cut a file into parts of some hundred thousand strings.

    Parameters
    ----------
    path : str
        The file's address.
    counted : Counted, optional
        Of a packed file, whose lines must be known.

    Raises
    ------
    CandidateError
        If it can't be read.
    """
    with readable(path):
        stamp = resolve(path).stamp()
        if path.endswith(PARQUET):
            return [Part(path, *bounds, stamp) for bounds in pairwise(_row_groups(path))]
    step, size = _BYTES_A_PART, stamp.size
    if counted is not None:
        step, (size, stamp) = _ROWS_A_PART, counted
    return [Part(path, start, min(start + step, size), stamp) for start in range(0, size, step)]


def is_packed(path: str) -> bool:
    """Say whether a file is packed, by its name."""
    return path.endswith(_PACKED)


def read_part(part: Part) -> Iterator[Piece]:
    """Yield the strings of a part.

    Raises
    ------
    CandidateError
        As `files.read_pieces`, or if the file can't be read or isn't the one that was cut.
    """
    with readable(part.path):
        part.require_unchanged()
        yield from _pieces_of(part)
        part.require_unchanged()


def _pieces_of(part: Part) -> Iterator[Piece]:
    if part.path.endswith(PARQUET):
        yield from rows_of(part.path, range(part.start, part.stop))
    elif is_packed(part.path):
        with open_unpacked(part.path) as file:
            yield from _some(lines_of(part.path, file), part.start, part.stop)
    else:
        with resolve(part.path).open() as file:
            lines = _LinesOf(file, part.start, part.stop)
            yield from lines_of(part.path, lines, part.start)


def _row_groups(path: str) -> list[int]:
    """Return where parts begin, and where the last one ends."""
    pa = require_pyarrow()
    try:
        with open_parquet(resolve(path)) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    except pa.ArrowException as error:
        raise NotParquetError(str(error)) from error
    bounds, rows = [0], 0
    for group, size in enumerate(sizes):
        if rows and rows + size > _ROWS_A_PART:
            bounds.append(group)
            rows = 0
        rows += size
    return [*bounds, len(sizes)] if sizes else [0]


def _some(pieces: Iterator[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Yield the strings from number `start`, counted from 0, up to `stop`."""
    before = 0
    for piece in pieces:
        after = before + len(piece.encoded)
        first, end = max(start - before, 0), min(stop - before, len(piece.encoded))
        if first < end:
            number = before + first - start + 1
            yield piece._replace(encoded=piece.encoded[first:end], first=number)
        if after >= stop:
            return
        before = after


class _LinesOf:
    """The lines that begin in a range of a file's bytes.

    Invariant: it ends with the end of the last of them, or of the file.
    """

    def __init__(self, file: IO[bytes], start: int, stop: int) -> None:
        self._file, self._ahead, self._ended = file, b"", False
        self._left = stop - start  # bytes up to the range's end
        if start:
            file.seek(start - 1)
            self._left += 1
            self._skip_line()

    def read(self, size: int, /) -> bytes:
        """Return more bytes, at most so many; none at the end."""
        if self._ended:
            return b""
        data, self._ahead = self._ahead or self._file.read(size), b""
        # The line of the range's last byte is the last one.
        end = data.find(b"\n", max(self._left - 1, 0))
        if end >= 0:
            data, self._ended = data[: end + 1], True
        self._left -= len(data)
        return data

    def _skip_line(self) -> None:
        """Go on behind the first line end but the range's last byte."""
        while self._left > 1 and (block := self._file.read(min(_BLOCK, self._left - 1))):
            self._left -= len(block)
            _, newline, self._ahead = block.partition(b"\n")
            if newline:
                self._left += len(self._ahead)
                return
        self._ended = True
