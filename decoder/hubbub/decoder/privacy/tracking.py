"""What somebody who can link one client's reports learns of its permanent response.

Each reported bit is a new coin with bias q or p, so from n reports the permanent bits follow one by
one, with an error that falls exponentially. The permanent response is a fingerprint, not a value:
epsilon_permanent still holds. All probabilities here are exact sums of binomials.
"""

from __future__ import annotations

import math

from scipy import stats

from hubbub.protocol.params import RapporParams

_MOST = 2**40


def permanent_known(params: RapporParams, reports: int) -> float:
    """Return the probability that all k permanent bits are guessed right from linked reports.

    The observer takes each bit's likelier value; of two equally likely ones, either. The value has
    h distinct bits, and all k bits of a report take part.

    Parameters
    ----------
    params : RapporParams
        With f > 0: otherwise there is no permanent response.
    reports : int
        n, of one value of one client.
    """
    if_one, if_zero = _right(params, reports)
    of_true = (1 - params.flip) * if_one + params.flip * if_zero
    of_others = params.flip * if_one + (1 - params.flip) * if_zero
    return of_true**params.h * of_others ** (params.k - params.h)


def reports_to_know(params: RapporParams, probability: float) -> float:
    """Return the number of linked reports with which the permanent response is known.

    n reports reach the probability and n - 1 don't; infinite beyond 2^40.

    Parameters
    ----------
    params : RapporParams
    probability : float
        That all bits are right, in (0, 1).
    """
    high = 1
    while permanent_known(params, high) < probability:
        high *= 2
        if high > _MOST:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if permanent_known(params, middle) >= probability:
            high = middle
        else:
            low = middle
    return high


def _right(params: RapporParams, n: int) -> tuple[float, float]:
    """Return the chance that a permanent 1, and a permanent 0, is guessed right from n coins."""
    low, high = sorted((params.p, params.q))
    line = n * _threshold(low, high)
    nearest = round(line)
    tie = 0 < nearest < n and abs(line - nearest) < 1e-9 * n
    last = nearest if tie else math.floor(line) if line < n else n - 1
    share = 0.5 if tie else 0.0
    if_high = stats.binom.sf(last, n, high) + share * stats.binom.pmf(last, n, high)
    if_low = stats.binom.cdf(last, n, low) - share * stats.binom.pmf(last, n, low)
    return (if_high, if_low) if params.q > params.p else (if_low, if_high)


def _threshold(low: float, high: float) -> float:
    """Return the share of ones above which the bias `high` is likelier than `low`."""
    if low == 0:
        return 0.0 if high < 1 else 0.5
    if high == 1:
        return 1.0
    zeros, ones = math.log((1 - low) / (1 - high)), math.log(high / low)
    return zeros / (zeros + ones)
