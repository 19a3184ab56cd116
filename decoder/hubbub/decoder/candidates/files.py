"""A list of candidates, file or stream -> distinct strings and their hashes, in little memory.

A line of a text file is a string, or a row of a Parquet file's column. A string's bytes are kept as
they are: nothing is stripped, quoted or normalised. Strings are read and hashed piece by piece.
What stays is a `StringTable` and a hash of each.
"""

from __future__ import annotations

import glob
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePath
from typing import IO, Any, NamedTuple

import numpy as np

from hubbub.inference.arrays import WordArray
from hubbub.inference.candidates import (
    Candidates,
    canonical_forms,
    hash_words,
    of_words,
    repeated,
)
from hubbub.inference.errors import CandidateError
from hubbub.inference.string_table import StringTable, string_offsets
from hubbub.protocol.bloom import MAX_VALUE_BYTES
from hubbub.protocol.params import RapporParams
from hubbub.storage.errors import StorageError
from hubbub.storage.files.locations import open_unpacked, resolve, storage_errors
from hubbub.storage.files.parquet import open_parquet, require_pyarrow

STDIN = "-"
PARQUET = ".parquet"
COLUMNS = ("string", "candidate")
"""Columns of a Parquet file that are taken, the first one that there is."""
_PIECE_BYTES, _PIECE_ROWS = 2**18, 2**13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 8 * MAX_VALUE_BYTES
"""No normal form is so much shorter than its string that a longer line could be a value."""
_MOST_REPEATED_ROWS = 2**20  # some tens of megabytes; sorting more rarely costs nothing that shows


class Piece(NamedTuple):
    """Strings that follow one another."""

    encoded: Sequence[bytes]  # in what should be UTF-8
    path: str  # where they stand: the file, and "line" or "row"
    unit: str
    first: int  # number of the first one, from 1

    def place(self, index: int) -> str:
        """Return how a message names one of them."""
        return f"candidates {self.path}: {self.unit} {self.first + index}"


def read_pieces(path: str) -> Iterator[Piece]:
    """Yield the strings of a list, some thousands at a time.

    `path`: an address (`storage.resolve`) of a text file, a pipe or "-" for standard input: a
    string a line, in which a byte order mark and the carriage return of a Windows line end don't
    count; unpacked if the name ends in .gz. Or a Parquet file, if it ends in .parquet: the column
    `string`, or else `candidate`, or else the only one that holds text. Raises `CandidateError` if
    a line is far too long, or a Parquet file has no such column or a null in it. Raises `OSError,
    EOFError, zlib.error, NotParquetError` if it can't be read, or isn't what its name says.
    """
    if path.endswith(PARQUET):
        yield from _rows_of(path)
    elif path == STDIN:
        yield from _lines_of(path, sys.stdin.buffer)
    else:
        with open_unpacked(path) as file:
            yield from _lines_of(path, file)


def list_files(address: str) -> list[str]:
    """Return the files of a list, in the order of their names.

    `address`: a file, "-", a folder, of which those files count whose names begin with neither "."
    nor "_", or a pattern such as "lists/part-*.gz"; in object storage only the last part of an
    address may be a pattern. Raises `CandidateError` if a folder or a pattern has no file, or the
    storage fails.
    """
    if not is_in_parts(address):
        return [address]
    location = resolve(address)
    with readable(address):
        if location.is_folder():
            names = [name for name in location.file_names() if name[0] not in "._"]
            files = sorted(str(location / name) for name in names)
        elif location.is_local:
            # A pattern may begin anywhere.
            found = glob.glob(str(location))  # noqa: PTH207
            files = sorted(each for each in found if resolve(each).size() is not None)
        else:
            names = [name for name in location.parent.file_names() if name[0] != "."]
            matching = [name for name in names if fnmatchcase(name, location.name)]
            files = sorted(str(location.parent / name) for name in matching)
    if not files:
        raise CandidateError(
            f"candidates {address}: no file; expected files whose names begin with neither . nor _"
        )
    return files


def is_in_parts(address: str) -> bool:
    """Say whether an address stands for the files of a folder or of a pattern."""
    location = resolve(address)
    with readable(address):
        return location.is_folder() or (
            any(letter in address for letter in "*?[") and not location.exists()
        )


def _lines_of(path: str, file: IO[bytes]) -> Iterator[Piece]:
    """Yield the lines of text, some thousands at a time; otherwise as `read_pieces`."""
    first, rest, mark = 1, b"", _BYTE_ORDER_MARK
    while data := file.read(_PIECE_BYTES):
        complete, newline, after = data.removeprefix(mark).rpartition(b"\n")
        mark = b""
        if newline:
            lines = (rest + complete).replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n")
            yield Piece(lines, path, "line", first)
            first, rest = first + len(lines), after
        else:
            rest += after
        if len(rest) > _LONGEST_LINE:
            place = Piece((), path, "line", first).place(0)
            raise CandidateError(
                f"{place}: over {_LONGEST_LINE} bytes; expected at most {MAX_VALUE_BYTES} bytes of "
                "UTF-8"
            )
    if rest:
        yield Piece([rest.removesuffix(b"\r")], path, "line", first)


def _rows_of(path: str) -> Iterator[Piece]:
    """Yield the rows of a Parquet file; otherwise as `read_pieces`."""
    pa = require_pyarrow()
    try:
        with open_parquet(resolve(path)) as file:
            column = _text_column(pa, path, file.schema_arrow)
            first = 1
            for batch in file.iter_batches(_PIECE_ROWS, columns=[column], use_threads=False):
                values = batch.column(0)
                if values.null_count:
                    row = first + values.is_null().to_pylist().index(True)
                    raise CandidateError(
                        f"candidates {path}: row {row}, column {column}: is null; expected a string"
                    )
                yield Piece(_encoded(pa, values), path, "row", first)
                first += batch.num_rows
    except pa.ArrowException as error:
        raise NotParquetError(str(error)) from error


def _text_column(pa: Any, path: str, schema: Any) -> str:
    kinds = [str(field.type) for field in schema]
    texts = [field.name for field in schema if _is_text(pa, field.type)]
    named = [name for name in COLUMNS if name in schema.names]
    wanted = named[:1] or texts
    if len(wanted) != 1 or schema.names.count(wanted[0]) != 1:
        found = ", ".join(f"{n} ({kind})" for n, kind in zip(schema.names, kinds, strict=True))
        raise CandidateError(
            f"candidates {path}: columns {found or 'none'}; expected one named "
            f"{' or '.join(COLUMNS)}, or only one that holds text"
        )
    if wanted[0] not in texts:
        kind = kinds[schema.names.index(wanted[0])]
        raise CandidateError(f"candidates {path}: column {wanted[0]}: {kind}; expected text")
    return str(wanted[0])


def _is_text(pa: Any, kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _encoded(pa: Any, values: Any) -> list[bytes]:
    """Return the bytes of an Arrow array of strings, without a detour through Python's."""
    values = values.cast(pa.large_string())
    if not len(values):
        return []
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, dtype=np.int64)[values.offset :][: len(values) + 1]
    start = int(offsets[0])
    blob = bytes(memoryview(data)[start : int(offsets[-1])]) if data else b""
    bounds = (offsets - start).tolist()
    return [blob[a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateList:
    """Distinct candidates in the order of the file."""

    strings: StringTable
    words: WordArray  # shape (n, 2); their hashes
    repeats: int  # strings left out because an earlier one is the same

    def __len__(self) -> int:
        return len(self.strings)

    def hashed(self, params: RapporParams) -> Candidates:
        """Return the candidates with the positions that hubbub's clients give them."""
        return of_words(self.strings, self.words, params)


def read_list(path: str) -> CandidateList:
    """Read a list of candidates in their normal form (NFC), and leave out repeats.

    `path`: as of `read_pieces`, or several files (`list_files`). Raises `CandidateError` if it
    can't be read, holds no string, or one that no client could report: not UTF-8, or too long. The
    message names the line.
    """
    table = _TableInMaking()
    for file in list_files(path):
        before = table.given
        # The lambda is called in this round alone.
        with readable(file, lambda: table.given - before), _unchanged(file):  # noqa: B023
            for piece in read_pieces(file):
                canonical = canonical_forms(piece.encoded, piece.place)
                table.add(canonical, hash_words(canonical))
    if not table.given:
        raise no_string(path)
    return table.finished()


@contextmanager
def _unchanged(path: str) -> Iterator[None]:
    """Refuse an object that is replaced while it is read, whatever was found in it.

    Of such an object pyarrow may give bytes that never were in it.
    """
    location = resolve(path)
    stamp = None if location.is_local else location.stamp()
    try:
        yield
    except CandidateError as error:
        if stamp is not None and location.stamp() != stamp:
            raise changed(path) from error
        raise
    if stamp is not None and location.stamp() != stamp:
        raise changed(path)


def no_string(address: str) -> CandidateError:
    """Return the error of a list without strings."""
    return CandidateError(f"candidates {address}: empty; expected one string per {_unit(address)}")


def changed(path: str) -> CandidateError:
    """Return the error of a file that is another one than before."""
    return CandidateError(
        f"candidates {path}: was changed while it was read; expected a file that stays as it is"
    )


class NotParquetError(Exception):
    """A file isn't Parquet, or is damaged."""


@contextmanager
def readable(path: str, given: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Raise a CandidateError where a file can't be read, or its storage fails.

    `path`: the file's address. `given`: returns how many strings were read before.
    """
    try:
        with storage_errors(resolve(path)):
            yield
    except StorageError as error:
        raise CandidateError(f"candidates {error}") from error
    except (OSError, EOFError, zlib.error, NotParquetError) as error:
        raise _unreadable(path, error, given()) from error


def _unreadable(path: str, error: BaseException, given: int) -> CandidateError:
    after = f" after {_unit(path)} {given}" if given else ""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    kinds = {PARQUET: "a Parquet file", ".gz": "gzip"}
    expected = kinds.get(PurePath(path).suffix, "a file or pipe")
    return CandidateError(f"candidates {path}: can't be read{after}: {reason}; expected {expected}")


class _TableInMaking:
    """A growing table; repeats are dropped whenever it has doubled."""

    def __init__(self) -> None:
        self.given = 0
        self._blob, self._lengths, self._words = bytearray(), bytearray(), bytearray()
        self._rows = self._distinct = 0

    def add(self, encoded: Sequence[bytes], words: WordArray) -> None:
        self.given += len(encoded)
        self._rows += len(encoded)
        self._blob += b"".join(encoded)
        self._lengths += np.fromiter(map(len, encoded), np.int64, len(encoded)).data
        self._words += words.data
        if self._rows > 2 * max(_MOST_REPEATED_ROWS, self._distinct):
            self._drop_repeats()

    def finished(self) -> CandidateList:
        blob = np.frombuffer(self._blob, dtype=np.uint8)
        lengths = np.frombuffer(self._lengths, dtype=np.int64)
        words = np.frombuffer(self._words, dtype=np.uint32).reshape(-1, 2)
        strings = StringTable(blob, string_offsets(lengths))
        again = repeated(words, strings.equal)
        if again.any():
            strings, words = strings.only(~again), words[~again]
        return CandidateList(strings, words, self.given - len(strings))

    def _drop_repeats(self) -> None:
        distinct = self.finished()
        if len(distinct) < self._rows:
            self._blob = bytearray(distinct.strings.blob.data)
            self._lengths = bytearray(np.diff(distinct.strings.offsets).data)
            self._words = bytearray(distinct.words.data)
        self._rows = self._distinct = len(distinct)


def _unit(path: str) -> str:
    return "row" if path.endswith(PARQUET) else "line"
