"""Plans for strings that nobody lists: the theory's laws, the search, and `plan --open`."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import make_metric, registry_toml
from hubbub.decoder.cli.group import main
from hubbub.decoder.errors import PlanError
from hubbub.planning.limits import detection_limit, fewest_cohorts
from hubbub.planning.noise import Budget, oue_variance
from hubbub.planning.open_strings import (
    OpenComparison,
    choose_steps,
    make_open_plan,
    open_limit,
    open_question,
    open_reports_needed,
    plan_open,
    plan_open_for_share,
)
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry

ONE_TIME, LIFELONG = Budget(math.inf, 4.0), Budget(6.0, 3.0)
NAMES = (4, 7)
ASKED = ("--open", "--reports", "1e6", "--epsilon-permanent", "inf", "--epsilon-report", "4")
FIVE = ("--steps", "4,7", "--k", "256", "--m", "256", "--f", "0", "--p", "0.018", "--q", "0.5")


def planned(budget: Budget = ONE_TIME, n_reports: float = 1e6) -> OpenComparison:
    return plan_open(budget, open_question(), n_reports, NAMES)


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def registered(stdout: str) -> Registry:
    """Return the registry that the printed entry makes."""
    return Registry.parse(
        'application = "com.example.test"\n' + stdout[stdout.index("[metrics.") :]
    )


@pytest.mark.parametrize("budget", [ONE_TIME, LIFELONG, Budget(math.inf, 0.5), Budget(2.0, 2.0)])
def test_plans_keep_the_budget_and_have_least_noise(budget: Budget) -> None:
    best = planned(budget, 1e8).best
    assert best.params.h == 1
    assert best.params.epsilon_report <= budget.report
    assert best.params.epsilon_permanent <= budget.permanent
    if budget.permanent == math.inf:
        assert best.params.q == 0.5
        assert best.params.p == pytest.approx(1 / (math.exp(budget.report) + 1), rel=0.01)
        assert best.oue_ratio * oue_variance(budget.report) == pytest.approx(
            oue_variance(budget.report), rel=0.01
        )


@pytest.mark.parametrize("n_reports", [3e3, 1e5, 1e6, 1e8])
def test_cells_are_a_power_of_two_and_cohorts_tell_candidates_apart(n_reports: float) -> None:
    """A step looks at 300,000 prefixes and more."""
    params = planned(n_reports=n_reports).best.params
    assert math.log2(params.k).is_integer()
    assert params.m >= fewest_cohorts(params.k, 1, 0.05 / 3e5)
    assert n_reports / 3 / params.m >= 100 or params.m == 32


@settings(deadline=None, max_examples=20)
@given(st.floats(4, 8), st.floats(1.1, 5.0), st.integers(1, 7))
def test_a_step_has_its_part_of_the_reports_and_the_epsilon_of_all(
    log_reports: float, epsilon: float, prefixes: int
) -> None:
    """So more steps show less in theory, exactly as fewer reports do."""
    params = RapporParams(256, 1, 64, 0.0, 1 / (math.exp(epsilon) + 1), 0.5)
    question, n = open_question(), 10**log_reports
    steps = tuple(range(2, 2 + prefixes))
    plan = make_open_plan("", steps, params, n, question)
    assert plan.limit == detection_limit(params, n / (prefixes + 1), question)
    assert plan.limit > plan.if_listed or plan.if_listed == math.inf
    if plan.limit < 1:
        needed = open_reports_needed(steps, params, plan.limit, question)
        assert needed == pytest.approx(n, rel=1e-3)


def test_more_reports_and_larger_epsilons_show_smaller_shares() -> None:
    assert planned(n_reports=4e6).best.limit < planned().best.limit
    assert planned(Budget(math.inf, 5.0)).best.limit < planned().best.limit


def test_a_share_gets_the_fewest_reports_that_show_it() -> None:
    best = plan_open_for_share(ONE_TIME, open_question(), 0.002, NAMES).best
    assert best.limit == pytest.approx(0.002, rel=0.01)
    assert open_limit(NAMES, best.params, 0.9 * best.reports, open_question()) > 0.002


@pytest.mark.parametrize(
    ("length", "steps"),
    [(1, (2,)), (4, (2,)), (5, (4,)), (8, (4, 7)), (12, (4, 7, 10)), (40, (4, 7, 10, 14))],
)
def test_steps_follow_from_how_long_strings_are(length: int, steps: tuple[int, ...]) -> None:
    assert choose_steps(length) == steps


def test_too_few_reports_and_too_few_bits_are_refused() -> None:
    with pytest.raises(PlanError, match="reports = 20: too few to show any share at 3 steps"):
        planned(n_reports=20)
    with pytest.raises(PlanError, match="max-bits = 16: must be at least 64"):
        plan_open(ONE_TIME, open_question(), 1e6, NAMES, most_bits=16)
    with pytest.raises(PlanError, match="longest = 0: must be at least 1 byte"):
        choose_steps(0)


def test_plan_prints_an_entry_of_the_type_that_a_registry_takes() -> None:
    result = plan(*ASKED, "--name", "typed_words")
    assert result.exit_code == 0, result.output
    metric = registered(result.stdout)["typed_words"]
    assert isinstance(metric.type, OpenStringType)
    assert metric.type.steps == NAMES
    assert metric.one_time
    assert metric.epsilon_report <= 4
    best = planned().best
    assert metric.params == best.params._replace(m=3 * best.params.m)
    for words in (
        f"A string held by {best.limit:.3%} is found with probability 0.9",
        "Each of 3 steps has 333,333 reports",
        "9.6 bits of a pseudonym",
        "Strings of more than 71 bytes can't be found",
    ):
        assert words in result.stdout


def test_lifelong_plans_have_permanent_noise() -> None:
    asked = ("--epsilon-permanent", "6", "--epsilon-report", "3", "--longest", "40")
    result = plan("--open", "--reports", "1e7", *asked)
    assert result.exit_code == 0, result.output
    metric = registered(result.stdout)["example"]
    assert not metric.one_time
    assert metric.epsilon_permanent <= 6
    assert metric.type.definition()["steps"] == [4, 7, 10, 14]


def test_results_are_written_in_all_formats(tmp_path: Path) -> None:
    paths = [tmp_path / f"plan.{suffix}" for suffix in ("csv", "json", "svg")]
    outputs = [word for path in paths for word in ("--output", path)]
    result = plan(*ASKED, "--share", "0.002", *outputs)
    assert result.exit_code == 0, result.output
    assert "One held by 0.200% is found with probability 0." in result.stdout
    document = json.loads(paths[1].read_text(encoding="utf-8"))
    with paths[0].open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    (same,) = document["rows"]
    assert float(row["detectable_share"]) == pytest.approx(same["detectable_share"])
    assert row["steps"] == same["steps"] == "4 7"
    assert same["share_if_listed"] < same["detectable_share"] < same["reports_needed"]
    assert document["question"]["share"] == 0.002
    shares = [point["detectable_share"] for point in document["by_reports"]]
    assert shares == sorted(shares, key=lambda share: -math.inf if share is None else -share)
    assert "if listed" in paths[2].read_text(encoding="utf-8")


def test_given_parameters_are_evaluated_one_by_one_or_from_the_registry(tmp_path: Path) -> None:
    one_by_one = plan("--open", "--evaluate", "--reports", "1e6", *FIVE)
    assert one_by_one.exit_code == 0, one_by_one.output
    params = RapporParams(256, 1, 256, 0.0, 0.018, 0.5)
    limit = open_limit(NAMES, params, 1e6, open_question())
    assert f"A string held by {limit:.3%} is found" in one_by_one.stdout
    words = make_metric(
        "words", metric_type=OpenStringType(NAMES, 256), params=params, one_time=True
    )
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(words), encoding="utf-8")
    named = plan("--open", "--evaluate", "--reports", "1e6", "words", "--metrics", path)
    assert named.exit_code == 0, named.output
    assert named.stdout == one_by_one.stdout.replace("[metrics.example]", "[metrics.words]")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--candidates", "1e5"), "--candidates: must be left out, for --open has no list."),
        (("--method", "regression"), "--method: must be left out, for --open is decoded from"),
        (("--longest", "9", "--steps", "4"), "--longest: must be left out; --steps are given."),
        (("--longest", "0"), "0 is not in the range 1<=x<=64"),
        (("--steps", "7,4"), "--steps"),
        (("--steps", "4,x"), "'4,x' must be integers as 4,7"),
        (("--k", "64"), "--k: belongs to --evaluate."),
        (("--evaluate", *FIVE), "--epsilon-permanent: follows from the parameters"),
        (("--max-bits", "8"), "max-bits = 8: must be at least 64"),
    ],
)
def test_combinations_that_mean_nothing_are_named(arguments: tuple[str, ...], reason: str) -> None:
    result = plan(*ASKED, *arguments)
    assert result.exit_code != 0
    assert reason in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--steps", "4,7", "--candidates", "10"), "--steps: belongs to --open."),
        (("--longest", "7", "--candidates", "10"), "--longest: belongs to --open."),
        ((), "Missing option '--candidates' (or '--open' or '--cells')."),
        (("--open", "--evaluate", *FIVE, "--h", "1"), "--h: must be left out"),
        (("--open", "--evaluate", *FIVE[2:]), "Missing option '--steps' of --evaluate"),
        (("--open", "--evaluate", "--longest", "8", *FIVE[2:]), "--evaluate takes --steps"),
        (
            ("--open", "--evaluate", "theme", "--metrics", "docs/examples/metrics.toml"),
            "metrics.theme.type = 'enum': must be 'open-string' for --open",
        ),
        (
            ("--open", "--evaluate", *FIVE[:4], "--m", "22000", *FIVE[6:]),
            "m = 22000: must be at most 21845, the cohorts of each of 3 steps",
        ),
    ],
)
def test_options_that_belong_elsewhere_are_named(arguments: tuple[str, ...], reason: str) -> None:
    result = plan("--reports", "1e6", *arguments)
    assert result.exit_code != 0
    assert reason in " ".join(result.stderr.split())


def test_open_strings_are_not_evaluated_as_if_they_were_listed(tmp_path: Path) -> None:
    words = make_metric("words", metric_type=OpenStringType(NAMES, 64))
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(words), encoding="utf-8")
    asked = ("--evaluate", "--reports", "1e6", "--candidates", "1e4")
    result = plan(*asked, "words", "--metrics", path)
    assert result.exit_code == 1
    assert "metrics.words.type = 'open-string': its strings stand in no list" in result.stderr
