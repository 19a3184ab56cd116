"""A perfect table scores as perfect, and each error shows in its own figure."""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from hubbub.inference import (
    CategoryDecoding,
    CellEstimates,
    FloatArray,
    JointDecoding,
    JointEstimates,
    analyse_table,
)
from hubbub.simulations import (
    Coverage,
    JointExperiment,
    joint_population,
    parse_sizes,
    run_joint,
    score_joint,
    true_strength,
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


def test_values_that_nobody_has_leave_the_other_figures_as_they_are():
    """Nobody has the second row's value, so there are no shares among its clients."""
    truth = np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = score_joint(moved(truth, 0.0), truth.ravel())
    assert score.cells == Coverage(6, 6)
    assert score.conditionals == Coverage(9, 9)


def test_strength_is_1_where_one_field_tells_the_other_and_0_where_it_tells_nothing():
    everyone = [np.eye(3), np.eye(3)]
    assert true_strength(np.diag([0.5, 0.3, 0.2]), everyone) == pytest.approx(1)
    assert true_strength(INDEPENDENT, [np.eye(3), np.eye(2)]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("sizes", "size"), [("5x4", {}), ("5sx2", {"k": 64, "m": 4})])
def test_experiment_is_the_same_for_any_number_of_workers(sizes, size):
    """300,000 clients are two chunks; the constrained shares of 5 x 4 cells are close to them."""
    population = joint_population(parse_sizes(sizes), "zipf:1", 0.3, np.random.default_rng(1), size)
    params = noise(4.0)._replace(**population.metric_type.filter_size(size))
    experiment = JointExperiment(population, params, 300_000, seed=5)
    alone, together = (run_joint(experiment, workers).score for workers in (1, 2))
    assert alone == together
    assert alone.total_variation < 0.05
    assert alone.rejected
