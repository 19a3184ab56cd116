"""Estimates files are whole or not there, and what can't be written is told before the work."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import pytest
from click import BadParameter

from hubbub.reporting import atomic_write, check_output_option


def write(path: Path, text: str) -> None:
    atomic_write(path, lambda file: file.writelines([text.encode()]))


def test_rendering_that_fails_leaves_the_old_file_as_it_was(tmp_path):
    path = tmp_path / "result.csv"
    write(path, "old")

    def fail(file: BinaryIO):
        file.write(b"ne")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        atomic_write(path, fail)
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.csv"]


def test_reader_never_sees_half_a_file(tmp_path):
    """Whoever opened the old result goes on reading the old one: the new is another file."""
    path = tmp_path / "result.csv"
    write(path, "old")
    with path.open(encoding="utf-8") as reader:
        write(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"


def test_mistyped_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder") as caught:
        check_output_option([str(tmp_path / "nosuchfolder" / "result.csv")])
    assert caught.value.filename == str(tmp_path / "nosuchfolder")
    with pytest.raises(FileNotFoundError):
        atomic_write(tmp_path / "nosuchfolder" / "result.csv", lambda file: file.writelines([]))
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
def test_names_that_say_nothing_are_refused(paths, reason):
    with pytest.raises(BadParameter) as caught:
        check_output_option(paths)
    assert reason in caught.value.message


def test_places_where_no_file_can_be_are_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(IsADirectoryError):
        check_output_option([str(tmp_path / "folder.csv")])
    with pytest.raises(NotADirectoryError):
        check_output_option([str(tmp_path / "file" / "result.csv")])


def test_folder_without_permission_is_refused_to_all_but_root(tmp_path):
    tmp_path.chmod(0o500)
    may = os.geteuid() == 0
    with nullcontext() if may else pytest.raises(PermissionError):
        check_output_option([str(tmp_path / "result.csv")])
