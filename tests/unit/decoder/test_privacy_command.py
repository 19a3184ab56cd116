"""`hubbub-decoder privacy` on the command line."""

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from factories import make_metric, make_params, registry_toml
from hubbub.decoder.cli import main
from hubbub.protocol import BooleanType, EnumType, Field, JointType, OrdinalType, RapporParams

METRICS = (
    make_metric("homepage"),
    make_metric("restored", metric_type=BooleanType()),
    make_metric("theme", metric_type=EnumType(("light", "dark"))),
    make_metric("tabs", metric_type=OrdinalType((1.0, 10.0)),
                params=RapporParams(8, 1, 1, 0.2, 0.0, 1.0), one_time=True),
    make_metric("last_crash", period_days=30),
    make_metric("theme_by_restored", metric_type=JointType((
        Field("theme", EnumType(("light", "dark"))), Field("restored", BooleanType())
    ))),
)  # fmt: skip


@pytest.fixture
def registry(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(*METRICS), encoding="utf-8")
    return path


def privacy(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["privacy", *map(str, arguments)])


def test_without_a_permanent_response_there_is_no_figure_for_it(tmp_path):
    once = make_metric(params=make_params(f=0.0), one_time=True)
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(once), encoding="utf-8")
    output = tmp_path / "privacy.json"
    result = privacy(path, "--output", output)
    assert "not bounded" not in result.stdout
    figures = json.loads(output.read_text(encoding="utf-8"))["metrics"]["homepage"]
    assert figures["epsilon_permanent"]["value"] is None
    assert figures["epsilon_days"]["value"] == once.epsilon_report


@pytest.mark.parametrize(("lifetime", "short"), [(5.0, True), (900.0, False)])
def test_the_division_of_the_lifetime_is_stated(tmp_path, lifetime, short):
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(*METRICS, lifetime_epsilon=lifetime), encoding="utf-8")
    result = privacy(path)
    reserved = rf"[\d.]+ of lifetime_epsilon = {lifetime:g} is reserved for answers whose price"
    assert re.search(reserved, result.stdout)
    assert ("stop reporting when it is used up" in result.stdout) == short


def test_files_have_every_figure_and_none_where_there_is_no_bound(registry, tmp_path):
    outputs = ("--output", tmp_path / "privacy.csv", "--output", tmp_path / "privacy.json")
    assert privacy(registry, *outputs).exit_code == 0
    document = json.loads((tmp_path / "privacy.json").read_text(encoding="utf-8"))
    assert set(document["metrics"]) == {metric.name for metric in METRICS}
    found = {name: of["epsilon_any_history"] for name, of in document["metrics"].items()}
    assert found["homepage"]["value"] is None
    assert found["homepage"]["theorem"].startswith("not bounded: anyone who links reports")
    assert found["last_crash"]["value"] > found["tabs"]["value"] > 0
    assert document["registry"]["epsilon_registry_any_history"]["value"] is None
    with (tmp_path / "privacy.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["theorem"] for row in rows)
    cells = {(row["metric"], row["figure"]): row["value"] for row in rows}
    total = document["registry"]["epsilon_registry"]["value"]
    assert float(cells["", "epsilon_registry"]) == pytest.approx(total)
    assert cells["homepage", "epsilon_any_history"] == "inf"
    assert float(cells["last_crash", "epsilon_any_history"]) > 0


@pytest.mark.long
def test_a_tuple_costs_as_much_as_one_of_its_values(registry, tmp_path):
    """Two metrics would cost twice that; here the noise of all is the same."""
    output = tmp_path / "privacy.json"
    assert privacy(registry, "--reports", "1e5", "--output", output).exit_code == 0
    metrics = json.loads(output.read_text(encoding="utf-8"))["metrics"]
    of_pair, of_one = metrics["theme_by_restored"], metrics["theme"]
    costs = [key for key in of_one if not key.startswith("link")]
    assert [of_pair[key]["value"] for key in costs] == [of_one[key]["value"] for key in costs]
