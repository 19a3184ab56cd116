"""CSV files by RFC 4180, and no others -> tables of text.

A reader that forgives lets one person's cell hide other people's rows: a stray quote swallows all
lines up to the next one, and a carriage return begins a line that nobody wrote. So whatever the
standard doesn't allow is refused, by file and line, and a line break within a cell as well unless
it was asked for. Invariants: the bytes that are checked are those that are parsed, and no message
quotes a cell.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
from pyarrow import csv

from hubbub.release.errors import DataError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK = 2**22
"""Bytes that pyarrow parses at a time, in which a record must fit."""
_QUOTED = re.compile(rb'"[^"]*"')


class _Grammar(NamedTuple):
    """What matches a record, as far as it is one, and a whole file.

    No repetition gives back what it has matched ("+"), so matching takes linear time.
    """

    record: re.Pattern[bytes]
    file: re.Pattern[bytes]

    @classmethod
    def of(cls, within_quotes: bytes) -> _Grammar:
        """Return the grammar with these characters in quoted cells."""
        cell = rb'(?:"%b*+(?:""%b*+)*+"|[^",\r\n]*+)' % (within_quotes, within_quotes)
        record = rb"%b(?:,%b)*+" % (cell, cell)
        return cls(re.compile(record), re.compile(rb"(?:%b\r?\n)*+%b" % (record, record)))


_GRAMMARS = {False: _Grammar.of(rb'[^"\r\n]'), True: _Grammar.of(rb'[^"]')}
"""By whether line breaks are allowed within quotes."""


def read_names(path: Path, *, newlines_in_cells: bool) -> list[str]:
    """Return what the cells of a file's first record say.

    Raises
    ------
    DataError
        If there is none, or it isn't as RFC 4180 says.
    OSError, EOFError, zlib.error, UnicodeError, pyarrow.ArrowException
        If it can't be read.
    """
    with _opened(path) as file:
        return _names(path, file, newlines_in_cells)


def read(path: Path, columns: Sequence[str], *, newlines_in_cells: bool) -> Any:
    """Return some columns of a file as they are written, empty cells as empty text.

    Types aren't guessed, which would let one row change what others mean.

    Parameters
    ----------
    path : Path
        A CSV file, perhaps compressed.
    columns : sequence of str
        Those that the file hasn't are left out.
    newlines_in_cells : bool
        Whether quoted cells may hold line breaks.

    Raises
    ------
    DataError
        If it isn't as RFC 4180 says, or its records differ in their number of cells.
    OSError, EOFError, zlib.error, UnicodeError, pyarrow.ArrowException
        If it can't be read.
    """
    with _opened(path) as file:
        content = file.read().removeprefix(_BYTE_ORDER_MARK)
    names = _names(path, io.BytesIO(content), newlines_in_cells)
    if not _GRAMMARS[newlines_in_cells].file.fullmatch(content):
        _refuse_fault(path, content, newlines_in_cells)
    if not content.endswith(b"\n"):
        content += b"\n"  # pyarrow takes a first line without an end for none
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=[name for name in columns if name in names],
    )
    source, blocks = pa.BufferReader(content), csv.ReadOptions(block_size=_BLOCK)
    try:
        return csv.read_csv(source, blocks, _parse_options(newlines_in_cells), convert)
    except pa.ArrowInvalid:
        _refuse_fault(path, content, newlines_in_cells)
        raise


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.open(path, "rb"))
    return path.open("rb")


def _records(lines: Iterable[bytes], newlines_in_cells: bool) -> Iterator[tuple[int, bytes]]:
    """Yield records with the numbers of their first lines; within open quotes lines go on."""
    begun: list[bytes] = []
    quotes, number = 0, 0
    for number, line in enumerate(lines, start=1):
        begun.append(line)
        if newlines_in_cells:
            quotes += line.count(b'"')
        if quotes % 2 == 0:
            yield number - len(begun) + 1, b"".join(begun)
            begun.clear()
    if begun:
        yield number - len(begun) + 1, b"".join(begun)


def _names(path: Path, lines: Iterable[bytes], newlines_in_cells: bool) -> list[str]:
    for number, record in _records(lines, newlines_in_cells):
        header = record.removeprefix(_BYTE_ORDER_MARK)
        _count_cells(path, number, header, newlines_in_cells)
        source = pa.BufferReader(header.removesuffix(b"\n") + b"\n")
        table = csv.read_csv(source, parse_options=_parse_options(newlines_in_cells))
        return list(table.column_names)
    raise DataError(f"{path}: can't be read: it is empty")


def _parse_options(newlines_in_cells: bool) -> csv.ParseOptions:
    return csv.ParseOptions(newlines_in_values=newlines_in_cells, ignore_empty_lines=False)


def _refuse_fault(path: Path, content: bytes, newlines_in_cells: bool) -> None:
    """Name the first fault of a file that can't be parsed (raises DataError)."""
    expected = 0
    for number, record in _records(io.BytesIO(content), newlines_in_cells):
        cells = _count_cells(path, number, record, newlines_in_cells)
        expected = expected or cells
        if cells != expected:
            raise DataError(
                f"{path}: line {number}: cells = {cells}: must be {expected}, as in the first line"
            )
        if len(record) > _BLOCK:
            raise DataError(
                f"{path}: line {number}: bytes = {len(record):,}: must be at most {_BLOCK:,}"
            )


def _count_cells(path: Path, number: int, record: bytes, newlines_in_cells: bool) -> int:
    """Return how many cells a record has (raises DataError where it isn't one)."""
    text = record[:-2] if record.endswith(b"\r\n") else record.removesuffix(b"\n")
    if b'"' not in text and b"\r" not in text:
        return text.count(b",") + 1
    found = _GRAMMARS[newlines_in_cells].record.match(text)
    end = found.end() if found else 0
    if end < len(text):
        before, at = text[:end], text[end : end + 1]
        line, byte = number + before.count(b"\n"), end - before.rfind(b"\n")
        if at == b"\r":
            fault = "a carriage return without a line feed; expected lines that end in LF or CRLF"
        elif at == b'"' and before[-1:] in {b"", b","}:
            fault = "a quote that none closes; expected another one at the end of the cell"
            if not newlines_in_cells:
                fault += (
                    ", in the same line, or, if cells are to hold line breaks, --newlines-in-cells "
                    "(newlines_in_cells=True)"
                )
        elif before.endswith(b'"'):
            fault = "text after a closing quote; expected a comma or the line's end, or two quotes "
            fault += "for one within the cell"
        else:
            fault = "a quote in a cell without quotes around it; expected these, and two for one"
        raise DataError(f"{path}: line {line}, byte {byte}: {fault} (RFC 4180)")
    return _QUOTED.sub(b"", text).count(b",") + 1
