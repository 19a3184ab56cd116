"""Candidate lists in files and pipes: strings as they stand there, in a form that can fit."""

import gzip
import io
import os
import sys
import tempfile
import threading
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.decoder import candidates as candidate_files
from hubbub.decoder.candidates import read_list
from hubbub.inference import CandidateError, bit_positions
from hubbub.protocol import MAX_VALUE_BYTES, canonical_bytes, hash_words
from stored_metrics import METRICS, NAMES, WORDS, Stored

E_ACUTE = "\N{LATIN SMALL LETTER E WITH ACUTE}"
E_ACUTE_DECOMPOSED = unicodedata.normalize("NFD", E_ACUTE)
_WEIRD = ["007", "NA", "null", " x ", "\t", "1e5", "a,b", '"c"', "'", "#d", "\0", "", "日本",
          "a\rb\x0bc\x0cd\x85\u2028", "\U0001f984", "\ufeff", E_ACUTE,
          "x" * MAX_VALUE_BYTES]  # fmt: skip
_ANY = st.text(st.characters(exclude_categories=["Cs"]))


def write(folder: Path, content: bytes, name: str = "candidates.txt") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def strings_of(folder: Path, content: bytes, name: str = "candidates.txt") -> list[str]:
    return list(read_list(write(folder, content, name)).strings)


def write_parquet(folder: Path, columns: Any) -> str:
    path = folder / "candidates.parquet"
    pq.write_table(pa.table(columns) if isinstance(columns, dict) else columns, path)
    return str(path)


@pytest.mark.parametrize(
    ("content", "strings"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\r\r\nb\r\r\n", ["a\r", "b\r"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\n\n", ["a", ""]),
        (b"\n", [""]),
        (b"\r\n", [""]),
        ("\n".join(_WEIRD).encode(), _WEIRD),
    ],
    ids=["lines", "no final newline", "byte order mark", "CRLF", "CRLF, no final newline",
         "final carriage return", "two carriage returns", "blank line", "blank last line",
         "only a blank line", "only a blank CRLF line", "weird"],
)  # fmt: skip
@pytest.mark.parametrize("piece", [3, 100, 2**18], ids=["tiny", "small", "as usual"])
def test_lines_are_taken_as_they_are(tmp_path, monkeypatch, content, strings, piece):
    monkeypatch.setattr(candidate_files, "_PIECE_BYTES", piece)
    listed = read_list(write(tmp_path, content))
    assert list(listed.strings) == strings
    assert listed.repeats == 0


def normal(string: str) -> str:
    return unicodedata.normalize("NFC", string)


@given(st.lists(_ANY.filter(lambda s: "\n" not in s and not s.endswith("\r")), min_size=1))
def test_any_strings_come_back_with_their_hashes(strings):
    with tempfile.TemporaryDirectory() as folder:
        # At the file's start it would be a byte order mark.
        listed = read_list(write(Path(folder), "\n".join(["first", *strings, ""]).encode()))
    expected = list(dict.fromkeys(map(normal, ["first", *strings])))
    assert list(listed.strings) == expected
    assert listed.repeats == 1 + len(strings) - len(expected)
    words = [hash_words(canonical_bytes(s)) for s in expected]
    assert [tuple(row) for row in listed.words.tolist()] == words


def test_list_hashes_to_the_clients_positions(tmp_path):
    params = make_params()
    listed = read_list(write(tmp_path, "\n".join(_WEIRD).encode()))
    np.testing.assert_array_equal(
        listed.hashed(params).positions(slice(None)), bit_positions(_WEIRD, params)
    )


@given(st.lists(st.sampled_from(["a", "A", "a ", "", E_ACUTE, E_ACUTE_DECOMPOSED]), min_size=1))
def test_first_of_equal_strings_is_kept_and_spellings_of_one_text_are_equal(strings):
    with tempfile.TemporaryDirectory() as folder:
        listed = read_list(write(Path(folder), "".join(f"{s}\n" for s in strings).encode()))
    expected = list(dict.fromkeys(map(normal, strings)))
    assert list(listed.strings) == expected
    assert listed.repeats == len(strings) - len(expected)


def test_repeats_are_dropped_while_a_long_list_is_read(tmp_path, monkeypatch):
    """1,000 strings, each 20 times, where the table is put in order at 100 rows, 200, ..."""
    monkeypatch.setattr(candidate_files, "_MOST_REPEATED_ROWS", 50)
    monkeypatch.setattr(candidate_files, "_PIECE_BYTES", 256)
    lines = [f"string {i * i % 1000}" for i in range(20_000)]
    listed = read_list(write(tmp_path, "\n".join(lines).encode()))
    assert list(listed.strings) == list(dict.fromkeys(lines))
    assert listed.repeats == len(lines) - len(set(lines))


def test_packed_file_is_unpacked(tmp_path):
    packed = gzip.compress("a\n日本\n".encode())
    assert strings_of(tmp_path, packed, "names.txt.gz") == ["a", "日本"]
    assert strings_of(tmp_path, packed + gzip.compress(b"b\n"), "more.gz") == ["a", "日本", "b"]


def test_pipe_is_read_to_its_end(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    lines = "".join(f"string {i}\n" for i in range(50_000)).encode()
    writer = threading.Thread(target=fifo.write_bytes, args=(lines,))
    writer.start()
    listed = read_list(str(fifo))
    writer.join()
    assert len(listed) == 50_000
    assert listed.strings[-1] == "string 49999"


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert list(read_list("-").strings) == ["a", "b"]


def test_text_column_of_a_parquet_file_is_read(tmp_path):
    strings = [*_WEIRD, "two\nlines", "CR\r", "\r\n"]
    columns = {"n": list(range(len(strings))), "name": strings}
    assert list(read_list(write_parquet(tmp_path, columns)).strings) == strings


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_all_kinds_of_text_columns_are_read(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(candidate_files, "_PIECE_ROWS", 7)
    strings = [f"string {i}" for i in range(30)]
    column = pa.array(strings).cast(kind)
    assert list(read_list(write_parquet(tmp_path, {"s": column})).strings) == strings


@pytest.mark.parametrize("names", [("string", "x"), ("x", "string"), ("string", "candidate")])
def test_named_column_goes_before_others(tmp_path, names):
    columns = {name: ["right" if name == "string" else "wrong"] for name in names}
    assert list(read_list(write_parquet(tmp_path, columns)).strings) == ["right"]
    assert list(
        read_list(write_parquet(tmp_path, {"a": ["wrong"], "candidate": ["right"]})).strings
    ) == ["right"]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"a": ["x"], "b": ["y"]},
            r"columns a \(string\), b \(string\); expected one named string",
        ),
        ({"n": [1]}, r"columns n \(int64\); expected one named string or candidate"),
        ({"string": [1], "a": ["x"]}, "column string: int64; expected text"),
        ({"string": pa.array([], pa.string())}, "empty; expected one string per row"),
        ({"string": ["a", "b", None]}, "row 3, column string: is null; expected a string"),
        (pa.table([["a"], ["b"]], names=["string", "string"]), "columns string .*; expected one"),
        ({"string": ["a", "x" * 65_537]}, "row 2: 65537 bytes; expected at most 65536"),
    ],
)
def test_other_parquet_files_are_refused(tmp_path, columns, problem):
    path = write_parquet(tmp_path, columns)
    with pytest.raises(CandidateError, match=f"^candidates {path}: {problem}"):
        read_list(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty; expected one string per line"),
        (b"\xef\xbb\xbf", "empty; expected one string per line"),
        (b"a\ncaf\xe9\nb\n", "line 2: byte 4 is 0xe9; expected UTF-8"),
        (b"a\nb\n\xed\xa0\x80", "line 3: byte 1 is 0xed; expected UTF-8"),
        (b"a\n" * 200_000 + b"\xff", "line 200001: byte 1 is 0xff; expected UTF-8"),
        (b"a\n" + b"x" * 65_537 + b"\nb", "line 2: 65537 bytes; expected at most 65536 bytes"),
        (b"a\n" + b"x" * 600_000, "line 2: over 524288 bytes; expected at most 65536 bytes"),
    ],
    ids=["nothing", "byte order mark", "Latin-1", "surrogate", "far down", "long", "very long"],
)
def test_other_text_is_refused_by_its_line(tmp_path, content, problem):
    path = write(tmp_path, content)
    with pytest.raises(CandidateError, match=f"^candidates {path}: {problem}"):
        read_list(path)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("cut.gz", gzip.compress(b"abcdefg\n" * 9, mtime=0)[:-9], "can't be read"),
        ("text.gz", b"a\nb\n", r"can't be read: Not a gzipped file \(b'a\\n'\); expected gzip"),
        (
            "bad.gz",
            gzip.compress(b"a\n", mtime=0)[:12] + b"\xff" * 20,
            "can't be read: .*; expected gzip",
        ),
        ("text.parquet", b"a\nb\n", "can't be read: .*; expected a Parquet file"),
    ],
)
def test_files_that_are_not_what_they_are_called_are_refused(tmp_path, name, content, problem):
    path = write(tmp_path, content, name)
    with pytest.raises(CandidateError, match=f"^candidates {path}: {problem}"):
        read_list(path)


def test_cut_file_is_refused_with_the_lines_that_were_read(tmp_path):
    lines = b"".join(b"%d\n" % (i * 7919 % 1_000_003) for i in range(200_000))
    path = write(tmp_path, gzip.compress(lines, 1)[:-1000], "cut.gz")
    with pytest.raises(CandidateError, match=r"can't be read after line \d{5,}: .*; expected gzip"):
        read_list(path)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return Stored(tmp_path_factory.mktemp("words"), WORDS, "word 3")


FORMS = {
    "blanks": ("{} ", "begin or end with a blank", '"word 0 "'),
    "tabs": ("\t{}", "have a comma, a semicolon or a tab", r'"\\tword 0"'),
    "quotes": ('"{}"', "are in quotes", '"word 0"'),
    "columns": ("{},1", "have a comma, a semicolon or a tab", '"domain,rank"'),
    "counts": ("  12 {}", "begin or end with a blank", '"  12 word 0"'),
}


@pytest.mark.parametrize("only", [False, True], ids=["whole list", "screened"])
@pytest.mark.parametrize("form", FORMS)
def test_a_list_in_another_form_is_reported_with_an_example(words, tmp_path, form, only):
    how, text, example = FORMS[form]
    header = ["domain,rank"] if form == "columns" else []
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join([*header, *map(how.format, NAMES)]) + "\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=f"candidates: .*{text}, such as {example}, and none"):
        result = words.decode(candidates=listed, method="regression", detected_only=only)
    assert not any(result["detected"])


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_which_something_fits_is_not(words, form):
    """Blanks and commas may be part of values, and then are found."""
    how = FORMS[form][0]
    result = words.decode(candidates=[*map(how.format, NAMES[:8]), *NAMES], method="regression")
    assert list(result["string"][result["detected"].index(True) :][:1]) == ["word 3"]
    assert "candidates_form" not in {each.code for each in result.findings}


def test_lists_of_a_joint_metric_are_looked_at_too(tmp_path):
    metric, value, _ = METRICS["hashed joint"]
    stored = Stored(tmp_path, metric, value)
    with pytest.warns(UserWarning, match=r"candidates: 2 of the first 2 begin or end"):
        stored.decode(candidates={"site": ["a.example ", "b.example "]})
