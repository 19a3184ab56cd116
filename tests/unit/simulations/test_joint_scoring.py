"""A perfect table scores as perfect, and each error shows in its own figure."""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from evaluation.studies.joint import draw_tuples
from evaluation.tables import Coverage, JointExperiment, joint_population, judge_counts, score_joint
from hubbub.inference import (
    CategoryDecoding,
    CellEstimates,
    FloatArray,
    JointDecoding,
    JointEstimates,
    analyse_table,
)
from unit.decoder.joint_tables import known_table, noise

TRUTH = np.array([[0.3, 0.1, 0.1], [0.02, 0.38, 0.1]])
"""In its last column rows are as frequent as they are in all."""
INDEPENDENT = np.outer([0.5, 0.3, 0.2], [0.7, 0.3])


def decoding_of(estimates: JointEstimates) -> JointDecoding:
    """Return the decoding of a table whose cells' estimates are these."""
    table, interval = analyse_table(estimates), estimates.intervals()
    n = len(estimates.unbiased)
    cells = CellEstimates(
        estimates.unbiased, estimates.std_error, interval.low, interval.high, table.refit,
        np.zeros(n), np.zeros(n), np.ones(n, dtype=np.bool_),
    )  # fmt: skip
    shares = SimpleNamespace(share=cells.refit)
    source = cast("CategoryDecoding", SimpleNamespace(summary=Summary(), estimates=shares))
    return JointDecoding(estimates.fields, cells, table, np.arange(n), source)


class Summary:
    reports = detected = 1_000
    alpha = 0.05
    epsilon_permanent = epsilon_report = 4.0


def moved(truth: FloatArray, by: float, variance: float = 1e-8) -> JointDecoding:
    """Return a table in which so much of the first cell is taken to be in the second."""
    table = truth.copy()
    table.flat[0] -= by
    table.flat[1] += by
    return decoding_of(known_table(table, variance))


def test_true_table_has_no_error_and_all_intervals_hold():
    score = score_joint(moved(TRUTH, 0.0), TRUTH.ravel())
    assert score.total_variation_refit < 1e-3
    assert score.cells == Coverage(6, 6)
    assert score.margins == Coverage(5, 5)
    assert score.conditionals == Coverage(12, 12)
    assert score.strength == Coverage(1, 1)
    assert (score.detected, score.departures, score.wrong_departures) == (6, 4, 0)
    assert score.rejected


def test_moved_clients_are_half_counted_and_missed_by_the_intervals():
    score = score_joint(moved(TRUTH, 0.05), TRUTH.ravel())
    assert score.total_variation_refit == pytest.approx(0.05, abs=1e-3)
    assert score.cells == Coverage(4, 6)
    assert score.margins == Coverage(3, 5)
    assert score.strength == Coverage(0, 1)


def test_departure_from_an_independent_table_is_wrong():
    right = score_joint(moved(INDEPENDENT, 0.0), INDEPENDENT.ravel())
    assert (right.departures, right.wrong_departures) == (0, 0)
    assert right.strength == Coverage(1, 1)  # the true V is 0
    wrong = score_joint(moved(INDEPENDENT, 0.05), INDEPENDENT.ravel())
    assert wrong.departures == wrong.wrong_departures > 0


def test_cells_that_are_left_out_are_missing_mass():
    decoding = moved(TRUTH, 0.0)
    cells = decoding.cells
    share, refit = cells.share.copy(), cells.refit.copy()
    share[3], refit[3] = np.nan, 0.0
    part = replace(decoding, cells=cells._replace(share=share, refit=refit))
    score = score_joint(part, TRUTH.ravel())
    assert score.total_variation_refit == pytest.approx(0.02, abs=1e-3)
    assert score.cells == Coverage(5, 5)


def test_absent_values_leave_the_other_figures_unchanged():
    """Nobody has the second row's value, so there are no shares among its clients."""
    truth = np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = score_joint(moved(truth, 0.0), truth.ravel())
    assert score.cells == Coverage(6, 6)
    assert score.conditionals == Coverage(9, 9)


@pytest.mark.parametrize(("sizes", "size"), [("5x4", {}), ("5sx2", {"k": 64, "m": 4})])
def test_partners_are_seen_in_what_their_clients_report(sizes, size):
    """A third of 100,000 clients hold their partner's value, whatever their tuples are made of."""
    people = joint_population(sizes, "zipf:1", 0.3, np.random.default_rng(1), size)
    params = noise(4.0)._replace(**people.metric_type.filter_size(size))
    experiment = JointExperiment(people, params, 100_000)
    score = judge_counts(experiment, draw_tuples(experiment, np.random.default_rng(5))).score
    assert score.total_variation < 0.1
    assert score.rejected
