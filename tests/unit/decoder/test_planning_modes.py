"""`hubbub-decoder plan --epsilon`: modes and responses side by side, and the entry that follows."""

import json
import math

import pytest
from click.testing import CliRunner, Result

from hubbub.decoder.cli import main
from hubbub.planning import Schedule, entry_text
from hubbub.protocol import Metric, RapporParams, Registry, Subset, Window

QUESTIONS = {
    "categories": ("categories", "6"),
    "strings": ("strings", "--candidates", "1e3", "--max-bits", "128"),
    "open": ("open", "--max-bits", "64"),
    "table": ("table", "--cells", "6x4"),
    "number": ("number", "--low", "0", "--high", "60"),
}
questions = pytest.mark.parametrize("question", QUESTIONS)


def plan(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def compared(folder, question, *arguments):
    """Return what is printed, and the rows by name."""
    path = folder / "plan.json"
    result = plan(*QUESTIONS[question], *arguments, "--output", path)
    assert result.exit_code == 0, result.output
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return result.stdout, {row["name"]: row for row in rows}


def entry(stdout: str) -> Metric:
    text = 'application = "com.example.test"\n' + stdout[stdout.index("[metrics.") :]
    (metric,) = Registry.parse(text).values()
    return metric


@questions
def test_once_a_period_is_recommended_and_its_entry_spends_no_more(question, tmp_path):
    stdout, rows = compared(tmp_path, question, "--epsilon", "2", "--clients", "3e5")
    best = next(iter(rows.values()))
    assert best["mode"] == "once"
    metric = entry(stdout)
    assert (metric.mode, metric.period_days, metric.max_periods) == ("once", 30, 24)
    assert 1.996 < metric.price <= 2
    assert metric.price == best["epsilon_period"]
    assert metric.reserve == pytest.approx(best["epsilon_life"])
    assert "Reports of two periods have nothing in common but the value" in " ".join(stdout.split())


@questions
def test_errors_and_epsilons_are_those_of_days_periods_and_years(question, tmp_path):
    asked = ("--epsilon", "2", "--clients", "3e5", "--period-days", "10", "--max-periods", "90")
    _, rows = compared(tmp_path, question, *asked)
    once = next(iter(rows.values()))
    assert once["error_period"] == once["std_error"]
    assert once["error_day"] == pytest.approx(math.sqrt(10) * once["error_period"])
    assert once["error_year"] == pytest.approx(once["error_period"] / math.sqrt(36.5))
    assert once["epsilon_year"] == pytest.approx(39 * once["epsilon_period"])
    assert once["value_ratio"] == pytest.approx(math.cosh(once["epsilon_period"] / 2) ** 2)
    one_time = rows[once["name"].replace("once", "one-time")]
    assert one_time["error_year"] == once["std_error"]
    assert one_time["epsilon_life"] == once["epsilon_period"]


@pytest.mark.parametrize("memory", ["period", "value"])
def test_an_entry_of_daily_reports_keeps_clients_to_one_a_day(memory):
    schedule = Schedule("longitudinal", memory, period_days=10, max_periods=9)
    params = RapporParams(64, 1, 8, 0.5, 0.25, 0.75)
    metric = entry(entry_text(params, "planned", "string", schedule=schedule))
    assert (metric.memory, metric.reports_per_day) == (memory, 1)
    assert metric.period_days == (10 if memory == "period" else 0)


def test_repeated_reports_have_the_least_permanent_noise_and_show_their_price(tmp_path):
    asked = ("--epsilon", "4.39", "--clients", "1e5")
    stdout, rows = compared(tmp_path, "categories", *asked)
    for memory in ("period", "value"):
        row = rows[f"longitudinal ({memory}), unary"]
        assert row["f1"] == 0.5
        assert row["epsilon_report"] <= 1.1 < row["epsilon_period"] <= row["epsilon_permanent"]
        assert row["epsilon_permanent"] <= 4.39
        assert row["linked_clients"] > 0
    assert rows["longitudinal (value), unary"]["epsilon_life"] is None
    assert "not bounded" in stdout
    period, value = (rows[f"longitudinal ({memory}), unary"] for memory in ("period", "value"))
    assert period["error_period"] == value["error_period"]
    assert period["error_year"] < value["error_year"]  # permanent noise stays for life
    assert period["epsilon_life"] == pytest.approx(24 * period["epsilon_period"])


def test_few_categories_are_answered_by_subset_and_numbers_by_window(tmp_path):
    stdout, rows = compared(tmp_path, "categories", "--epsilon", "2", "--clients", "1e5")
    assert isinstance(entry(stdout).response, Subset)
    assert rows["once, subset"]["std_error"] < 0.7 * rows["once, unary"]["std_error"]
    number = entry(plan(*QUESTIONS["number"], "--variance", "--epsilon", "1").stdout)
    assert isinstance(number.response, Window)
    assert number.params.m == 2


def test_registered_metrics_are_evaluated_with_their_response(tmp_path):
    for question in ("categories", "number"):
        stdout = plan(*QUESTIONS[question], "--epsilon", "2", "--name", "asked").stdout
        path = tmp_path / f"{question}.toml"
        path.write_text(f'application = "a"\n{stdout[stdout.index("[metrics.") :]}', "utf-8")
        result = plan(question, "--clients", "1e5", "asked", "--metrics", path)
        assert result.exit_code == 0, result.output
        assert "One report spends an epsilon of" in result.stdout
