"""What can't be decoded is refused: the field, what was found, what was expected, nothing else."""

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from factories import make_metric, make_params, registry_toml
from hubbub.decoder.cli import main
from unit.decoder.stores import filled_store, plausible_records

TODAY = dt.date(2026, 11, 1)
SMALL = "8,2,2,0.25,0.75,0.5"


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with one of each metric_type of input."""

    folder: Path

    def put(self, name: str, text: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)


@pytest.fixture
def desk(tmp_path) -> Desk:
    """Lay out a store of 1,000 reports, its registry, candidates, and google/rappor's files."""
    desk = Desk(tmp_path)
    filled_store(tmp_path, plausible_records(), TODAY)
    desk.put("metrics.toml", registry_toml())
    desk.put("names.txt", "a\nb\n")
    desk.put("params.csv", f"k,h,m,p,q,f\n{SMALL}\n")
    desk.put("counts.csv", "1000" + ",500" * 8 + "\n" + "1000" + ",500" * 8 + "\n")
    desk.put("map.csv", "a,1,2,9,10\nb,3,4,11,12\n")
    return desk


def refusal(desk: Desk, *arguments: str) -> str:
    """Return the message, and check that it is all there is."""
    folder = os.fspath(desk.folder)
    given = [argument.replace("{}", folder) for argument in arguments]
    result = CliRunner().invoke(main, ["decode", *given])
    assert result.exit_code in {1, 2}, result.stderr
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.stderr.split())


STORED = ("homepage", "--metrics", "{}/metrics.toml", "--store", "sqlite:///{}/hubbub.db")
LISTED = ("--candidates", "{}/names.txt")
COUNTED = ("--params", "{}/params.csv", "--counts", "{}/counts.csv", "--map", "{}/map.csv")


def test_the_desk_itself_is_decodable(desk):
    quick = ("--method", "regression")  # likelihood takes eight times as long
    for options in ((*STORED, *LISTED, *quick), COUNTED, (*STORED, *LISTED, *quick, "--by", "day")):
        given = [each.replace("{}", os.fspath(desk.folder)) for each in options]
        result = CliRunner().invoke(main, ["decode", *given])
        assert result.exit_code == 0, result.stderr


def test_counts_of_few_reports_are_refused(desk):
    desk.put("counts.csv", ("10" + ",5" * 8 + "\n") * 2)
    message = refusal(desk, *COUNTED)
    for reason in ("20 reports", "1,000", "--min-reports"):
        assert reason in message


def test_parameters_without_information_are_refused(desk):
    text = registry_toml().replace("q = 0.75", "q = 0.25")
    desk.put("metrics.toml", text)
    message = refusal(desk, *STORED, *LISTED)
    assert "metrics.homepage" in message
    assert "0.25" in message


def test_reports_of_another_version_or_other_parameters_are_refused(desk):
    desk.put("metrics.toml", registry_toml(make_metric(version=2)))
    message = refusal(desk, *STORED, *LISTED)
    assert "no reports of homepage version 2" in message
    assert "versions in the store: [1]" in message
    desk.put("metrics.toml", registry_toml(make_metric(params=make_params(k=64))))
    message = refusal(desk, *STORED, *LISTED)
    assert (
        "metrics.homepage: version 1 is stored with another definition: k from 128 to 64" in message
    )


def test_reports_of_other_parameters_in_a_file_are_refused(desk):
    table = pa.table({"cohort": [0, 1], "bits": [b"\0\0", b"\0\0"]})
    parquet.write_table(table, desk.folder / "reports.parquet")
    given = ("--params", "{}/params.csv", "--reports", "{}/reports.parquet", *LISTED)
    message = refusal(desk, *given)
    assert "reports.parquet" in message
    assert "rows 1 to 2, column bits: " in message
    assert "expected fixed_size_binary[1]" in message


def test_unwritable_output_is_an_error_before_the_work(desk):
    """The folder in the way is told, and not the store that isn't there."""
    (desk.folder / "result.html").mkdir()
    missing = ("homepage", "--metrics", "{}/metrics.toml", "--store", "sqlite:///{}/none.db")
    message = refusal(desk, *missing, *LISTED, "--output", "{}/result.html")
    assert message.endswith("result.html: Is a directory")


def test_repeated_candidates_count_once_and_are_reported(desk):
    desk.put("names.txt", "a\nb\na\n")
    given = [each.replace("{}", os.fspath(desk.folder)) for each in (*STORED, *LISTED)]
    given += ["--method", "regression", "--output", "-"]
    result = CliRunner().invoke(main, ["decode", *given])
    assert result.exit_code == 0
    assert result.stderr == "note: 1 repeated candidates left out\n"
    assert [line.split(",")[0] for line in result.stdout.splitlines()] == ["string", "a", "b"]
