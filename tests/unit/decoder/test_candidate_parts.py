"""Lists of candidates in parts: the same strings in the same order, however they are cut."""

import gzip
import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.decoder.candidates import parts as module
from hubbub.decoder.candidates.files import list_files, read_list, read_pieces
from hubbub.decoder.candidates.parts import Part, count_lines, cut, read_part
from hubbub.inference.errors import CandidateError
from hubbub.protocol.bloom import MAX_VALUE_BYTES

BOM = b"\xef\xbb\xbf"
_CONTENT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", BOM])).map(b"".join)


def strings_of(parts: list[Part]) -> list[bytes]:
    return [string for part in parts for piece in read_part(part) for string in piece.encoded]


def whole(path: Path) -> list[bytes]:
    return [string for piece in read_pieces(str(path)) for string in piece.encoded]


@given(_CONTENT, st.lists(st.integers(1, 40)))
def test_a_line_belongs_to_the_part_in_which_it_begins(content, cuts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "list.txt")
        path.write_bytes(content)
        bounds = sorted({0, len(content), *(each for each in cuts if each < len(content))})
        parts = [Part(str(path), *each) for each in pairwise(bounds)]
        assert strings_of(parts) == whole(path)


@given(_CONTENT, st.integers(1, 5))
def test_packed_lines_are_counted_and_cut(content, rows):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS_A_PART", rows)
        path = Path(folder, "list.txt.gz")
        path.write_bytes(gzip.compress(content))
        counted = count_lines(None, str(path))
        expected = whole(path)
        # A byte order mark alone is counted as a line that nobody finds.
        assert counted.lines == len(expected) or content == BOM
        parts = cut(str(path), counted)
        assert len(parts) == -(-counted.lines // rows)
        assert strings_of(parts) == expected


def test_row_groups_are_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ROWS_A_PART", 7)
    path = tmp_path / "list.parquet"
    strings = [f"string {i}" for i in range(23)]
    pq.write_table(pa.table({"string": strings}), path, row_group_size=3)
    parts = cut(str(path))
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert strings_of(parts) == [string.encode() for string in strings]


def test_a_line_that_is_no_string_is_named_by_its_number_in_the_file(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes(b"".join(b"%d\n" % i for i in range(1000)) + b"x" * 9 * MAX_VALUE_BYTES)
    part = Part(str(path), 1995, path.stat().st_size)
    with pytest.raises(CandidateError, match="line 1001: over "):
        list(read_part(part))
    first = next(iter(read_part(Part(str(path), 1995, 2010))))
    assert first.place(0) == f"candidates {path}: line {int(first.encoded[0]) + 1}"


def test_folders_and_patterns_are_their_files_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "_SUCCESS", ".crc"):
        (tmp_path / name).write_text(f"{name}\nshared\n")
    both = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert list_files(str(tmp_path)) == both
    assert list_files(str(tmp_path / "[ab].txt")) == both
    assert list_files(both[1]) == both[1:]
    listed = read_list(str(tmp_path))
    assert list(listed.strings) == ["a.txt", "shared", "b.txt"]
    assert listed.repeats == 1


def test_a_pattern_of_nothing_is_refused(tmp_path):
    with pytest.raises(CandidateError, match=r"candidates .*\*\.gz: no file; expected files"):
        list_files(str(tmp_path / "*.gz"))
