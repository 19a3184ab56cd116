"""The suite's cases: every value of every axis occurs, and names tell cases apart."""

from dataclasses import fields, replace

import numpy as np
import pytest
from click.testing import CliRunner

from evaluation.suite.__main__ import main
from evaluation.suite.bounds import TableBounds, promises_kept
from evaluation.suite.cells_matrix import EnumCase, JointCase
from evaluation.suite.matrix import (
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


@pytest.mark.parametrize("cases", [all_cases(), quick_cases()])
def test_names_tell_cases_apart(cases):
    assert len({case.name for case in cases}) == len(cases)


def test_cases_are_chosen_by_pattern():
    cases = all_cases()
    assert matching(cases, ()) == cases
    nulls = matching(cases, ["*null*"])
    assert all(isinstance(case, ListedCase | OpenCase) and case.is_null for case in nulls)
    with pytest.raises(ValueError, match="matches none of"):
        matching(cases, ["*null*", "nothing"])


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
