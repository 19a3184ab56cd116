"""The detection limit against the laws that it is made of."""

import numpy as np
import pytest
from scipy import stats

from factories import make_params
from hubbub.inference import (
    CandidateEstimates,
    HashNull,
    limit_of_detection,
    threshold_z,
    unknown_column,
)

PAPER = make_params()


def null_of_noise(m: int = 64, k: int = 128) -> HashNull:
    return HashNull(np.random.default_rng(3).standard_normal((m, k)), 2)


def estimates_of(std_error: float, n: int = 9) -> CandidateEstimates:
    return CandidateEstimates(np.zeros(n), np.full(n, std_error))


def test_threshold_has_the_probability_that_was_asked_for():
    """A skewed law: the tail of the law at its own threshold."""
    scores = np.random.default_rng(3).standard_normal((16, 64))
    scores[:, 0] = 9
    null = HashNull(scores, 1)
    deviation, mean = np.sqrt(scores.var(axis=1).sum()), scores.mean(axis=1).sum()
    for level in (1e-2, 1e-5):
        z = threshold_z(null, level)
        assert z > stats.norm.isf(level) + 0.2
        assert null.log_tail(float(mean + z * deviation)) == pytest.approx(np.log(level), abs=0.02)


@pytest.mark.parametrize(("m", "k"), [(1, 128), (2, 8)], ids=["one cohort", "few outcomes"])
def test_no_share_is_found_if_the_hash_gives_no_such_small_p_values(m, k):
    """128^2 and 8^4 outcomes: none is rarer than one of them."""
    null = HashNull(np.random.default_rng(3).standard_normal((m, k)), 2)
    assert threshold_z(null, 1e-5) == np.inf
    assert np.isfinite(threshold_z(null, 1e-2))
    assert limit_of_detection(estimates_of(0.01), null, make_params(k=k, m=m), 1000, 1e-5, 0.9) == (
        np.inf
    )


def test_limit_is_found_with_the_power_asked_for():
    """The estimate of the limit's share, of its own error, passes the threshold so often."""
    n_reports, std_error = 100_000, 0.004
    null = null_of_noise()
    for power in (0.5, 0.9, 0.99):
        limit = limit_of_detection(estimates_of(std_error), null, PAPER, n_reports, 1e-4, power)
        threshold = std_error * threshold_z(null, 1e-4)
        slope = PAPER.q_star - PAPER.p_star
        bit = unknown_column(PAPER)
        reported = PAPER.p_star + slope * bit
        own = PAPER.k * bit
        own_bits = limit * (1 - 2 * reported) / slope / (own * n_reports)
        alike = limit * (1 - 1 / own) / n_reports
        drawing = limit / n_reports
        deviation = np.sqrt(std_error**2 + own_bits + alike - drawing)
        assert stats.norm.sf(threshold, limit, deviation) == pytest.approx(power, abs=1e-3)
