"""Two unbiased shares of each string -> one, by inverse variance.

Invariant: weights must not lean on the noise of one of the two estimates. A count that came out low
would have a low variance by its own share s(1 - s) / n, and so too much weight. Variances are those
at the blended share itself, which makes it the root of an unbiased estimating equation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import FloatArray

# Fixed-point steps and bisections: far more than either needs to reach `_STANDS`, which is far
# below any error.
_ROUNDS = 200
_STANDS = 1e-12


@dataclass(frozen=True, slots=True)
class Variances:
    """What the two shares scatter by, if the population's share is s.

    Attributes
    ----------
    local : float64 array, shape (r,)
        Squared standard error about the collected reports' share; inf where that is unknown.
    reports : float
        N: these are drawn from the population, too, s(1 - s) / N; N / D where clients report again.
    noise : float
        Of a count.
    users, users_variance : float
        n, the noisy number of users, and the variance of its noise.
    """

    local: FloatArray
    reports: float
    noise: float
    users: float
    users_variance: float

    def of_local(self, share: FloatArray) -> FloatArray:
        """Return the variance of the local shares."""
        return np.asarray(self.local + share * (1 - share) / self.reports)

    def of_central(self, share: FloatArray) -> FloatArray:
        """Return s(1 - s) / n + noise / n^2 + s^2 var_n / n^2, the variance of count / n."""
        drawn = share * (1 - share) / self.users
        return drawn + (self.noise + share**2 * self.users_variance) / self.users**2


@dataclass(frozen=True, slots=True)
class Pooled:
    """Blended shares.

    Attributes
    ----------
    share, std_error : float64 array, shape (r,)
    weight : float64 array, shape (r,)
        Of the central share.
    """

    share: FloatArray
    std_error: FloatArray
    weight: FloatArray


def pool(local: FloatArray, central: FloatArray, variances: Variances) -> Pooled:
    """Blend shares by the inverse of their variances at the blended share.

    Parameters
    ----------
    local : float64 array, shape (r,)
        nan where `variances.local` is inf.
    central : float64 array, shape (r,)
    variances : Variances
        Both groups' variances as functions of the true share.

    Notes
    -----
    The blended share solves g(s) = sum_i (x_i - s) / v_i(s) = 0. E g(s) = 0 at the true s whatever
    the weights are, and the second-order terms of the root's bias cancel: with I = sum 1 / v_i they
    are E[g g'] / I^2 = -sum (v_i' / v_i^2) / I^2 and E[g''] var g / (2 I^3), which is the same with
    the other sign. (With v_i(x_i) in place of v_i(s) the bias is of the order of v_i'.) Shares
    outside of [0, 1] have the variances of the nearest end.
    """
    known = np.where(np.isnan(local), 0.0, local)
    pooled = central
    for _ in range(_ROUNDS):
        weight, _ = _weights(pooled, variances)
        moved = weight * central + (1 - weight) * known
        if np.max(np.abs(moved - pooled), initial=0.0) < _STANDS:
            break
        pooled = (pooled + moved) / 2
    weight, _ = _weights(pooled, variances)
    share = weight * central + (1 - weight) * known
    _, variance = _weights(share, variances)
    return Pooled(share, np.sqrt(variance), weight)


def _weights(share: FloatArray, variances: Variances) -> tuple[FloatArray, FloatArray]:
    """Return the central weights and the blended variances at a share."""
    possible = np.clip(share, 0.0, 1.0)
    precision = 1 / variances.of_central(possible)
    of_local = 1 / variances.of_local(possible)
    return precision / (precision + of_local), 1 / (precision + of_local)


def fitted_to_one(share: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the nearest shares, by variance, of which none is negative and which are 1 at most.

    Notes
    -----
    Minimises sum (b - share)^2 / variance: b = max(share - c variance, 0) for the least c >= 0.
    """
    if np.maximum(share, 0.0).sum() <= 1:
        return np.maximum(share, 0.0)
    low, high = 0.0, float((share / variance).max())
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if np.maximum(share - middle * variance, 0.0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.asarray(np.maximum(share - high * variance, 0.0))
