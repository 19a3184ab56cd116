"""Corrections for testing many candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from hubbub.decoder import Correction
from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.inference.multiple_testing import absent_share, log_cutoff, log_q_values

log_p_values = arrays(np.float64, st.integers(1, 50), elements=st.floats(-700, 0))


@given(log_p_values)
def test_benjamini_hochberg_is_scipys_times_the_share_of_the_absent(log_p: FloatArray) -> None:
    held = stats.false_discovery_control(np.exp(log_p), method="bh")
    above = log_p > np.log(0.5)
    share = min(2 * (1 + int(above.sum())) / len(log_p), 1.0)
    assert absent_share(log_p) == pytest.approx(share)
    order = np.argsort(log_p)
    ranks = np.arange(1, len(log_p) + 1)
    stepped = share * len(log_p) * np.exp(log_p[order]) / ranks
    expected = np.empty(len(log_p))
    expected[order] = np.minimum(np.minimum.accumulate(stepped[::-1])[::-1], 1)
    expected[above] = 1
    found = np.exp(log_q_values(log_p, Correction.BH))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if share == 1:
        np.testing.assert_allclose(found[~above], held[~above], rtol=1e-9)


@given(log_p_values, st.integers(0, 60))
def test_candidates_whose_p_values_are_not_given_have_p_values_of_one(
    log_p: FloatArray, others: int
) -> None:
    everyone = np.append(log_p, np.zeros(others))
    for correction in Correction:
        expected = log_q_values(everyone, correction)[: len(log_p)]
        found = log_q_values(log_p, correction, len(everyone))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_no_p_value_above_a_half_counts_however_many_are_there() -> None:
    log_p = np.append(np.full(99, -50.0), np.log(0.6))
    assert log_q_values(log_p, Correction.BH)[-1] == 0
    assert np.exp(log_cutoff(log_p, 99, np.log(0.05), Correction.BH)) <= 0.5 + 1e-12


@given(log_p_values)
def test_bonferroni_multiplies_by_the_number_of_candidates(log_p: FloatArray) -> None:
    expected = np.minimum(len(log_p) * np.exp(log_p), 1)
    log_q = log_q_values(log_p, Correction.BONFERRONI)
    np.testing.assert_allclose(np.exp(log_q), expected, rtol=1e-9)


@pytest.mark.parametrize("correction", Correction)
def test_p_values_too_small_for_a_double_do_not_underflow(correction: Correction) -> None:
    log_p = np.array([-100_000.0, -50_000.0, -1.0])
    log_q = log_q_values(log_p, correction)
    tests = 3 if correction is Correction.BONFERRONI else 2  # the share of the absent is 2/3
    assert log_q[0] == pytest.approx(-100_000 + np.log(tests))
    assert log_q[0] < log_q[1] < -40_000


@given(log_p_values, st.sampled_from(Correction), st.integers(0, 2**32))
def test_order_of_candidates_does_not_matter(
    log_p: FloatArray, correction: Correction, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(log_p))
    shuffled = log_q_values(log_p[order], correction)
    np.testing.assert_allclose(shuffled, log_q_values(log_p, correction)[order])


@given(log_p_values)
def test_bonferroni_is_never_laxer_than_benjamini_hochberg(log_p: FloatArray) -> None:
    lax, strict = (log_q_values(log_p, c) for c in (Correction.BH, Correction.BONFERRONI))
    below = log_p <= np.log(0.5)
    assert (lax <= strict + 1e-9)[below].all()


def test_single_candidate_needs_no_correction() -> None:
    for correction in Correction:
        assert log_q_values(np.array([-3.0]), correction)[0] == -3.0


@given(log_p_values, st.sampled_from(Correction), st.floats(0.001, 0.3))
def test_cutoff_is_where_detection_ends(
    log_p: FloatArray, correction: Correction, alpha: float
) -> None:
    """Detected are those up to it; one that moves to either side of it changes sides."""
    detected = log_q_values(log_p, correction) <= np.log(alpha)
    n_detected = int(detected.sum())
    cutoff = log_cutoff(log_p, n_detected, float(np.log(alpha)), correction)
    if n_detected:
        assert log_p[detected].max() <= cutoff + 1e-9
        moved, place = log_p.copy(), int(detected.argmax())
        moved[place] = cutoff - 1e-6
        assert log_q_values(moved, correction)[place] <= np.log(alpha)
        if correction is Correction.BONFERRONI:
            moved[place] = cutoff + 1e-6
            assert log_q_values(moved, correction)[place] > np.log(alpha)
    if not detected.all():
        assert log_p[~detected].min() > cutoff - 1e-9
