"""What the sum of the detected owes to their having been selected."""

import numpy as np
import pytest
from scipy import special

from hubbub.inference import selection_bias

ERROR = 0.01


def errors_of_a_run(
    rng: np.random.Generator, truth: np.ndarray, cutoff: float
) -> tuple[float, float, float]:
    """Return the error of the detected sum, the expected bias and its variance."""
    share = truth + ERROR * rng.standard_normal(len(truth))
    std_error = np.full(len(truth), ERROR)
    log_p = special.log_ndtr(-share / std_error)
    log_cutoff = float(special.log_ndtr(-cutoff))
    detected = log_p <= log_cutoff
    n_absent = int((truth == 0).sum())
    bias, added = selection_bias(share, std_error, log_p, detected, log_cutoff, n_absent)
    return float((share - truth)[detected].sum()), bias, added


@pytest.mark.parametrize("cutoff", [1.5, 2.5, 3.5])
@pytest.mark.parametrize("strongest", [0.03, 0.06, 0.2])
def test_sum_of_the_detected_is_unbiased_after_it(rng, cutoff, strongest):
    """400 runs of 100 strings with and 900 without shares.

    The mean of the errors is within 5 of its standard errors and a tenth of the bias, which the
    width of the window may cost: P(false alarm) < 1e-6 each, apart from that tenth.
    """
    truth = np.append(np.linspace(0, strongest, 100), np.zeros(900))
    runs = np.array([errors_of_a_run(rng, truth, cutoff) for _ in range(400)])
    left = runs[:, 0] - runs[:, 1]
    naive = float(runs[:, 0].mean())
    assert naive > 10 * float(runs[:, 0].std()) / 20
    assert abs(left.mean()) < 5 * left.std() / 20 + 0.1 * naive
