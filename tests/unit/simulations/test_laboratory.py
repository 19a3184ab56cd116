"""Trials run alike on any number of processes; figures and tables show what they rest on."""

import json
import math
import os

import numpy as np
import pytest
from scipy import stats

from evaluation.drawn_counts import draw_counts
from evaluation.laboratory import UNKNOWN, Case, Figure, run_trials
from evaluation.measured_table import ENDINGS, MeasuredTable
from evaluation.studies.study import Study, mean, means
from factories import make_params
from hubbub.protocol.metric_types.enums import EnumType
from significance import ALARM, chi_squared_p
from unit.simulations.numbered_cases import Drawn, Threads

CASES = (Drawn("one", 1.0), Drawn("other", 9.0))


@pytest.fixture(scope="module")
def together() -> tuple[tuple[float | str | None, ...], ...]:
    """Return the scores of both cases, and the threads of a third, on two processes."""
    cases: list[Case[float | str | None]] = [*CASES, Threads()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "7")
        patch.delenv("MKL_NUM_THREADS", raising=False)
        found = run_trials(cases, 3, 2)
        assert os.environ["OMP_NUM_THREADS"] == "7"
        assert "MKL_NUM_THREADS" not in os.environ
    return found


def test_scores_come_case_by_case_and_are_the_same_on_two_processes(together):
    alone = run_trials(CASES, 3, 1)
    assert alone == together[:2]
    assert alone[0] == tuple(CASES[0].run(number) for number in range(3))
    assert len({score for scores in alone for score in scores}) == 6


def test_processes_compute_on_one_thread_and_leave_the_environment_as_it_was(together):
    assert together[2] == ("1", "1", "1")


def test_figure_is_of_the_trials_that_have_a_value():
    figure = Figure.of([1.0, math.nan, 3.0])
    assert (figure.mean, figure.runs) == (2.0, 2)
    assert figure.std_error == pytest.approx(1.0)
    assert str(figure) == "2.0 ± 1.0"
    assert str(Figure.of([0.25])) == "0.250"
    assert Figure.of([math.nan]) is UNKNOWN
    assert str(UNKNOWN) == ""


TABLE = MeasuredTable(
    "Shares", ("case", "share"), (("one", ".5"), ("another", ".25")), ("A note.",),
    "2026-11-24", {"cpu": "a CPU", "cores": 2, "python": "3.11.7", "hubbub": "0.1.0"},
)  # fmt: skip


def test_table_is_written_in_every_form(tmp_path):
    origin = "2026-11-24; a CPU, 2 cores; Python 3.11.7, hubbub 0.1.0"
    assert TABLE.text().splitlines() == [
        "Shares", "", "| case    | share |", "| --- | --- |", "| one     |    .5 |",
        "| another |   .25 |", "", "A note.", "", origin,
    ]  # fmt: skip
    for ending in ENDINGS:
        TABLE.write(tmp_path / f"table{ending}")
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == TABLE.markdown() + "\n"
    document = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert document["rows"] == [["one", ".5"], ["another", ".25"]]
    assert document["machine"]["cpu"] == "a CPU"
    assert (tmp_path / "table.csv").read_text() == "case,share\none,.5\nanother,.25\n"


def test_study_has_a_row_for_each_case():
    columns = {"case": lambda case, _: case.name, "drawn": lambda _, scores: mean(scores)}
    cases = (Drawn("one"), Drawn("other"))
    study = Study("Drawn", "What was drawn.", lambda: cases, columns)
    table = study.table(cases, 4)
    assert [row[0] for row in table.rows] == ["one", "other"]
    assert table.rows[0][1] == str(Figure.of(run_trials(cases[:1], 4)[0]))
    assert list(means("any_false")) == ["any false"]


def test_drawn_counts_have_the_distribution_of_counted_reports(rng):
    """One bit's count over 4,000 draws, against the binomial; P(false alarm) = 1e-6.

    Everybody holds the first of three categories, so that counts of its bit are binomial.
    """
    params, kinds = make_params(8, 1, 1, f=0.5, p=0.25, q=0.75), EnumType(("a", "b", "c"))
    shares, reports = np.array([1.0, 0.0, 0.0]), 20
    ones = [
        draw_counts(("a", "b", "c"), shares, params, reports, rng, kinds).bits[0, 0]
        for _ in range(4_000)
    ]
    seen = np.bincount(ones, minlength=reports + 1)
    expected = 4_000 * stats.binom.pmf(np.arange(reports + 1), reports, params.q_star)
    usual = expected > 5
    assert usual.sum() > 8
    pooled = np.append(seen[usual], seen[~usual].sum())
    assert chi_squared_p(pooled, np.append(expected[usual], expected[~usual].sum())) > ALARM
