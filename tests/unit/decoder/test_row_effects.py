"""Random effects by the rows' covariance are those by the members', and decoys are like members."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, special, stats

from factories import make_params
from hubbub.inference.arrays import FloatArray, IntArray, PositionArray, SparseMatrix
from hubbub.inference.candidates import make_design
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression import estimates
from hubbub.inference.regression.estimates import (
    Feedback,
    LeaveOneOutFit,
    PresenceTests,
    bounded_scores,
    draw_decoys,
)
from hubbub.inference.regression.model import Fit, ModelTerms, drawn_members, fit_members
from hubbub.inference.regression.row_effects import RowEffects
from hubbub.inference.testing.hash_null import HashNull, score_totals
from hubbub.inference.testing.multiple_testing import z_scores
from significance import ALARM
from unit.decoder.models import candidates_of, design_of, noisy_bits

FEW = make_params(k=32, h=2, m=2)
N = 120
REPORTS = 4e5
HELD = np.append(np.full(12, 0.05), np.full(12, 0.02))


def crowd(rng: np.random.Generator) -> tuple[BitEstimates, ModelTerms, Fit]:
    """Return rates of 64 rows, 120 candidates, and the model of the unknown mass alone."""
    bits = noisy_bits(design_of(len(HELD), FEW), rng, HELD, REPORTS, FEW)
    matrix = design_of(N, FEW).matrix
    alone = fit_members(bits, ModelTerms.fixed(np.empty(0, dtype=np.int64), matrix[:0]), FEW)
    return bits, ModelTerms.fixed(np.arange(N), matrix), alone


def listed(bits: BitEstimates, members: ModelTerms, fit: Fit) -> tuple[RowEffects, Fit]:
    """Return the random effects of all members after the rounds of two models, and the fit."""
    by_rows = RowEffects(bits, members, FEW)
    for rounds in (6, 3):
        fit = fit_members(bits, by_rows.draw(fit, rounds), FEW, start=fit)
    return by_rows, fit


@pytest.mark.parametrize("empty", [False, True])
def test_rows_and_members_make_the_same_effects(empty, rng):
    bits, members, fit = crowd(rng)
    if empty:
        bits.reports[1] = 0
        fit = fit_members(bits, members.keep(np.zeros(N, dtype=np.bool_)), FEW)
    by_rows, by_members = RowEffects(bits, members, FEW), members
    for rounds in (6, 3):
        by_members = drawn_members(bits, by_members, FEW, fit, rounds)
        drawn = by_rows.draw(fit, rounds)
        for one, other in zip(drawn.effects, by_members.effects, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())
        fit = fit_members(bits, drawn, FEW, start=fit)


def kept(
    drawn: list[tuple[PositionArray, FloatArray]], scores: FloatArray, hashes: int
) -> tuple[PositionArray, FloatArray]:
    positions, weights = draw_decoys(scores, hashes)
    drawn.append((positions, scores))
    return positions, weights


def z_when_listed(
    bits: BitEstimates, members: ModelTerms, fit: Fit, positions: PositionArray
) -> float:
    """Return the z-score of a string's p-value if it is one more candidate."""
    rows = [members.matrix, make_design(positions, FEW).matrix]
    longer = ModelTerms.fixed(np.arange(N + 1), SparseMatrix(sparse.vstack(rows, format="csr")))
    _, fit = listed(bits, longer, fit)
    tests = PresenceTests(fit, candidates_of(1, FEW), bits, FEW)
    residuals, weights = tests.without(LeaveOneOutFit(fit, N))
    scores = bounded_scores(weights * residuals, weights, FEW)
    log_p = HashNull(scores, FEW.h).log_tail(float(score_totals(scores, positions)[0]))
    return float(z_scores(np.array(log_p)))


def test_decoys_stand_for_random_strings(rng, monkeypatch):
    """So many of them, by weight, score as high as random strings do: levels of 1/2 to 1e-5.

    Each mean is within its normal quantile of 20,000 decoys: P(false alarm) < 1e-6 for each.
    """
    monkeypatch.setattr(estimates, "DECOYS", 20_000)
    scores = rng.standard_normal((4, 48))
    positions, weights = draw_decoys(scores, 2)
    p = np.exp(HashNull(scores, 2).log_tails(score_totals(scores, positions)))
    for level in (1.0, 0.5, 1e-2, 1e-3, 1e-4, 1e-5):
        parts = len(p) * weights * (p <= level)
        error = stats.norm.isf(ALARM / 2) * parts.std() / len(p) ** 0.5
        # The saddlepoint approximation is good to some hundredths.
        assert abs(parts.mean() - level) < error + 0.05 * level, level


LOG_P = st.floats(-60, -1e-6)


@given(st.lists(LOG_P, min_size=1, max_size=40), LOG_P, LOG_P)
def test_feedback_makes_no_p_value_smaller_and_keeps_their_order(decoys, one, other):
    found = Feedback.of_decoys(np.array(decoys), np.full(len(decoys), 1 / len(decoys)))
    low, high = sorted((one, other))
    assert found.without(low) <= found.without(high) + 1e-9
    assert found.without(low) >= low - 1e-9 * abs(low)


def test_feedback_is_taken_off():
    """Where decoys' z-scores are higher than they should be by half, so are the candidates'."""
    ranks: IntArray = np.arange(1, 20_001)
    exact = -special.ndtri((ranks - 0.5) / 20_000)
    raised = np.where(exact > 1.2, exact + 0.5, exact)
    found = Feedback.of_decoys(special.log_ndtr(-raised), np.full(20_000, 1 / 20_000))
    for z in (1.5, 2.5, 3.5, 6.0):
        calibrated = found.without(float(special.log_ndtr(-z - 0.5)))
        assert float(z_scores(np.array(calibrated))) == pytest.approx(z, abs=0.01)
    assert found.without(-1.0) == -1.0
