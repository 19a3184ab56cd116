"""CSV files: what RFC 4180 allows is read as it is written, and all else is refused by its line."""

import csv
import gzip
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hubbub.release import DataError
from hubbub.release.tables import read_csv


def rows_of(content: bytes) -> list[list[str]]:
    """Return the cells of a file, the names of its columns first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(content)
        names = read_csv(path, None).column_names
        table = read_csv(path, names)
        columns = [column.to_pylist() for column in table.columns]
        return [names, *(list(row) for row in zip(*columns, strict=True))]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"user,city\na,Rome\n", [["a", "Rome"]]),
        (b"user,city\r\na,Rome\r\nb,Oslo", [["a", "Rome"], ["b", "Oslo"]]),
        (b'\xef\xbb\xbf"user","city"\na,"Rome, ""Lazio"""\n', [["a", 'Rome, "Lazio"']]),
        (b'user,city\na,""\n,\n', [["a", ""], ["", ""]]),
        (b"user,city\na, Rome \n", [["a", " Rome "]]),
        (b"user,city", []),
    ],
)
def test_cells_are_as_they_were_written(content, rows):
    assert rows_of(content) == [["user", "city"], *rows]


def test_a_quote_within_a_cell_is_a_character():
    assert rows_of(b'user,city\nx,a"b\ny, "c"\n') == [["user", "city"], ["x", 'a"b'], ["y", ' "c"']]


AFTER = "text after a closing quote; expected a comma or the line's end"
RETURN = "a carriage return without a line feed; expected lines that end in LF or CRLF"
BREAK = "a line break in a cell"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'user,city\na,Rome\nx,"a\nb,Oslo\n', "line 3: a quote that none closes"),
        (b'user,city\nx,"a\ny,b"\n', f"line 2: {BREAK}"),
        (b'user,city\nx,"a\ry"\n', f"line 2: {BREAK}"),
        (b'user,city\nx,"a""\n', "line 2: a quote that none closes"),
        (b'user,city\nx,"a"b\n', f"line 2: {AFTER}"),
        (b"user,city\nx,a\ry,b\n", f"line 2: {RETURN}"),
        (b"user,city\rx,a\r", f"line 1: {RETURN}"),
        (b"user,city\na\n", "line 2: cells = 1: must be 2, as in the first line"),
        (b'user,city\na,"b,c",d\n', "line 2: cells = 3: must be 2, as in the first line"),
        (b"user,city\na,%b\n" % bytes(200_000), "line 2: a cell of more than 131,072 characters"),
        (b"", "it is empty"),
    ],
)
def test_lines_that_break_the_standard_are_refused_by_number(content, reason):
    with pytest.raises(DataError, match=rf"t\.csv: .*{reason}"):
        rows_of(content)


CELL = st.text(st.sampled_from('ab ,";\té日\u2028\x85'), max_size=6)
TABLE = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=6)
)


@given(TABLE, st.sampled_from(["\n", "\r\n"]))
def test_files_of_other_writers_are_read(table, end):
    text, table = io.StringIO(), [[*"abc"[: len(table[0])]], *table]
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(table)
    assert rows_of(text.getvalue().encode()) == table


@given(st.text(st.sampled_from('ab,"\r\n'), max_size=30))
def test_reading_follows_the_standard(text):
    """And there are as many rows as lines, whatever they hold."""
    content = "user,city\n" + text
    try:
        found = rows_of(content.encode())
    except DataError:
        return
    lines = csv.reader(io.StringIO(content, newline=""), strict=True)
    assert found == [row or ["", ""] for row in lines]
    assert len(found) == len(content.removesuffix("\n").split("\n"))


def test_packed_files_are_whole_or_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"user,city\na,Rome\n") + gzip.compress(b"b,Oslo\n"))
    assert read_csv(path, ["user"]).column("user").to_pylist() == ["a", "b"]
    for content in (path.read_bytes()[:-9], path.read_bytes() + b"x", b"user,city\n"):
        path.write_bytes(content)
        with pytest.raises((OSError, EOFError)):
            read_csv(path, ["user"])
