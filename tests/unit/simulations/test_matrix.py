"""The suite's cases: every value of every axis occurs, and names tell cases apart."""

from dataclasses import fields, replace

import numpy as np
import pytest
from click.testing import CliRunner

from evaluation.suite.__main__ import main
from evaluation.suite.bounds import TableBounds, promises_kept
from evaluation.suite.cells_matrix import EnumCase, JointCase
from evaluation.suite.matrix import (
    DISTRIBUTIONS,
    FILTERS,
    ONCE,
    PRIVACY,
    ListedCase,
    all_cases,
    matching,
    quick_cases,
    run_suite,
)
from evaluation.suite.open_matrix import OpenCase
from evaluation.suite.result import suite_estimates, suite_sentence
from hubbub.inference.repeated_reports import ONCE as ONE_REPORT
from hubbub.reporting.estimates import Table
from hubbub.reporting.findings import Level
from hubbub.simulations.experiments.tables import CategoryExperiment, run_categories

TINY = ListedCase("zipf:1", 20, 20_000, 32, 1, 8, "chrome", 1.0)


def listed_cases() -> list[ListedCase]:
    return [case for case in all_cases() if isinstance(case, ListedCase)]


def test_every_value_of_every_axis_occurs():
    cases = listed_cases()
    assert {case.distribution for case in cases} == set(DISTRIBUTIONS)
    assert {(case.k, case.h, case.m) for case in cases} == {*FILTERS, ONCE}
    assert {case.privacy for case in cases} == set(PRIVACY)
    assert {case.unique for case in cases} == {100, 1_000, 10_000}
    assert {case.reports for case in cases} == {100_000, 1_000_000, 10_000_000}
    assert {0.0, 0.2, 10.0, 100.0} <= {case.extra for case in cases}
    assert sum(case.is_null for case in cases) >= 5
    assert 30 <= len(cases) <= 60


@pytest.mark.parametrize("cases", [all_cases(), quick_cases()])
def test_names_tell_cases_apart(cases):
    assert len({case.name for case in cases}) == len(cases)


def test_world_lists_nine_tenths_and_the_extra_candidates():
    scenario = ListedCase("uniform", 100, 1_000, 8, 2, 16, "tight", 0.2).scenario(0)
    assert len(scenario.population.values) == 100
    assert len(scenario.candidates) == 90 + 20


def test_null_world_lists_a_thousand_strings_that_nobody_holds():
    scenario = ListedCase("uniform", 100, 1_000, 8, 2, 16, "tight", 0.0, 1.0).scenario(0)
    assert len(scenario.candidates) == 1_000
    assert not set(scenario.candidates) & set(scenario.population.values)


def test_every_run_has_strings_of_its_own():
    assert not set(TINY.scenario(0).candidates) & set(TINY.scenario(1).candidates)


def test_cases_are_chosen_by_pattern():
    cases = all_cases()
    assert matching(cases, ()) == cases
    nulls = matching(cases, ["*null*"])
    assert all(isinstance(case, ListedCase | OpenCase) and case.is_null for case in nulls)
    with pytest.raises(ValueError, match="matches none of"):
        matching(cases, ["*null*", "nothing"])


def test_tables_have_their_parameters_in_their_names_and_other_partners_in_each_run():
    cases = [case for case in all_cases() if isinstance(case, JointCase)]
    assert {"joint-100x20-1M-eps4-partners30", "joint-100x20-0.03M-eps2-independent",
            "joint-1000sx2-1M-eps4-partners30"} <= {case.name for case in cases}  # fmt: skip
    (case,) = matching(cases, ["joint-10x10x2-*"])
    assert isinstance(case, JointCase)
    one, other = (case.experiment(run) for run in (0, 1))
    assert (one.params.k, one.params.h, one.params.m) == (200, 1, 1)
    assert one.params.epsilon_report == pytest.approx(4)
    assert not (one.population.shares == other.population.shares).all()
    hashed = next(case for case in cases if "s" in case.sizes).experiment(3)
    assert (hashed.params.k, hashed.params.m) == (128, 64)
    assert hashed.population.fields[0].labels[0] == "run 3 first 1"


def test_tables_are_run_judged_and_shown():
    small = JointCase("4x3", 5_000, 4, 30, TableBounds(rejected=(0.98, 1.0)))
    results = run_suite([TINY, small], 2, 1)
    assert [result.candidates for result in results] == [len(TINY.scenario(0).candidates), 12]
    assert results[1].rejected.mean == 1
    found = suite_estimates(results)
    assert found["rejected"][1] == 1
    table, _ = found.view
    assert isinstance(table, Table)
    shown = dict(zip(table.header, table.rows[1], strict=True))
    assert shown["rejected"] == "1.00"
    assert shown["any false"] == ""


@pytest.mark.long
def test_result_is_the_same_for_any_number_of_workers():
    alone, together = (run_suite([TINY], 3, workers)[0] for workers in (1, 2))
    assert alone.coverage == together.coverage
    for one, other in (
        (alone.total_variation, together.total_variation),
        (alone.baseline_variation, together.baseline_variation),
    ):
        assert one.mean == pytest.approx(other.mean, rel=1e-9)


def test_progress_ends_with_all_runs():
    told: list[tuple[int, int]] = []
    run_suite([TINY], 2, 1, lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]


def test_a_case_is_a_row_of_figures_and_their_errors():
    (result,) = results = run_suite([TINY], 2, 1)
    found = suite_estimates(results)
    assert (list(found["case"]), list(found["runs"])) == ([TINY.name], [2])
    assert found["coverage"][0] == result.coverage.mean
    assert found["coverage_std_error"][0] == result.coverage.std_error
    assert np.isnan(found["if_listed"][0])
    (finding,) = found.findings
    assert (finding.text, finding.value) == (suite_sentence(results), promises_kept(results))
    broken = suite_estimates([replace(result, broken=("coverage 0.5",))])
    assert broken.findings[0].level is Level.WARNING
    assert list(broken["broken"]) == ["coverage 0.5"]


def test_command_lists_the_cases_and_refuses_others():
    listed = CliRunner().invoke(main, ["--quick", "--list"])
    assert listed.output.split() == [case.name for case in quick_cases()]
    refused = CliRunner().invoke(main, ["--case", "nonsense"])
    assert refused.exit_code == 2
    assert "case 'nonsense': matches none of" in refused.output


def test_format_that_can_not_be_written_is_refused():
    refused = CliRunner().invoke(main, ["--quick", "--output", "table.xlsx"])
    assert refused.exit_code == 2
    assert "must end in .csv, .json, .parquet or .html" in refused.output


def test_enums_are_asked_with_sets_and_bits_once_and_in_several_periods():
    cases = [case for case in all_cases() if isinstance(case, EnumCase)]
    assert {case.response for case in cases} == {"subset", "bits"}
    assert {case.periods for case in cases} == {1, 6}
    for case in cases:
        experiment = case.experiment(0)
        assert experiment.plan.metric.epsilon_report == pytest.approx(case.epsilon, rel=1e-3)
        assert np.count_nonzero(experiment.population.shares == 0) == 2
        assert experiment.repeats.clients == case.periods


def test_intervals_of_an_enum_need_to_know_of_a_clients_other_periods():
    """Forty runs, over which coverage scatters by .008 and .017; P(false alarm) < 1e-6; seeded."""

    class Forgetful(CategoryExperiment):
        repeats = ONE_REPORT

    case = EnumCase(20, 10_000, 8, periods=6)
    coverage: dict[type[CategoryExperiment], list[float]] = {CategoryExperiment: [], Forgetful: []}
    for number in range(40):
        experiment = case.experiment(number)
        settings = {each.name: getattr(experiment, each.name) for each in fields(experiment)}
        for made, covered in coverage.items():
            covered.append(run_categories(made(**settings)).score.interval_coverage)
    assert np.mean(coverage[CategoryExperiment]) > 0.9
    assert np.mean(coverage[Forgetful]) < 0.75
