"""Plans for joint metrics: the errors' laws, bits or hashes, and `plan --cells`."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from factories import make_metric, registry_toml
from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.categories.shares import noise_variance
from hubbub.decoder.cli.group import main
from hubbub.decoder.errors import PlanError
from hubbub.planning.joint import (
    JointComparison,
    evaluate_joint,
    make_joint_plan,
    plan_joint,
    plan_joint_for_error,
    plan_joint_for_share,
)
from hubbub.planning.limits import detection_limit
from hubbub.planning.noise import Budget, oue_variance
from hubbub.planning.tables import (
    TableErrors,
    TableQuestion,
    association_limit,
    cell_error,
    cell_limit,
    cell_power,
    cell_reports_needed,
    error_reports_needed,
    expected_total_variation,
    is_hashed,
    partner_table,
    typical_table,
)
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.joint import Field, JointType, number_of_values
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry

ONE_TIME, LIFELONG = Budget(math.inf, 4.0), Budget(6.0, 3.0)
SMALL = TableQuestion((6, 4))
EPSILONS = ("--epsilon-permanent", "inf", "--epsilon-report", "4")
ASKED = ("--cells", "6x4", "--reports", "1e5", *EPSILONS)
NOISE = ("--f", "0", "--p", "0.018", "--q", "0.5")


def noisy(k: int, f: float = 0.0, p: float = 0.018, q: float = 0.5) -> RapporParams:
    return RapporParams(k, 1, 1, f, p, q)


def joint_type(*sizes: int) -> JointType:
    fields = (
        Field(f"field_{i}", EnumType(tuple(map(str, range(size))))) for i, size in enumerate(sizes)
    )
    return JointType(tuple(fields))


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def planned(budget: Budget = ONE_TIME, n_reports: float = 1e5) -> JointComparison:
    return plan_joint(budget, SMALL, n_reports)


def registered(stdout: str) -> Registry:
    """Return the registry that the printed entry makes."""
    return Registry.parse(
        'application = "com.example.test"\n' + stdout[stdout.index("[metrics.") :]
    )


def parameters() -> st.SearchStrategy[RapporParams]:
    """Noise of all kinds, also such that ones are rarer where they are true."""
    rates = st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
    far = rates.filter(lambda pq: abs(pq[0] - pq[1]) > 0.05)
    return st.builds(lambda f, pq: noisy(4096, f, *pq), st.sampled_from([0, 0.1, 0.5]), far)


@st.composite
def tables(draw: st.DrawFn) -> FloatArray:
    """Tables of two or three fields that add up to 1."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=2, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.dirichlet(np.full(math.prod(sizes), 0.5)).reshape(sizes)


def covariance_of(table: FloatArray, params: RapporParams) -> FloatArray:
    """Return the covariance of all cells, times N, cell by cell."""
    shares = table.ravel()
    noise = noise_variance(shares, 1, params)
    sampling = np.diag(shares) - np.outer(shares, shares)
    return np.asarray(np.diag(noise) + sampling - np.outer(noise, noise) / noise.sum())


@settings(deadline=None, max_examples=50)
@given(tables(), parameters())
def test_errors_of_sums_are_those_of_the_whole_covariance(
    table: FloatArray, params: RapporParams
) -> None:
    covariance, errors = covariance_of(table, params), TableErrors(params, table.size)
    first, last = table.shape[0], table.shape[-1]
    cell = np.zeros_like(table)
    cell.flat[1] = 1
    value = np.zeros_like(table)
    value[..., 0] = 1
    row = np.zeros_like(table)
    row[1] = 1
    given_share, both = float((row * table).sum()), float((row * value * table).sum())
    ratio = (row * value - both / given_share * row) / given_share
    for weights, error in (
        (cell, errors.of_cell(float(table.flat[1]))),
        (value, errors.of_margin(last, float((value * table).sum()))),
        (ratio, errors.of_conditional(first, last, given_share, both / given_share)),
    ):
        flat = weights.ravel()
        assert error**2 == pytest.approx(float(flat @ covariance @ flat), rel=1e-6)


@settings(deadline=None, max_examples=100)
@given(parameters(), st.integers(10, 100_000), st.floats(0.51, 0.99))
def test_the_limit_is_found_with_exactly_its_power(
    params: RapporParams, n_reports: int, power: float
) -> None:
    question = TableQuestion((6, 4), power=power)
    limit = cell_limit(params, n_reports, question)
    upward = params.q_star > params.p_star
    absent, present = params.p_star, params.p_star + min(limit, 1) * (params.q_star - params.p_star)
    if not upward:
        absent, present = 1 - absent, 1 - present
    counts = np.arange(n_reports + 1)
    rejected = counts[stats.binom.sf(counts - 1, n_reports, absent) <= question.level]
    found = stats.binom.sf(rejected[0] - 1, n_reports, present) if len(rejected) else 0.0
    if limit <= 1:
        assert found == pytest.approx(power, abs=1e-6)
        assert cell_power(params, n_reports, limit, question) == pytest.approx(power, abs=1e-6)
    else:
        assert found < power


@settings(deadline=None, max_examples=30)
@given(parameters(), st.floats(3, 8))
def test_more_reports_have_smaller_errors(params: RapporParams, log_reports: float) -> None:
    """Four times as many halve a standard error; a limit jumps with whole counts, but falls."""
    question, n = TableQuestion((100, 20)), 10**log_reports
    error, limit = cell_error(params, n, question), cell_limit(params, n, question)
    assert cell_error(params, 4 * n, question) == pytest.approx(error / 2)
    assert error_reports_needed(params, error, question) == pytest.approx(n)
    assert cell_limit(params, 4 * n, question) < limit or limit == math.inf
    if limit < 1:
        needed = cell_reports_needed(params, limit, question)
        assert needed < 1.2 * n
        assert cell_limit(params, needed, question) <= limit


@pytest.mark.parametrize("budget", [ONE_TIME, LIFELONG, Budget(math.inf, 0.5), Budget(2.0, 2.0)])
def test_plans_keep_the_budget_and_have_least_noise(budget: Budget) -> None:
    params = planned(budget, 1e6).best.params
    assert params.epsilon_report <= budget.report
    assert params.epsilon_permanent <= budget.permanent
    assert (params.k, params.h, params.m) == (24, 1, 1)
    error = cell_error(params, 1e6, SMALL)
    least = math.sqrt(oue_variance(budget.report) / 1e6)
    if budget.permanent == math.inf:
        assert params.q == 0.5
        assert error == pytest.approx(least, rel=0.03)  # the sum of all cells is known
    for other in np.linspace(0.05, 0.95, 19).tolist():
        p_star = other / (other + math.exp(budget.report) * (1 - other))
        try:
            rival = noisy(24, 0.0 if budget.permanent == math.inf else params.f, p_star, other)
        except ValueError:
            continue
        if rival.epsilon_report <= budget.report:
            assert cell_error(rival, 1e6, SMALL) > 0.999 * error


@pytest.mark.parametrize(("epsilon", "ratio"), [(4.0, 6.896), (8.0, 4.304)])
def test_fields_side_by_side_are_noisier(epsilon: float, ratio: float) -> None:
    """beta(eps/2)^2 / beta(eps), with beta = 4 e^eps / (e^eps - 1)^2."""
    split = planned(Budget(math.inf, epsilon)).split
    beta = [4 * math.exp(e) / math.expm1(e) ** 2 for e in (epsilon / 2, epsilon)]
    assert split.cell_ratio == pytest.approx(beta[0] ** 2 / beta[1])
    assert split.cell_ratio == pytest.approx(ratio, rel=1e-3)
    assert split.margins[0] == pytest.approx(math.sqrt(beta[0] * (1 - 1 / 6) / 1e5))


def test_three_fields_have_a_third_of_the_epsilons() -> None:
    split = plan_joint(ONE_TIME, TableQuestion((4, 3, 2)), 1e6).split
    assert split.cell_ratio == pytest.approx(oue_variance(4 / 3) ** 3 / oue_variance(4))
    assert len(split.margins) == 3


def test_cells_are_hashed_where_there_are_more_than_bits() -> None:
    question = TableQuestion((64, 64))
    assert plan_joint(ONE_TIME, question, 1e6).best.params[:3] == (4096, 1, 1)
    best = plan_joint(ONE_TIME, question, 1e6, most_bits=4088).best
    assert best.hashed
    assert best.params.k <= 4088
    assert best.limit == detection_limit(best.params, 1e6, question.of_strings)
    assert best.margins == ()
    assert math.isnan(best.total_variation)


def test_a_bit_a_cell_has_one_hash_and_one_cohort() -> None:
    with pytest.raises(PlanError, match="h = 1, m = 2: must be 1 where each of 24 cells has a bit"):
        is_hashed(RapporParams(24, 1, 2, 0, 0.1, 0.5), SMALL)
    assert is_hashed(RapporParams(16, 1, 2, 0, 0.1, 0.5), SMALL)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((5,), "cells = 5: must be 2 or 3 numbers of values, as 100x20"),
        ((2, 2, 2, 2), "cells = 2x2x2x2: must be 2 or 3"),
        ((1, 5), "cells = 1x5: each field must have 2 to 4,096 values"),
        ((5, 4097), "each field must have 2 to 4,096 values"),
    ],
)
def test_what_is_no_table_is_named(sizes: tuple[int, ...], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        TableQuestion(sizes)


def test_a_share_or_an_error_gets_the_fewest_reports() -> None:
    by_share = plan_joint_for_share(ONE_TIME, SMALL, 0.005).best
    assert by_share.limit == pytest.approx(0.005, rel=0.01)
    assert cell_limit(by_share.params, 0.9 * by_share.reports, SMALL) > 0.005
    by_error = plan_joint_for_error(ONE_TIME, SMALL, 0.001).best
    assert by_error.std_error == pytest.approx(0.001, rel=1e-3)
    hashed = plan_joint_for_error(ONE_TIME, TableQuestion((100, 100)), 0.001).best
    assert hashed.hashed
    assert hashed.std_error == pytest.approx(0.001, rel=0.01)


def test_more_than_can_be_drawn_or_too_little_is_refused() -> None:
    with pytest.raises(PlanError, match=r"reports = 1e\+16: must be at most 1e\+15 for a table"):
        planned(n_reports=1e16)
    with pytest.raises(PlanError, match="reports = 3: too few to show any of 24 cells"):
        planned(n_reports=3)
    with pytest.raises(PlanError, match=r"share = 1e-13: no number of reports shows it"):
        plan_joint_for_share(ONE_TIME, SMALL, 1e-13)
    with pytest.raises(PlanError, match=r"share = 1e-13: no number of reports has it"):
        evaluate_joint(noisy(24), SMALL, None, share=1e-13)


def test_expected_total_variation_is_that_of_normal_errors_where_all_cells_are_sure() -> None:
    """Half the sum of sqrt(2/pi) standard errors; 1,600 drawn tables are 2% off at most."""
    params, n, sizes = noisy(24), 1e7, (5, 5)
    table, errors = typical_table(sizes), TableErrors(noisy(24), 25)
    normal = sum(errors.of_cell(share) for share in table.ravel()) / math.sqrt(n)
    expected = math.sqrt(2 / math.pi) * normal / 2
    assert expected_total_variation(params, n, sizes) == pytest.approx(expected, rel=0.02)
    rare = expected_total_variation(params, n / 1e5, sizes)
    assert rare < 0.9 * math.sqrt(1e5) * expected  # for no cell is below 0


@pytest.mark.parametrize("sizes", [(6, 4), (2, 2), (3, 40), (4, 3, 2)])
def test_the_typical_table_has_zipfs_margins(sizes: tuple[int, ...]) -> None:
    table = typical_table(sizes)
    assert table.shape == sizes
    assert table.sum() == pytest.approx(1)
    assert table.sum(axis=tuple(range(1, len(sizes)))) * np.arange(1, sizes[0] + 1) == (
        pytest.approx(np.full(sizes[0], 1 / sum(1 / r for r in range(1, sizes[0] + 1))))
    )


def test_partners_hold_their_share() -> None:
    table = partner_table((6, 4), 0.3)
    assert table.sum(axis=1) == pytest.approx(typical_table((6, 4)).sum(axis=1))
    surplus = table - 0.7 * typical_table((6, 4))
    assert surplus.sum() == pytest.approx(0.3)
    assert (surplus > 1e-12).sum() == 6
    assert partner_table((6, 4), 0.0) == pytest.approx(typical_table((6, 4)))


def test_weaker_associations_take_more_reports() -> None:
    params, question = noisy(24), SMALL
    limits = [association_limit(params, n, question) for n in (1e4, 1e5, 1e6)]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > 2 * limits[1] > 4 * limits[2] > 0
    assert association_limit(noisy(24, p=0.45), 1e3, question) == math.inf
    three = make_joint_plan("", noisy(24), 1e5, TableQuestion((4, 3, 2)))
    assert math.isnan(three.association)


def test_plan_prints_an_entry_that_a_registry_takes_and_that_keeps_the_budget() -> None:
    result = plan(*ASKED, "--name", "crash_by_driver")
    assert result.exit_code == 0, result.output
    metric = registered(result.stdout)["crash_by_driver"]
    assert isinstance(metric.type, JointType)
    assert [number_of_values(field.type) for field in metric.type.fields] == [6, 4]
    assert metric.one_time
    assert metric.params == planned().best.params
    assert metric.epsilon_report <= 4
    for word in ("total variation", "The test of independence", "Side by side", "3 bytes"):
        assert word in result.stdout


def test_pairs_of_values_are_booleans_and_hashed_cells_have_k_h_and_m() -> None:
    result = plan("--cells", "2×40", "--max-bits", "64", *ASKED[2:])
    assert result.exit_code == 0, result.output
    metric = registered(result.stdout)["example"]
    assert isinstance(metric.type, JointType)
    assert isinstance(metric.type.fields[0].type, BooleanType)
    assert metric.type.hashed
    assert metric.params.k <= 64
    assert "80 cells are hashed into" in result.stdout


def test_results_are_written_in_all_formats(tmp_path: Path) -> None:
    paths = [tmp_path / f"plan.{suffix}" for suffix in ("csv", "json", "svg")]
    outputs = [word for path in paths for word in ("--output", path)]
    result = plan("--cells", "4x3x2", "--error", "0.001", *EPSILONS, *outputs)
    assert result.exit_code == 0, result.output
    document = json.loads(paths[1].read_text(encoding="utf-8"))
    with paths[0].open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    (same,) = document["rows"]
    assert float(row["std_error"]) == pytest.approx(same["std_error"])
    assert same["std_error"] == pytest.approx(0.001, rel=1e-3)
    assert same["partner_share"] is None
    assert len(document["question"]["margin_std_errors_apart"]) == 3
    errors = [point["std_error"] for point in document["by_reports"]]
    assert errors == sorted(errors, reverse=True)
    errors = [point["std_error"] for point in document["by_epsilon_report"]]
    assert errors == sorted(errors, reverse=True)
    assert "detected cell" in paths[2].read_text(encoding="utf-8")


def test_curves_reach_epsilons_that_no_short_decimals_have(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    result = plan(*ASKED[:4], *EPSILONS[:3], "9", "--output", path)
    assert result.exit_code == 0, result.output
    last = json.loads(path.read_text(encoding="utf-8"))["by_epsilon_report"][-1]
    assert last["epsilon_report"] == pytest.approx(36)
    assert 0 < last["std_error"] < 1e-7


def test_given_parameters_are_evaluated_one_by_one_or_from_the_registry(tmp_path: Path) -> None:
    """k, h and m may be left out where each cell has a bit, as in metrics.toml."""
    one_by_one = plan("--cells", "6x4", "--evaluate", "--reports", "1e5", *NOISE)
    assert one_by_one.exit_code == 0, one_by_one.output
    limit = cell_limit(noisy(24), 1e5, SMALL)
    assert f"A cell that {limit:.3%} are in is detected" in one_by_one.stdout
    metric = make_metric("crashes", metric_type=joint_type(6, 4), params=noisy(24), one_time=True)
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric), encoding="utf-8")
    named = plan("--evaluate", "--reports", "1e5", "crashes", "--metrics", path)
    assert named.exit_code == 0, named.output
    assert named.stdout == one_by_one.stdout.replace("metrics.example", "metrics.crashes")


def test_given_parameters_and_a_share_have_their_own_number_of_reports(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    given = ("--k", "24", "--f", "0", "--p", "0.1", "--q", "0.5")
    asked = ("--cells", "6x4", "--evaluate", "--share", "0.01", *given)
    result = plan(*asked, "--output", path)
    assert result.exit_code == 0, result.output
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert rows[0]["detectable_share"] == pytest.approx(0.01, rel=0.01)
    assert rows[1]["epsilon_report"] <= rows[0]["epsilon_report"]
    assert "The best parameters at these epsilons" in result.stdout
    power = plan("--cells", "6x4", "--evaluate", "--error", "0.001", *given)
    assert power.exit_code == 0, power.output
    assert "of a rare cell 0.1%" in power.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--candidates", "1e5"), "--candidates: must be left out; --cells says how many."),
        (("--open",), "--open: must be left out; --cells aren't strings."),
        (("--method", "regression"), "--method: belongs to strings, not to --cells."),
        (("--concentration", "0.1"), "--concentration: belongs to strings"),
        (("--share", "0.1", "--error", "0.1"), "--error: must be left out; --share says what"),
        (("--steps", "4"), "--steps: belongs to --open."),
        (("--k", "64"), "--k: belongs to --evaluate."),
        (("--cells", "100"), "cells = 100: must be 2 or 3 numbers of values, as 100x20"),
        (("--cells", "axb"), "'axb' must be numbers as 100x20"),
        (("--cells", "6x1"), "cells = 6x1: each field must have 2 to 4,096 values"),
        (("--evaluate",), "--epsilon-permanent: follows from the parameters"),
        (("--max-bits", "4104"), "4104 is not in the range 8<=x<=4096"),
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
        (("--candidates", "10", "--error", "0.1"), "--error: belongs to --cells."),
        (("--cells", "6x4", "--evaluate", *NOISE[2:]), "Missing option '--f' of --evaluate"),
        (
            ("--cells", "6x4", "--evaluate", *NOISE, "--m", "4"),
            "h = 1, m = 4: must be 1 where each of 24 cells has a bit",
        ),
        (
            ("--evaluate", "theme", "--metrics", "docs/examples/metrics.toml"),
            "metrics.theme.type = 'enum': must be 'joint', or a type of strings with --candidates",
        ),
        (
            ("--cells", "6x4", "--evaluate", "theme", "--metrics", "docs/examples/metrics.toml"),
            "--cells: must be left out; METRIC has its own.",
        ),
    ],
)
def test_options_that_belong_elsewhere_are_named(arguments: tuple[str, ...], reason: str) -> None:
    result = plan("--reports", "1e6", *arguments)
    assert result.exit_code != 0
    assert reason in " ".join(result.stderr.split())


def test_tuples_with_a_string_are_planned_as_candidates(tmp_path: Path) -> None:
    fields = (Field("crash", BooleanType()), Field("driver", StringType()))
    params = RapporParams(256, 1, 64, 0.0, 0.018, 0.5)
    metric = make_metric("crashes", metric_type=JointType(fields), params=params, one_time=True)
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric), encoding="utf-8")
    asked = ("--evaluate", "--reports", "1e6", "crashes", "--metrics", path)
    assert "has a field of strings" in plan(*asked).stderr
    result = plan(*asked, "--candidates", "2000", "--max-bits", "64")
    assert result.exit_code == 0, result.output
    assert "candidates with probability 0.9" in result.stdout
