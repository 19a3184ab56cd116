"""`hubbub-release` as its users run it: a table, a ledger, queries, files."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

import programs
from hubbub.release.cli import main

ESTIMATORS = """
import os
import numpy as np

def half(block):
    print("not for anybody's eyes")
    return float(np.median(block["age"])) / 2

def crash(block):
    os._exit(3)
"""
Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return the working directory, with a table of 4,000 people."""
    n = 4_000
    table = {
        "user": [f"u{i % (n - 100)}" for i in range(n)],
        "age": [20 + i % 41 for i in range(n)],
        "city": [["Rome", "Rome", "Oslo", "Bern"][i % 4] for i in range(n)],
        "home": ["search.example"] * 2_500 + ["news.example"] * 1_499 + ["only.example"],
    }
    parquet.write_table(pa.table(table), tmp_path / "people.parquet")
    (tmp_path / "mine.py").write_text(ESTIMATORS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder) -> Run:
    """Return a function that runs the command in the folder, and expects it to succeed."""
    assert folder == Path.cwd()

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result

    return run


def init(run: Run, *options: str, epsilon: str = "1000", delta: str = "0.01") -> None:
    budget = ("--epsilon", epsilon, "--delta", delta, "--ledger", "l.db")
    declared = ("--user-column", "user", "--bounds", "age=0:120", "--bins", "city=Rome,Oslo,Bern")
    run("init", "people.parquet", *declared, *budget, *options)


@pytest.mark.parametrize(
    ("query", "delta", "subject", "value", "off"),
    [
        (["count"], "0", "The number of rows", 3_900, 1),
        (["count", "city"], "1e-6", "The number of rows with city", 3_900, 3),
        (["sum", "age"], "0", "The sum of age", 156_000, 2_000),
        (["mean", "age"], "0", "The mean of age", 40, 0.6),
        (["quantile", "age"], "0", "The median of age", 40, 1.6),
        (["quantile", "age", "--level", "3/4"], "0", "The quantile of 0.75 of age", 50, 1.6),
        (
            ["quantile", "age", "--method", "ptr", "--width", "3"],
            "1e-6",
            "The median of age",
            40,
            3,
        ),
        (
            ["aggregate", "--estimator", "mine:half", "--range", "0:60", "--blocks", "20"],
            "0",
            "The median of mine:half",
            20,
            3,
        ),
        (
            [
                "aggregate",
                "--estimator",
                "mine:crash",
                "--range",
                "0:60",
                "--blocks",
                "20",
                "--default",
                "7",
            ],
            "0",
            "The median of mine:crash",
            7,
            0.01,
        ),
    ],
)
def test_numbers_are_near_and_paid(run, query, delta, subject, value, off):
    """At epsilon 100 noise is next to nothing, and which rows of 100 users count moves little.

    P(alarm) < 1e-9: each is more than 20 scales or standard deviations off.
    """
    init(run)
    result = run(*query, "--ledger", "l.db", "--epsilon", "100", "--delta", delta)
    found = re.search(rf"{subject} is about ([\d,.]+?)[,.] ?(give or|\n)", result.output)
    assert found is not None, result.output
    assert abs(float(found[1].replace(",", "")) - value) <= off
    assert "anybody's eyes" not in result.output
    assert "epsilon 900" in run("ledger", "l.db").output


@pytest.mark.parametrize(
    ("query", "delta", "answer"),
    [
        (["histogram", "city"], "0", "Rows by city: 3 numbers, each give or take 0"),
        (["histogram", "home"], "1e-6", "Rows by home: 2 numbers, each give or take 0"),
        (["mode", "city"], "0", "The most common city: Rome."),
        (["mode", "home"], "1e-6", "The most common home: search.example."),
        (["topk", "city", "2", "--bins", "Rome,Paris,Oslo"], "0", "common of city: Rome, Oslo."),
    ],
)
def test_keys_are_those_that_many_have_and_paid(run, query, delta, answer):
    """The numbers lie a thousand scales apart."""
    init(run)
    options = () if query[0] == "topk" else ("--delta", delta)
    result = run(*query, "--ledger", "l.db", "--epsilon", "100", *options)
    assert answer in " ".join(result.output.split())
    assert "epsilon 900" in run("ledger", "l.db").output


def test_releases_are_written_in_every_form(run, folder):
    init(run)
    names = [f"r.{form}" for form in ("csv", "json", "parquet", "html", "svg")]
    outputs = [part for name in names for part in ("--output", name)]
    run("histogram", "city", "--ledger", "l.db", "--epsilon", "1", *outputs)
    header, *lines = (folder / "r.csv").read_text().splitlines()
    assert header == "key,value,radius,epsilon,delta,mechanism"
    assert [line.split(",")[0] for line in lines] == ["Rome", "Oslo", "Bern"]
    table = parquet.read_table(folder / "r.parquet")
    assert table.column("key").to_pylist() == ["Rome", "Oslo", "Bern"]
    found = json.loads((folder / "r.json").read_text())
    assert [row["value"] for row in found["rows"]] == table.column("value").to_pylist()
    assert "Rome" in (folder / "r.html").read_text()
    assert "Rome" in (folder / "r.svg").read_text()
    assert run("count", "--ledger", "l.db", "--epsilon", "1", "--output", "-").output.startswith(
        "key,value,radius,epsilon,delta,mechanism\n"
    )


def test_unwritten_releases_are_not_charged(run):
    init(run)
    for place, code in (("nowhere/r.csv", 1), ("r.txt", 2)):
        run("count", "--ledger", "l.db", "--epsilon", "1", "--output", place, code=code)
    assert "spent        epsilon 0 " in run("ledger", "l.db").output


def test_paid_releases_are_shown_even_if_a_file_cannot_be_written(run):
    init(run)
    result = run("count", "--ledger", "l.db", "--epsilon", "1", "--output", "/proc/r.csv", code=1)
    assert "The number of rows is about" in result.stdout
    assert "/proc/r.csv" in result.stderr


def test_line_breaks_in_cells_are_refused_in_csv_and_not_printed(run):
    homes = {"user": [f"u{i}" for i in range(50)], "home": ["Piazza\nRoma"] * 50}
    parquet.write_table(pa.table(homes), "homes.parquet")
    lines = [f'{user},"{home}"\n' for user, home in zip(*homes.values(), strict=True)]
    Path("homes.csv").write_text("user,home\n" + "".join(lines), encoding="utf-8")
    asked = ("--user-column", "user", "--column", "home", "--epsilon", "100", "--delta", "1e-6")
    refused = run("candidates", "homes.csv", *asked, code=1)
    assert "homes.csv: line 2: a line break in a cell" in refused.output
    assert "1 key with line breaks" in run("candidates", "homes.parquet", *asked).stderr


def test_a_ledger_shows_what_was_spent_on_what(run):
    init(run)
    run("histogram", "home", "--ledger", "l.db", "--epsilon", "1/2", "--delta", "1e-6")
    run("ledger", "l.db", "--output", "l.json")
    found = json.loads(Path("l.json").read_text())
    assert found["summary"]["spent_epsilon"] == "1/2"
    assert found["rows"][0]["query"] == "histogram: rows by home"
    assert len(found["rows"][0]["digest"]) == 64


def test_a_copy_of_a_ledger_is_refused_until_it_is_adopted(run):
    init(run)
    run("count", "--ledger", "l.db", "--epsilon", "1")
    shutil.copy("l.db", "copy.db")
    refused = run("count", "--ledger", "copy.db", "--epsilon", "1", code=1)
    assert "Error: copy.db: file = inode" in refused.output
    assert "`hubbub-release ledger copy.db --adopt`" in refused.output
    assert "adopted as a copy  20" in run("ledger", "copy.db", "--adopt").output
    run("count", "--ledger", "copy.db", "--epsilon", "1")
    run("ledger", "copy.db", "--output", "l.json")
    assert len(json.loads(Path("l.json").read_text())["summary"]["adopted"]) == 1


def test_candidates_are_a_sorted_list(run):
    budget = ("--column", "home", "--epsilon", "20", "--delta", "1e-6")
    listed = run("candidates", "people.parquet", "--user-column", "user", *budget)
    assert listed.output == "news.example\nsearch.example\n"
    assert Path("people.parquet.ledger.db").exists()
    spent = run("candidates", "people.parquet", *budget, code=1)
    assert "costs epsilon 20 and delta 1e-06; epsilon 20 and delta 1e-06 of" in spent.output


ASK = ["--ledger", "l.db", "--epsilon", "1"]
MINE = ["aggregate", "--estimator"]


def test_candidates_that_are_refused_leave_no_ledger(run):
    budget = ("--user-column", "user", "--epsilon", "1", "--delta", "1e-6")
    refused = run("candidates", "people.parquet", "--column", "none", *budget, code=1)
    assert "no column is named 'none'" in refused.output
    assert [path.name for path in Path().glob("*.db*")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["count", "--ledger", "l.db", "--epsilon", "1e-400"], 1, "must be from 1e-06 to 1e+06"),
        (["mean", "city", *ASK], 1, "city: has no bounds"),
        (["histogram", "home", *ASK], 1, "delta = 0: must be above 0"),
        (["quantile", "age", *ASK, "--method", "ptr"], 2, "--width must be given"),
        ([*MINE, "mine:no", "--range", "0:1", *ASK], 1, "there is no no in mine"),
    ],
)
def test_mistakes_get_one_line_and_cost_nothing(run, arguments, code, reason):
    init(run)
    result = run(*arguments, code=code)
    assert reason in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert "spent        epsilon 0 " in run("ledger", "l.db").output


def test_the_program_writes_results_to_stdout_and_errors_to_stderr(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return programs.run("hubbub.release", *arguments, folder=folder)

    made = call("init", "people.parquet", "--user-column", "user", "--epsilon", "1")
    assert (made.returncode, made.stderr) == (0, "")
    released = call("count", "--ledger", "people.parquet.ledger.db", "--epsilon", "1")
    assert released.returncode == 0
    assert "The number of rows is about " in released.stdout
    assert released.stderr == ""
    refused = call("count", "--ledger", "people.parquet.ledger.db", "--epsilon", "1")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.startswith("Error: count: the number of rows: costs epsilon 1; ")
