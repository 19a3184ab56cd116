"""`hubbub-decoder plan` on the command line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hubbub.protocol.registry import Registry

from hubbub.decoder.cli.group import main
from hubbub.protocol.registry import Registry

EPSILONS = ("--epsilon-permanent", "4.4", "--epsilon-report", "1.1")
ASKED = ("--reports", "1e6", "--candidates", "1e5", *EPSILONS)


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def planned_metric(stdout: str) -> str:
    """Return the registry that the printed entry makes."""
    return 'application = "com.example.test"\n' + stdout[stdout.index("[metrics.") :]


def test_plan_prints_an_entry_that_a_registry_takes_and_that_keeps_the_budget() -> None:
    result = plan(*ASKED, "--name", "homepage")
    assert result.exit_code == 0, result.output
    metric = Registry.parse(planned_metric(result.stdout))["homepage"]
    assert metric.epsilon_permanent <= 4.4
    assert metric.epsilon_report <= 1.1
    for word in ("best", "simple numbers", "the paper's default", "optimal unary encoding"):
        assert word in result.stdout


@pytest.mark.parametrize(("permanent", "report"), [("inf", "1"), ("2", "2")])
def test_one_time_plans_are_marked_as_such(permanent: str, report: str) -> None:
    result = plan("--reports", "1e6", "--candidates", "100", "--epsilon-permanent", permanent,
                  "--epsilon-report", report)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert Registry.parse(planned_metric(result.stdout))["example"].one_time


def test_share_alone_asks_for_the_number_of_reports() -> None:
    result = plan("--share", "0.01", "--candidates", "1e4", *EPSILONS)
    assert result.exit_code == 0, result.output
    assert "reports for 1.000%" in result.stdout


def test_share_and_reports_tell_the_power() -> None:
    result = plan(*ASKED, "--share", "0.008")
    assert "One held by 0.800% is found with probability 0." in result.stdout


def test_results_are_written_as_csv_and_json(tmp_path: Path) -> None:
    outputs = ("--output", str(tmp_path / "plan.csv"), "--output", str(tmp_path / "plan.json"))
    assert plan(*ASKED, *outputs).exit_code == 0
    document = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    with (tmp_path / "plan.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [row["name"] for row in document["rows"]]
    assert float(rows[0]["detectable_share"]) == pytest.approx(
        document["rows"][0]["detectable_share"]
    )
    assert document["question"]["candidates"] == 100_000
    assert len(document["by_reports"]) == len(document["by_epsilon_report"])


def test_plots_are_drawn(tmp_path: Path) -> None:
    for suffix, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        path = tmp_path / f"plan.{suffix}"
        assert plan(*ASKED, "--max-bits", "64", "--output", str(path)).exit_code == 0
        assert path.read_bytes().startswith(start)


def test_plot_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    result = plan(*ASKED, "--output", str(tmp_path / "plan.png"))
    assert result.exit_code == 1
    assert "needs matplotlib: pip install 'hubbub[simulations]'" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--reports", "-5"), "Invalid value for '--reports': -5 must be above 0"),
        (("--reports", "many"), "'many' is not a number"),
        (("--reports", "nan"), "nan must be above 0"),
        (("--reports", "50"), "reports = 50: too few to show any share within the budget"),
        (("--share", "1"), "Invalid value for '--share': 1 must be above 0 and below 1"),
        (("--candidates", "0.1"), "candidates = 0.1"),
        (("--power", "0.4"), "0.4 must be above 0.5 and below 1"),
        (("--epsilon-report", "9"), "epsilon report = 9: must be at most epsilon permanent = 4.4"),
        (("--epsilon-report", "1e-9"), "too small for any parameters"),
        (("--epsilon-report", "inf"), "inf must be above 0"),
        (("--max-bits", "4"), "4 is not in the range 8<=x<=1024"),
        (("--name", "No Name"), "--name: the name must be"),
        (("--output", "plan.txt"), "'plan.txt' must end in .png, .svg, .json or .csv"),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, ...], reason: str) -> None:
    result = plan(*ASKED, *arguments)
    assert result.exit_code != 0
    assert reason in result.stderr
    assert result.stdout == ""


def test_neither_reports_nor_share_is_refused() -> None:
    result = plan("--candidates", "10", *EPSILONS)
    assert result.exit_code == 2
    assert "Missing option '--reports' or '--share'" in result.stderr


def test_help_explains_every_option() -> None:
    text = plan("--help").stdout
    for option in ("--reports", "--share", "--candidates", "--epsilon-permanent", "--alpha",
                   "--epsilon-report", "--power", "--method", "--concentration", "--max-bits",
                   "--name", "--output"):  # fmt: skip
        assert option in text
