"""The simulations that people run from the shell, at small sizes."""

import json
from pathlib import Path
from typing import Any

import pytest

import programs

SECONDS = 240


def result_of(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


@pytest.mark.long
def test_suite_measures_one_case_and_writes_its_table(tmp_path):
    output = tmp_path / "suite.json"
    done = programs.run(
        "evaluation.suite",
        "--quick",
        "--case",
        "*8x2x128-loose-x0.2",
        "--seeds",
        "1",
        "--output",
        str(output),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "zipf1-100-1M-8x2x128-loose-x0.2" in done.stdout
    table = json.loads(output.read_text(encoding="utf-8"))
    (cells,) = table["rows"]
    row = dict(zip(table["headings"], cells, strict=True))
    assert row["runs"] == "1"
    assert float(row["found"]) > 30


@pytest.mark.long
@pytest.mark.timeout(SECONDS)
def test_paper_reproduces_the_headline_numbers(tmp_path):
    """Simulated lines may be off by four standard errors of the one run that is made."""
    output = tmp_path / "paper.json"
    done = programs.run(
        "evaluation.paper", "--table", "--runs", "1", "--output", str(output), timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert {int(line[0]) for line in lines} == set(range(1, 13))
    assert {line[-1] for line in lines} == {"yes"}
