"""Result files are whole or not there, and what can't be written is told before the work."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import pytest

from hubbub.decoder.output.files import SUFFIXES, refuse_unwritable, utf8, write_rendered


def write(path: Path, text: str) -> None:
    write_rendered(str(path), {".csv": utf8(lambda: [text])})


def test_written_file_holds_just_the_text(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "result.csv"
    write_rendered(str(path), {".csv": utf8(lambda: ["a\r\n", "日本語\n"])})
    assert path.read_bytes() == "a\r\n日本語\n".encode()
    assert [each.name for each in path.parent.iterdir()] == ["result.csv"]


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"result\.txt': must end in \.csv"):
        write(tmp_path / "result.txt", "a")
    assert not list(tmp_path.iterdir())


def test_failed_write_leaves_no_file_behind(tmp_path: Path) -> None:
    """A folder of that name is in the way."""
    (tmp_path / "result.csv").mkdir()
    with pytest.raises(OSError, match=r"result\.csv"):
        write(tmp_path / "result.csv", "a")
    assert [path.name for path in tmp_path.iterdir()] == ["result.csv"]


def test_rendering_that_fails_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "result.csv"
    write(path, "old")

    def fail(file: BinaryIO) -> None:
        file.write(b"ne")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_rendered(str(path), {".csv": fail})
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.csv"]


def test_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Whoever opened the old result goes on reading the old one: the new is another file."""
    path = tmp_path / "result.csv"
    write(path, "old")
    with path.open(encoding="utf-8") as reader:
        write(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"


def test_every_form_is_accepted_in_folders_that_do_not_exist_yet(tmp_path: Path) -> None:
    refuse_unwritable(["-", *(str(tmp_path / "new" / f"result{suffix}") for suffix in SUFFIXES)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (["result.txt"], "'result.txt' must end in .csv, .json, .parquet or .html"),
        ([""], "'' must end in"),
        (["a.csv", "a.csv"], "'a.csv' is given twice"),
        (["a.csv", "./a.csv"], "'a.csv' is given twice"),
        (["-", "-"], "'-' is given twice"),
    ],
)
def test_names_that_say_nothing_are_refused(paths: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=r"must end|twice") as caught:
        refuse_unwritable(paths)
    assert reason in str(caught.value)


def test_places_where_no_file_can_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(IsADirectoryError):
        refuse_unwritable([str(tmp_path / "folder.csv")])
    with pytest.raises(NotADirectoryError):
        refuse_unwritable([str(tmp_path / "file" / "result.csv")])


def test_folder_without_permission_is_refused_to_all_but_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    may = os.geteuid() == 0
    with nullcontext() if may else pytest.raises(PermissionError):
        refuse_unwritable([str(tmp_path / "new" / "result.csv")])
