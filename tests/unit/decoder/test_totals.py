"""What the sum of the detected owes to their having been selected."""

import numpy as np
import pytest
from scipy import special

from hubbub.inference import selection_bias, without_bias

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


def test_shares_give_back_what_they_owe_to_having_been_selected(rng):
    """400 runs of 100 strings on both sides of the limit: unbiased in sum, and nearer altogether.

    The mean of the totals' errors is within 5 of its standard errors and a tenth of the bias. Twice
    the total variation over the detected and anything else is smaller.
    """
    truth, cutoff, std_error = np.linspace(0, 0.06, 100), 2.5, np.full(100, ERROR)
    naive, left, nearer = [], [], []
    for _ in range(400):
        share = truth + ERROR * rng.standard_normal(100)
        detected = share > cutoff * ERROR
        log_p = special.log_ndtr(-share / ERROR)
        limit = float(special.log_ndtr(-cutoff))
        bias, _ = selection_bias(share, std_error, log_p, detected, limit, 1)
        found, held, errors = share[detected], truth[detected], std_error[detected]
        less = without_bias(found, found, errors, cutoff * errors, bias)
        naive.append((found - held).sum())
        left.append((less - held).sum())
        before, after = (np.abs(each - held).sum() for each in (found, less))
        nearer.append(before + abs(naive[-1]) - after - abs(left[-1]))
    assert abs(np.mean(left)) < 5 * np.std(left) / 20 + 0.1 * np.mean(naive)
    assert np.mean(nearer) > 5 * np.std(nearer) / 20


def test_shares_far_above_the_limit_stay():
    share, errors = np.array([0.5, 0.03]), np.full(2, ERROR)
    found = without_bias(share, share, errors, 2.5 * errors, 0.004)
    np.testing.assert_allclose(found, [0.5, 0.026])
    assert without_bias(share, share, errors, 2.5 * errors, -0.1) is share
