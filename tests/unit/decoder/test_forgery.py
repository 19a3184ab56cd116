"""The bound on what forged reports can do holds for the decoder's own estimates."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import CohortCounts, count_records, decode
from hubbub.inference import (
    BitEstimates,
    Fit,
    FloatArray,
    IntArray,
    bit_positions,
    estimate_bits,
    fit_selected,
    largest_shift,
    make_design,
)
from hubbub.simulations import SimulatedClients
from unit.collector.forgeries import joined, records_of

PAPER = make_params()
NAMES = tuple(f"name {i}" for i in range(5))
TARGET = "target"
Forger = Callable[[npt.NDArray[np.bool_], np.random.Generator], npt.NDArray[np.bool_]]


def rest_zero(target: npt.NDArray[np.bool_], _rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    return target


def rest_noise(target: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Imitate honest noise everywhere but in the target's bits."""
    return np.asarray(target | (rng.random(target.shape) < PAPER.p_star))


def all_but_target(
    target: npt.NDArray[np.bool_], _rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    return ~target


def counts_with(
    forger: Forger, target: str, share: float, rng: np.random.Generator, n: int = 200_000
) -> CohortCounts:
    """Count honest reports of five names and a share of forged ones about a target."""
    n_forged = round(share * n)
    cohorts, bits = SimulatedClients(NAMES, PAPER, rng).report(rng.integers(5, size=n - n_forged))
    honest = records_of(np.unpackbits(bits, axis=1, bitorder="little"), cohorts)
    chosen = rng.integers(PAPER.m, size=n_forged)
    filters = np.zeros((PAPER.m, PAPER.k), dtype=np.bool_)
    np.put_along_axis(filters, bit_positions([target], PAPER)[0].astype(np.int64), True, axis=1)
    forged = records_of(forger(filters[chosen], rng), chosen)
    return count_records(joined(honest, forged).data, PAPER)


@pytest.mark.parametrize(
    ("forger", "target", "shift"),
    [
        (rest_noise, TARGET, 0.025),
        (rest_zero, TARGET, 0.04),
        (all_but_target, NAMES[0], -0.04),
    ],
    ids=["plausible", "maximal gain", "maximal loss"],
)
def test_one_percent_forged_moves_a_share_by_the_stated_amount(forger, target, shift, rng):
    """2.5 points with plausible reports, 4 with the decoder's worst; P(false alarm) < 1e-6.

    The estimate's standard error is 0.0017 here, its share among the forged is 0 and the bound
    holds for the mean: 5 standard errors are allowed.
    """
    decoding = decode(counts_with(forger, target, 0.01, rng), PAPER, [*NAMES, TARGET])
    index = decoding.candidates.index(target)
    truth = 0.99 / 5 if target in NAMES else 0.0
    moved = decoding.share[index] - truth
    assert moved == pytest.approx(shift, abs=5 * decoding.std_error[index])
    assert abs(moved) < decoding.summary.forgery_shift + 5 * decoding.std_error[index]
    assert 0.04 <= decoding.summary.forgery_shift < 0.05
    assert decoding.summary.forged_share == 0.01


def small_fit(counts: CohortCounts, params: RapporParams) -> tuple[Fit, BitEstimates, FloatArray]:
    """Return a fit of two strings, the rates, and the estimator as a matrix over (c, j)."""
    bits = estimate_bits(counts, params)
    design = make_design(bit_positions(["a", "b"], params), params)
    fit = fit_selected(bits, design, np.array([0, 1]), params)
    matrix = fit.covariance @ fit.basis.toarray() * fit.weights
    return fit, bits, matrix[1:]


def test_bound_is_the_most_that_any_single_forged_report_does():
    """All 256 reports in each of 4 cohorts of unequal size, by brute force, for both strings."""
    params = make_params(k=8, h=2, m=4, f=0.25, p=0.2, q=0.7)
    rng = np.random.default_rng(7)
    reports: IntArray = np.array([4000, 1000, 0, 2500])
    counts = CohortCounts(reports, rng.binomial(reports[:, None], 0.4, size=(4, 8)))
    fit, bits, matrix = small_fit(counts, params)
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    of_one = (patterns - params.p_star) / (params.q_star - params.p_star)
    moves = [
        np.abs(matrix[:, 8 * c : 8 * c + 8] @ (of_one - bits.rate[c]).T).max() / reports[c]
        for c in (0, 1, 3)
    ]
    expected = max(max(moves) * reports.sum(), 1 / (params.q_star - params.p_star))
    assert largest_shift(fit, bits, params, 0.01) == pytest.approx(0.01 * expected)
    assert expected > 1 / (params.q_star - params.p_star), "or the least decides, not the search"


def test_model_without_strings_can_be_moved_by_a_new_one():
    params = make_params(k=8, h=2, m=4)
    counts = CohortCounts(np.full(4, 100), np.full((4, 8), 40))
    bits = estimate_bits(counts, params)
    design = make_design(bit_positions(["a"], params), params)
    fit = fit_selected(bits, design, np.empty(0, dtype=np.int64), params)
    assert largest_shift(fit, bits, params, 0.01) == pytest.approx(0.04)
