"""Options that belong together get as far as the first file; outputs come before the work."""

import pytest
from click.testing import CliRunner

from hubbub.decoder.cli import main

_STORED = ["homepage", "--metrics", "metrics.toml"]
_COUNTED = ["--params", "params.csv", "--counts", "counts.csv"]
_FILE = ["--params", "params.csv", "--reports", "reports.parquet"]
_LIST = ["--candidates", "names.txt"]
_MAP = ["--map", "map.csv"]


@pytest.mark.parametrize(
    "options",
    [
        [*_STORED, *_LIST],
        [*_STORED, *_MAP, "--since", "2026-11-01"],
        [*_STORED, "--reports", "reports.parquet", *_LIST],
        [*_FILE, *_LIST],
        [*_FILE, *_MAP],
        [*_COUNTED, *_MAP],
    ],
)
def test_right_combination_gets_as_far_as_the_first_file(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["decode", *options])
    assert result.exit_code == 1
    assert f"{options[2 if options[0] == 'homepage' else 1]}: " in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "strings", "--reports", "1e6", "--candidates", "1e5", "--epsilon-permanent", "4.4",
         "--epsilon-report", "1.1"),
        ("privacy", "{}/none.toml"),
    ],
)  # fmt: skip
def test_outputs_of_other_commands_are_checked_before_the_work(tmp_path, command):
    def complaint(*outputs: str) -> str:
        options = [option for output in outputs for option in ("--output", output)]
        arguments = [argument.format(tmp_path) for argument in command]
        done = CliRunner().invoke(main, [*arguments, *options])
        assert done.exit_code == 2
        assert not list(tmp_path.iterdir())
        return " ".join(done.output.split())

    assert "is given twice" in complaint(f"{tmp_path}/a.csv", f"{tmp_path}/./a.csv")
    assert "nosuchfolder: no such folder" in complaint(f"{tmp_path}/nosuchfolder/a.csv")
