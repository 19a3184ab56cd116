"""Kept hashes are the same as new ones, and never trusted if anything is wrong with them."""

import gzip
import io
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from factories import make_params
from hubbub.decoder.candidates import cache as candidate_cache
from hubbub.decoder.candidates.cache import read_candidates
from hubbub.decoder.candidates.files import CandidateList, read_list
from hubbub.decoder.candidates.lists import list_candidates
from hubbub.inference.errors import CandidateError

_TEXT = "a\n007\n\nb\r\na\n日本\ne\u0301\né\n"
_STRINGS = ["a", "007", "", "b", "日本", "é"]


@pytest.fixture
def names(tmp_path) -> Path:
    path = tmp_path / "names.txt"
    path.write_bytes(_TEXT.encode())
    return path


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache" / "of names"


def entry_of(cache: Path) -> Path:
    (entry,) = cache.iterdir()
    return entry


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sure that what follows comes from the cache."""

    def read_nothing(path: str) -> CandidateList:
        raise AssertionError(path)

    monkeypatch.setattr(candidate_cache, "read_list", read_nothing)


def assert_same(listed: CandidateList, expected: CandidateList) -> None:
    assert list(listed.strings) == list(expected.strings)
    np.testing.assert_array_equal(listed.words, expected.words)
    assert listed.repeats == expected.repeats


def test_second_job_gets_the_same_without_reading(names, cache, monkeypatch):
    first = read_candidates(str(names), cache)
    assert list(first.strings) == _STRINGS
    assert (first.repeats, first.notes) == (2, ())
    forbid_reading(monkeypatch)
    second = read_candidates(str(names), cache)
    assert_same(second, first)
    assert second.notes == ()


def test_kept_hashes_serve_any_parameters(names, cache, monkeypatch):
    read_candidates(str(names), cache)
    expected = [read_candidates(str(names)).hashed(make_params(k=k)) for k in (8, 128)]
    forbid_reading(monkeypatch)
    for own in expected:
        listed, notes = list_candidates(str(names), None, own.params, cache)
        np.testing.assert_array_equal(listed.positions(slice(None)), own.positions(slice(None)))
        assert notes == ("2 repeated candidates left out",)


def test_entry_follows_the_content_not_the_name(names, cache, monkeypatch):
    read_candidates(str(names), cache)
    names.rename(names.with_name("moved.txt"))
    names.write_bytes(b"other\n")
    assert list(read_candidates(str(names), cache).strings) == ["other"]
    assert len(list(cache.iterdir())) == 2
    forbid_reading(monkeypatch)
    assert list(read_candidates(str(names.with_name("moved.txt")), cache).strings) == _STRINGS


def test_one_content_under_names_that_are_read_otherwise_has_two_entries(tmp_path, cache):
    packed = tmp_path / "names.txt.gz"
    packed.write_bytes(gzip.compress(b"a\nb\n"))
    assert list(read_candidates(str(packed), cache).strings) == ["a", "b"]
    plain = tmp_path / "names.txt"
    plain.write_bytes(packed.read_bytes())
    with pytest.raises(CandidateError, match="expected UTF-8"):
        read_candidates(str(plain), cache)


def test_parquet_files_are_kept_too(tmp_path, cache, monkeypatch):
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"string": _STRINGS}), path)
    read_candidates(str(path), cache)
    forbid_reading(monkeypatch)
    assert list(read_candidates(str(path), cache).strings) == _STRINGS


def test_single_empty_string_is_kept(tmp_path, cache, monkeypatch):
    path = tmp_path / "names.txt"
    path.write_bytes(b"\n")
    read_candidates(str(path), cache)
    forbid_reading(monkeypatch)
    assert list(read_candidates(str(path), cache).strings) == [""]


def test_cache_is_for_its_owners_eyes(names, cache):
    read_candidates(str(names), cache)
    assert cache.stat().st_mode & 0o077 == 0
    assert [path for path in cache.rglob("*") if path.stat().st_mode & 0o077] == []
    assert sorted(path.name for path in entry_of(cache).iterdir()) == [
        "blob.npy", "description.json", "offsets.npy", "words.npy"
    ]  # fmt: skip


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def describe(entry: Path, **changes: object) -> None:
    path = entry / "description.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda entry: flip_a_bit(entry / "blob.npy"), "blob.npy was damaged"),
        (lambda entry: flip_a_bit(entry / "offsets.npy"), "offsets.npy was damaged"),
        (lambda entry: flip_a_bit(entry / "words.npy"), "words.npy was damaged"),
        (lambda entry: os.truncate(entry / "blob.npy", 130), "blob.npy was damaged"),
        (lambda entry: (entry / "words.npy").unlink(), "No such file"),
        (lambda entry: (entry / "description.json").write_text("{"), "Expecting"),
        (lambda entry: (entry / "description.json").write_text("[]"), "its format isn't"),
        (lambda entry: describe(entry, format="hubbub hashed candidates 0"), "its format isn't"),
        (lambda entry: describe(entry, source="0" * 64), "it belongs to another list"),
        (lambda entry: describe(entry, repeats="1"), "it belongs to another list"),
        (lambda entry: entry.chmod(0o750), "isn't private to its user"),
        (lambda entry: (entry / "words.npy").chmod(0o604), "words.npy isn't private to its user"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anything_else_is_made_anew_with_a_note(names, cache, damage, why):
    expected = read_candidates(str(names), cache)
    entry = entry_of(cache)
    damage(entry)
    again = read_candidates(str(names), cache)
    assert_same(again, expected)
    (note,) = again.notes
    assert note.startswith(f"candidate cache {entry}: ")
    assert why in note
    assert note.endswith("; made anew")
    assert read_candidates(str(names), cache).notes == ()


def test_link_in_place_of_an_array_is_not_followed(names, cache):
    read_candidates(str(names), cache)
    words = entry_of(cache) / "words.npy"
    shutil.move(words, cache.parent / "elsewhere.npy")
    words.symlink_to(cache.parent / "elsewhere.npy")
    assert "isn't private" in read_candidates(str(names), cache).notes[0]


def test_where_nothing_can_be_kept_the_list_is_read_with_a_note(names, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    listed = read_candidates(str(names), in_the_way)
    assert list(listed.strings) == _STRINGS
    assert listed.notes == (f"candidate cache {in_the_way}: File exists; nothing is kept",)


def test_foreign_file_in_place_of_an_entry_stays(names, cache):
    read_candidates(str(names), cache)
    entry = entry_of(cache)
    shutil.rmtree(entry)
    entry.write_bytes(b"somebody's")
    listed = read_candidates(str(names), cache)
    assert list(listed.strings) == _STRINGS
    assert [note.rpartition("; ")[2] for note in listed.notes] == ["made anew", "nothing is kept"]
    assert entry.read_bytes() == b"somebody's"


def test_list_that_changes_while_it_is_read_is_not_kept(names, cache, monkeypatch):
    def read_and_change(path: str) -> CandidateList:
        listed = read_list(path)
        names.write_bytes(b"new\n")
        return listed

    monkeypatch.setattr(candidate_cache, "read_list", read_and_change)
    assert list(read_candidates(str(names), cache).strings) == _STRINGS
    assert not cache.exists()


def test_jobs_at_the_same_time_keep_one_entry(names, cache):
    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(lambda _: read_candidates(str(names), cache), range(8)))
    for listed in lists:
        assert_same(listed, lists[0])
        assert listed.notes == ()
    assert len(entry_of(cache).name) == 64  # and nothing half-made beside it


def test_pipes_and_missing_files_leave_the_cache_alone(tmp_path, cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("-").write_bytes(b"a file of this name\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from the pipe\n")))
    assert list(read_candidates("-", cache).strings) == ["from the pipe"]
    with pytest.raises(CandidateError, match="can't be read"):
        read_candidates(str(tmp_path / "nowhere.txt"), cache)
    assert not cache.exists()
