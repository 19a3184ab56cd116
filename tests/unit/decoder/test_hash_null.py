"""The law of an absent string's score: exact where it can be enumerated, close elsewhere."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special

from hubbub.inference import FloatArray, HashNull, score_totals

Levels = npt.NDArray[np.int64]


def brute_force_tail(scores: FloatArray, hashes: int, total: float) -> float:
    """Return P(T >= total) by trying every outcome of every hash in every cohort."""
    choices = [row for row in scores.tolist() for _ in range(hashes)]
    totals = np.array([sum(outcome) for outcome in itertools.product(*choices)])
    return float(np.mean(totals >= total - 1e-9))


def lattice_tails(levels: Levels, hashes: int) -> FloatArray:
    """Return P(T >= 0), P(T >= 1), ... of non-negative whole scores, by convolution."""
    law = np.ones(1)
    for row in levels:
        for _ in range(hashes):
            law = np.convolve(law, np.bincount(row) / len(row))
    return np.asarray(np.cumsum(law[::-1])[::-1])


def normal_levels(rng: np.random.Generator, m: int = 64, k: int = 128) -> Levels:
    """Return scores as noise gives them, in steps of a hundredth of a standard deviation."""
    return np.asarray(np.clip(100 * rng.standard_normal((m, k)), -400, 400) + 400).astype(np.int64)


def levels_with_strong_strings(rng: np.random.Generator) -> Levels:
    """Return scores where three strings' bits in each cohort stand out, at the clip of 4 sd."""
    levels = normal_levels(rng)
    for row in levels:
        row[rng.choice(128, 6, replace=False)] = 800
    return levels


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(2, 4)),
        elements=st.integers(-3, 3).map(float),
    ),
    st.integers(1, 2),
    st.integers(-20, 20),
)
def test_small_problems_are_enumerated_exactly(scores, hashes, total):
    """A total beyond all outcomes counts as the highest one, or its p-value would be zero."""
    highest = hashes * float(scores.max(axis=1).sum())
    expected = brute_force_tail(scores, hashes, min(total, highest))
    (log_tail,) = HashNull(scores, hashes).log_tails(np.array([float(total)]))
    rarest = scores.shape[1] ** -float(len(scores) * hashes)
    if total > highest:
        assert rarest <= np.exp(log_tail) * (1 + 1e-9) <= expected * (1 + 2e-9)
    else:
        assert np.exp(log_tail) == pytest.approx(expected)


@pytest.mark.parametrize("make_levels", [normal_levels, levels_with_strong_strings])
@pytest.mark.parametrize("hashes", [1, 2])
def test_large_problems_follow_the_exact_convolution(make_levels, hashes, rng):
    """Within 1% of the probability itself, from 0.999 down to 1e-12."""
    levels = make_levels(rng)
    tails = lattice_tails(levels, hashes)
    totals = np.flatnonzero((tails > 1e-12) & (tails < 0.999))
    log_tails = HashNull(levels.astype(np.float64), hashes).log_tails(
        totals.astype(np.float64) - 0.5
    )
    np.testing.assert_allclose(log_tails, np.log(tails[totals]), atol=0.01)


def test_score_total_counts_a_repeated_position_twice():
    """The null law draws every hash on its own, so the score must add every hash on its own."""
    scores = np.array([[1.0, 2.0, 4.0], [10.0, 20.0, 40.0]])
    positions = np.array([[[0, 2], [1, 1]], [[1, 1], [0, 2]]], dtype=np.int16)
    assert score_totals(scores, positions).tolist() == [45.0, 54.0]


def test_many_scores_are_put_into_classes_without_loss():
    """Rows of 16,384 scores with some far out: tails within 1e-3 of those of all scores."""
    rng = np.random.default_rng(7)
    scores = rng.standard_normal((20, 16_384)) + 3 * (rng.random((20, 16_384)) < 0.01)
    null = HashNull(scores, 1)
    t = np.linspace(0.1, 6, 12)
    largest = scores.max(axis=1)
    weights = np.exp(t[:, None, None] * (scores - largest[:, None]))
    exact = (np.log(weights.mean(axis=2)) + t[:, None] * largest).sum(axis=1)
    mean = ((weights * scores).sum(axis=2) / weights.sum(axis=2)).sum(axis=1)
    second = (weights * scores**2).sum(axis=2) / weights.sum(axis=2)
    variance = (second - ((weights * scores).sum(axis=2) / weights.sum(axis=2)) ** 2).sum(axis=1)
    r = np.sqrt(2 * (t * mean - exact))
    expected = special.log_ndtr(-(r + np.log(t * np.sqrt(variance) / r) / r))
    expected = np.maximum(expected, null.log_smallest())
    found = [null.log_tail(float(total)) for total in mean]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
