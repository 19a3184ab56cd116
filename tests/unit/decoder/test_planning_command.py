"""`hubbub-decoder plan strings|open|table` on the command line."""

import csv
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from factories import make_metric, registry_toml
from hubbub.decoder.cli import main
from hubbub.planning import (
    DetectionTest,
    Goal,
    OpenGoal,
    StringsGoal,
    detection_limit,
    open_test,
    table_goal,
)
from hubbub.protocol import (
    EnumType,
    Field,
    JointType,
    Metric,
    OpenStringType,
    RapporParams,
    Registry,
    StringType,
)
from parameters import quick_but
from unit.decoder.pages import Page

EPSILONS = ("--epsilon-permanent", "4.4", "--epsilon-report", "1.1")
ONE_TIME = ("--epsilon-permanent", "inf", "--epsilon-report", "4")
GOALS = {
    "strings": ("strings", "--candidates", "1e5"),
    "open": ("open",),
    "table": ("table", "--cells", "6x4"),
}
GIVEN = ("--k", "128", "--h", "2", "--m", "64", "--f", "0.5", "--p", "0.5", "--q", "0.75")
NOISE = ("--f", "0", "--p", "0.018", "--q", "0.5")
NUMBERS = {
    "strings": GIVEN,
    "open": ("--steps", "4,7", "--k", "256", "--m", "256", *NOISE),
    "table": NOISE,
}
PARAMS = {
    "strings": RapporParams(128, 2, 64, 0.5, 0.5, 0.75),
    "open": RapporParams(256, 1, 256, 0.0, 0.018, 0.5),
    "table": RapporParams(24, 1, 1, 0.0, 0.018, 0.5),
}
SIX_BY_FOUR = JointType(
    tuple(Field(f"field_{n}", EnumType(tuple(map(str, range(n))))) for n in (6, 4))
)
TYPES = {"strings": StringType(), "open": OpenStringType((4, 7), 256), "table": SIX_BY_FOUR}
goals = pytest.mark.parametrize("goal", GOALS)


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def planned(goal: str, *arguments: str | Path) -> Result:
    """Plan with a million reports."""
    result = plan(*GOALS[goal], "--reports", "1e6", *arguments)
    assert result.exit_code == 0, result.output
    return result


def entry(stdout: str) -> Metric:
    text = 'application = "com.example.test"\n' + stdout[stdout.index("[metrics.") :]
    (metric,) = Registry.parse(text.replace('"..."', '"text"')).values()
    return metric


def registered(folder: Path, *metrics: Metric) -> Path:
    path = folder / "metrics.toml"
    path.write_text(registry_toml(*metrics), encoding="utf-8")
    return path


@goals
@pytest.mark.parametrize("epsilons", [EPSILONS, ONE_TIME, ("--epsilon-permanent", "2",
                                      "--epsilon-report", "2")])  # fmt: skip
def test_plans_are_entries_that_a_registry_takes_and_that_keep_the_budget(goal, epsilons):
    result = planned(goal, *epsilons, "--name", "homepage")
    metric = entry(result.stdout)
    assert metric.name == "homepage"
    assert metric.epsilon_permanent <= float(epsilons[1])
    assert metric.epsilon_report <= float(epsilons[3])
    assert metric.one_time == (epsilons is not EPSILONS)
    assert ("the shuffled reports of two days" in " ".join(result.stdout.split())) == (
        epsilons is EPSILONS
    )
    assert type(metric.type) is type(TYPES[goal])


@goals
def test_results_are_written_in_all_formats(goal, tmp_path):
    paths = [tmp_path / f"plan.{suffix}" for suffix in ("csv", "json", "svg", "png")]
    outputs = [word for path in paths for word in ("--output", path)]
    result = plan(*GOALS[goal], "--share", "0.01", *EPSILONS, "--max-bits", "64", *outputs)
    assert result.exit_code == 0, result.output
    assert "reports for 1.000%" in " ".join(result.stdout.split())
    document = json.loads(paths[1].read_text(encoding="utf-8"))
    with paths[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(document["rows"])
    for row, same in zip(rows, document["rows"], strict=True):
        assert list(row) == list(same)
        for key, value in same.items():
            if isinstance(value, float):
                assert float(row[key]) == pytest.approx(value, rel=1e-8)
            else:
                assert row[key] == ("" if value is None else str(value).replace("False", "false"))
    assert document["rows"][0]["detectable_share"] == pytest.approx(0.01, rel=0.01)
    assert document["question"]["share"] == 0.01
    curve = [each["detectable_share"] or 1.0 for each in document["by_reports"]]
    assert curve == sorted(curve, reverse=True)
    assert curve[12] == pytest.approx(document["rows"][0]["detectable_share"], rel=1e-3)
    assert paths[2].read_bytes().startswith(b"<?xml")
    assert paths[3].read_bytes().startswith(b"\x89PNG")


@goals
def test_given_parameters_are_evaluated_one_by_one_or_from_the_registry(goal, tmp_path):
    """k, h and m may be left out where each cell has a bit, as in metrics.toml."""
    params, one_by_one = PARAMS[goal], planned(goal, *NUMBERS[goal])
    planning: dict[str, Goal] = {
        "strings": StringsGoal(DetectionTest(1e5)),
        "open": OpenGoal(open_test(), (4, 7)),
        "table": table_goal((6, 4)),
    }
    assert f" {planning[goal].limit(params, 1e6):.3%} " in one_by_one.stdout
    assert "One report spends an epsilon of" in one_by_one.stdout
    assert "The best parameters at these epsilons" in one_by_one.stdout
    metric = make_metric(
        "words", metric_type=TYPES[goal], params=params, one_time=goal != "strings"
    )
    path = registered(tmp_path, metric)
    asked = GOALS[goal] if goal == "strings" else GOALS[goal][:1]
    named = plan(*asked, "--reports", "1e6", "words", "--metrics", path)
    assert named.exit_code == 0, named.output
    assert named.stdout == one_by_one.stdout.replace("metrics.example", "metrics.words")


def test_given_parameters_are_compared_with_the_best_at_their_epsilons(tmp_path):
    path, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    result = planned("strings", *GIVEN, "--output", path, "--output", picture)
    given, best, *_ = json.loads(path.read_text(encoding="utf-8"))["rows"]
    params = PARAMS["strings"]
    assert [given[key] for key in params._fields] == list(params)
    assert given["detectable_share"] == detection_limit(params, 1e6, DetectionTest(1e5))
    assert best["epsilon_report"] <= given["epsilon_report"] == params.epsilon_report
    assert best["epsilon_permanent"] <= given["epsilon_permanent"]
    times = given["detectable_share"] / best["detectable_share"]
    assert times > 1.5
    assert f"a share {times:.2f} times smaller" in result.stdout
    assert entry(result.stdout).params.h == 1
    texts = Page(picture.read_text(encoding="utf-8").partition("?>")[2]).texts["text"]
    assert texts.count("given") == texts.count("the best") == 1


@goals
@pytest.mark.parametrize("wanted", ["--share", "--error"])
def test_given_parameters_and_a_target_determine_the_reports(goal, wanted, tmp_path):
    path = tmp_path / "plan.json"
    result = plan(*GOALS[goal], wanted, "0.01", *NUMBERS[goal], "--output", path)
    assert result.exit_code == 0, result.output
    given = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    column = {"--share": "detectable_share", "--error": "std_error"}[wanted]
    assert given[column] == pytest.approx(0.01, rel=0.02)


def documented_commands() -> list[str]:
    """Return the `plan` and `privacy` commands of the docs, lines that go on being joined."""
    docs = Path(__file__).parents[3] / "docs"
    pages = [path.read_text(encoding="utf-8") for path in docs.rglob("*.md")]
    lines = "\n".join(pages).replace("\\\n", " ").splitlines()
    starts = ("    hubbub-decoder plan ", "    hubbub-decoder privacy ")
    return sorted({" ".join(line.split()) for line in lines if line.startswith(starts)})


COMMANDS = documented_commands()
SHUFFLED = [line for line in COMMANDS if " privacy " in line and "--reports" in line]


@pytest.mark.parametrize("line", quick_but(SHUFFLED[1:], COMMANDS))
def test_documented_commands_run(line, tmp_path, monkeypatch):
    """With the registry of the docs; more than ten are there, so none is overlooked."""
    registry = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"
    (tmp_path / "metrics.toml").write_bytes(registry.read_bytes())
    monkeypatch.chdir(tmp_path)
    _, *words = shlex.split(line, comments=True)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert len(COMMANDS) > 10
