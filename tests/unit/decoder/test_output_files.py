"""Estimates files are whole or not there, and what can't be written is told before the work."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner

from factories import registry_toml
from hubbub.decoder.cli import main
from hubbub.reporting.command_line import atomic_write
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.writers import DECODED, validate_output_formats, write_results
from hubbub.reporting.strings import COLUMNS, strings_estimates
from unit.decoder.decodings import make_decoding
from unit.decoder.stores import filled_store, plausible_records


def write(path: Path, text: str) -> None:
    atomic_write(path, lambda file: file.writelines([text.encode()]))


def test_written_file_holds_just_the_text(tmp_path):
    path = tmp_path / "result.csv"
    write(path, "a\r\n日本語\n")
    assert path.read_bytes() == "a\r\n日本語\n".encode()
    assert [each.name for each in path.parent.iterdir()] == ["result.csv"]


def test_file_of_another_kind_is_refused(tmp_path):
    result = strings_estimates(make_decoding(["a"]))
    with pytest.raises(ValueError, match=r"result\.txt': must end in \.csv"):
        write_results(result, [str(tmp_path / "result.txt")])
    assert not list(tmp_path.iterdir())


def test_new_format_is_one_function_for_results_of_different_kinds(tmp_path, monkeypatch):
    def write_tabs(result: Estimates, file: BinaryIO):
        rows = [row for part in result.parts() for row in zip(*part.values(), strict=True)]
        lines = ["\t".join(map(str, row)) for row in (result.types, *rows)]
        file.write("\n".join(lines).encode())

    monkeypatch.setitem(DECODED, ".tsv", write_tabs)
    store = filled_store(tmp_path, plausible_records())
    (tmp_path / "metrics.toml").write_text(registry_toml(), encoding="utf-8")
    where = ["--metrics", str(tmp_path / "metrics.toml"), "--store", store, "--candidates", "-"]
    where += ["--method", "regression"]  # likelihood takes eight times as long
    for name, options in (("strings", []), ("days", ["--by", "day"])):
        output = ["--output", str(tmp_path / f"{name}.tsv")]
        done = CliRunner().invoke(
            main, ["decode", "homepage", *where, *options, *output], input="a\nb\n"
        )
        assert done.exit_code == 0, done.output
    header, *rows = (tmp_path / "strings.tsv").read_text(encoding="utf-8").split("\n")
    assert header.split("\t") == list(COLUMNS)
    assert [row.split("\t")[0] for row in rows] == ["a", "b"]
    assert (tmp_path / "days.tsv").read_text(encoding="utf-8").startswith("day\tkind\tstring\t")


def test_failed_write_leaves_no_file_behind(tmp_path):
    """A folder of that name is in the way."""
    (tmp_path / "result.csv").mkdir()
    with pytest.raises(OSError, match=r"result\.csv"):
        write(tmp_path / "result.csv", "a")
    assert [path.name for path in tmp_path.iterdir()] == ["result.csv"]


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


def test_errors_name_the_file_that_was_asked_for():
    """Nobody may make files there, root neither; the file beside it is our own affair."""
    path = Path("/proc/result.csv")
    with pytest.raises(OSError, match=r"result\.csv") as caught:
        write(path, "a")
    assert (caught.value.filename, caught.value.filename2) == (str(path), None)


def test_reader_never_sees_half_a_file(tmp_path):
    """Whoever opened the old result goes on reading the old one: the new is another file."""
    path = tmp_path / "result.csv"
    write(path, "old")
    with path.open(encoding="utf-8") as reader:
        write(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"


def test_every_form_is_accepted_in_a_folder(tmp_path):
    validate_output_formats(["-", *(str(tmp_path / f"result{suffix}") for suffix in DECODED)])
    assert not list(tmp_path.iterdir())


def test_mistyped_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder") as caught:
        validate_output_formats([str(tmp_path / "nosuchfolder" / "result.csv")])
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
    with pytest.raises(ValueError, match=r"must end|twice") as caught:
        validate_output_formats(paths)
    assert reason in str(caught.value)


def test_places_where_no_file_can_be_are_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(IsADirectoryError):
        validate_output_formats([str(tmp_path / "folder.csv")])
    with pytest.raises(NotADirectoryError):
        validate_output_formats([str(tmp_path / "file" / "result.csv")])


def test_folder_without_permission_is_refused_to_all_but_root(tmp_path):
    tmp_path.chmod(0o500)
    may = os.geteuid() == 0
    with nullcontext() if may else pytest.raises(PermissionError):
        validate_output_formats([str(tmp_path / "result.csv")])
