"""The bytes of candidate lists -> their strings, a piece at a time.

A line of a text file is a string, or a row of a Parquet file's column. A string's bytes are kept as
they are: nothing is stripped, quoted or normalised.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hubbub.collector.exchange.parquet import require_pyarrow
from hubbub.collector.exchange.rappor_reports import open_unpacked
from hubbub.decoder.errors import CandidateError
from hubbub.protocol.bloom import MAX_VALUE_BYTES

STDIN = "-"
PARQUET = ".parquet"
COLUMNS = ("string", "candidate")
"""Columns of a Parquet file that are taken, the first one that there is."""

_PIECE_BYTES, _PIECE_ROWS = 2**18, 2**13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 8 * MAX_VALUE_BYTES
"""No normal form is so much shorter than its string that a longer line could be a value."""


class Piece(NamedTuple):
    """Strings that follow one another.

    Attributes
    ----------
    encoded : sequence of bytes
        In what should be UTF-8.
    path, unit : str
        Where they stand: the file, and "line" or "row".
    first : int
        Number of the first one, from 1.
    """

    encoded: Sequence[bytes]
    path: str
    unit: str
    first: int

    def place(self, index: int) -> str:
        """Return how a message names one of them."""
        return f"candidates {self.path}: {self.unit} {self.first + index}"


def read_pieces(path: str) -> Iterator[Piece]:
    """Yield the strings of a list, some thousands at a time.

    Parameters
    ----------
    path : str
        A text file, a pipe or "-" for standard input: a string a line, in which a byte order mark
        and the carriage return of a Windows line end don't count; unpacked if the name ends in
        .gz. Or a Parquet file, if it ends in .parquet: the column `string`, or else `candidate`, or
        else the only one that holds text.

    Raises
    ------
    CandidateError
        If a line is far too long, or a Parquet file has no such column or a null in it.
    OSError, EOFError, zlib.error
        If it can't be read, or isn't what its name says.
    """
    if path.endswith(PARQUET):
        yield from _rows(path)
        return
    with _opened(path) as file:
        yield from _lines(path, file)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with open_unpacked(Path(path)) as file:
        yield file


def _lines(path: str, file: BinaryIO) -> Iterator[Piece]:
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


def _rows(path: str) -> Iterator[Piece]:
    pa = require_pyarrow()
    try:
        # By default Arrow would fetch the whole file ahead.
        with pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_PIECE_BYTES) as file:
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
        raise OSError(str(error).splitlines()[0]) from error


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
