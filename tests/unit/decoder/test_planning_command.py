"""`hubbub-decoder plan` on the command line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubbub.decoder.cli.group import main
from hubbub.decoder.linking import link_information, right_links
from hubbub.planning.limits import Method, Question, detection_limit
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry
from unit.decoder.pages import Page, assert_self_contained

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
    assert "linked" not in result.stdout


@pytest.mark.parametrize(
    "asked", [("--candidates", "1e4"), ("--open",), ("--cells", "10x4")], ids=lambda a: a[0]
)
def test_how_well_daily_reports_are_linked_is_said(asked: tuple[str, ...], tmp_path: Path) -> None:
    """By the same prediction as `hubbub-decoder privacy` prints; cohorts of all steps count."""
    output = tmp_path / "plan.csv"
    result = plan("--reports", "1e6", *asked, *EPSILONS, "--output", str(output))
    assert result.exit_code == 0, result.output
    metric = planned_metric(result.stdout).replace('"..."', '"text"')
    for number, name in enumerate(("first", "second")):
        metric = metric.replace(f"field_{number + 1}", name)
    (found,) = Registry.parse(metric).values()
    two, many = (
        100 * right_links(found.params, found.type.width, 1_000_000, known=known)
        for known in (False, True)
    )
    assert f"1,000,000 clients are linked: {two:.3g}% rightly from two days" in result.stdout
    assert f"at most {many:.3g}% from many" in result.stdout
    with output.open(encoding="utf-8", newline="") as file:
        nats = float(next(csv.DictReader(file))["linking_information"])
    assert nats == pytest.approx(link_information(found.params, found.type.width))


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


def test_svg_is_readable_needs_nothing_else_and_can_be_repeated(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.svg" for name in ("one", "other")]
    for path in paths:
        assert plan(*ASKED, "--max-bits", "64", "--output", str(path)).exit_code == 0
    one, other = (path.read_text(encoding="utf-8") for path in paths)
    assert one == other
    page = Page(one.partition("?>")[2])
    assert_self_contained(page)
    assert "prefers-color-scheme: dark" in page.texts["style"][0]
    assert [each["role"] for each in page.all("svg")[1:]] == ["img", "img"]
    assert all("1." in text for text in page.texts["desc"])
    assert page.texts["text"].count("the RAPPOR paper's default") == 2


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
        (("--max-bits", "4"), "4 is not in the range 8<=x<=4096"),
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


GIVEN = {"--k": "128", "--h": "2", "--m": "64", "--f": "0.5", "--p": "0.5", "--q": "0.75"}
SIX = tuple(word for option in GIVEN.items() for word in option)
EVALUATE = ("--evaluate", "--candidates", "1e5")


def test_given_parameters_are_set_beside_the_best_at_their_epsilons(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    arguments = (*EVALUATE, "--reports", "1e6", *SIX, "--output", str(path))
    result = plan(*arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    given, best = rows[0], rows[1]
    params = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
    assert [given[key] for key in "khmfpq"] == list(params)
    assert given["detectable_share"] == detection_limit(params, 1e6, Question(1e5))
    assert best["epsilon_report"] <= given["epsilon_report"] == params.epsilon_report
    assert best["epsilon_permanent"] <= given["epsilon_permanent"]
    times = given["detectable_share"] / best["detectable_share"]
    assert times > 1.5
    assert f"a share {times:.2f} times as small" in result.stdout
    likelihood = detection_limit(params, 1e6, Question(1e5, method=Method.LIKELIHOOD))
    assert f"With method likelihood the limit is {likelihood:.3%}." in result.stdout
    assert Registry.parse(planned_metric(result.stdout))["example"].params.h == 1


def test_given_parameters_may_be_a_registrys(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(planned_metric(plan(*ASKED, "--name", "homepage").stdout), encoding="utf-8")
    result = plan(*EVALUATE, "--reports", "1e6", "homepage", "--metrics", str(path))
    assert result.exit_code == 0, result.output
    assert "The search finds no better parameters" in result.stdout


def test_given_parameters_and_a_share_tell_the_reports(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = (*EVALUATE, "--share", "0.01", *SIX, "--output", str(path))
    assert plan(*asked).exit_code == 0
    given = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    assert given["detectable_share"] == pytest.approx(0.01, rel=1e-3)


def test_given_parameters_are_points_of_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    asked = (*EVALUATE, "--reports", "1e6", "--max-bits", "64", *SIX)
    assert plan(*asked, "--output", str(path)).exit_code == 0
    texts = Page(path.read_text(encoding="utf-8").partition("?>")[2]).texts["text"]
    assert texts.count("given") == texts.count("the best") == 2


def test_too_few_cohorts_are_told() -> None:
    result = plan(*EVALUATE, "--reports", "1e6", *SIX, "--m", "2")
    assert result.exit_code == 0
    assert "m = 2: below 12 cohorts no test at this level works" in result.stdout
    assert "below" not in plan(*EVALUATE, "--reports", "1e6", *SIX).stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((*ASKED, "--k", "128"), "--k: belongs to --evaluate"),
        ((*ASKED, "homepage"), "METRIC: belongs to --evaluate"),
        (("--reports", "1e6", "--candidates", "9"), "Missing option '--epsilon-permanent'."),
        ((*EVALUATE, "--reports", "9", *SIX[:-2]), "Missing option '--q' of --evaluate"),
        ((*EVALUATE, *SIX), "Missing option '--reports' or '--share'"),
        ((*EVALUATE, "--reports", "1e6", *SIX, *EPSILONS), "--epsilon-permanent: follows from"),
        ((*EVALUATE, "--reports", "1e6", *SIX, "homepage"), "--k: METRIC of --metrics has"),
        ((*EVALUATE, "--reports", "1e6", "homepage"), "Missing option '--metrics' of --evaluate"),
        ((*EVALUATE, "--reports", "1e6", *SIX, "--k", "9"), "k = 9: must be a multiple of 8"),
        ((*EVALUATE, "--reports", "1e6", *SIX, "--p", ".75"), "p = q = 0.75: must differ"),
        ((*EVALUATE, "--reports", "50", *SIX), "reports = 50: too few to show any share"),
        ((*EVALUATE, "--share", "1e-12", *SIX), "share = 1e-12: no number of reports detects it"),
        (
            (*EVALUATE, "--reports", "1e6", "theme", "--metrics", "docs/examples/metrics.toml"),
            "metrics.theme.type = 'enum': must be a type whose values are looked for",
        ),
    ],
)
def test_mistakes_about_given_parameters_are_named(arguments: tuple[str, ...], reason: str) -> None:
    result = plan(*arguments)
    assert result.exit_code != 0
    assert reason in result.stderr
    assert result.stdout == ""


def test_help_explains_every_option() -> None:
    text = plan("--help").stdout
    for option in ("--reports", "--share", "--candidates", "--epsilon-permanent", "--alpha",
                   "--epsilon-report", "--power", "--method", "--concentration", "--max-bits",
                   "--name", "--output", "--evaluate", "--metrics", "--cells", "--error",
                   *GIVEN):  # fmt: skip
        assert option in text
