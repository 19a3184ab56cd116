"""Random effects whose distribution is estimated: most shares are 0, the others are of any size.

A list that rows can't carry as fixed effects leaves each share's error to what is supposed of the
others. Draws of one variance suppose too little: beside thirty strings of 1% and three hundred
absent ones the first are drawn towards 0, the latter scatter, and both widen every error. Here the
shares are draws from a mixture of 0 and of bells from half an error up to 1, whose weights are the
most likely ones (Robbins 1956), and each share gets the normal distribution that stands for what
the mixture says of it, given all rows (expectation propagation: Minka 2001, Opper and Winther
2005).

Invariant: what stands for a share isn't used for its own estimate or test, but for the others'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import FloatArray

# Bells begin at half an error: smaller shares are like 0. Each is larger by 40% than the one
# before, and half as wide as the step, so that together they leave no gap.
_LEAST_SHARE, _FACTOR = 0.5, 1.4
# Of the mixture's weights, for each round of the shares: these converge as slowly.
_WEIGHTINGS = 10
UNDETERMINED = 1e-6
"""Of a share's information: less is rounding, and the rows don't determine it."""
# What stands for a share leaves between a thousandth of its variance and all but a ten-thousandth
# of its information, so that neither is rounding.
_LEAST_VARIANCE, _LEAST_PENALTY = 1e-3, 1e-4
# Of what a share's part was before: keeps two shares that compete from taking turns.
_KEPT = 0.3


class Effects(NamedTuple):
    """Normal distributions of the members' shares: precision, and precision times mean.

    Attributes
    ----------
    penalties, pulls : float64 array, shape (a,)
        Both 0 for fixed effects, which may be anything.
    """

    penalties: FloatArray
    pulls: FloatArray


def sparse_effects(
    gram: FloatArray, sums: FloatArray, start: Effects | None, rounds: int
) -> Effects:
    """Return what stands for each share, given all rows.

    Parameters
    ----------
    gram : float64 array, shape (1 + a, 1 + a)
        Of the unknown mass, which is a fixed effect, and the members.
    sums : float64 array, shape (1 + a,)
        The rates' weighted sums over the same columns.
    start : Effects, optional
        Of a similar model.
    rounds : int
        How often what stands for a share is worked out from what stands for the others.
    """
    own = np.diag(gram)[1:]
    size = float(1 / np.sqrt(np.median(own)))
    means, variances = _bells(size)
    effects = start or Effects(own.copy(), np.zeros(len(own)))
    weights = np.full(len(means), 1 / len(means))
    kept = _KEPT if start else 0.0  # of a mere guess nothing
    for _ in range(rounds):
        share, variance = _shares_without(gram, sums, effects)
        total = variance[:, None] + variances
        surprise = (share[:, None] - means) ** 2 / total + np.log(total)
        likelihood = np.exp((surprise.min(axis=1, keepdims=True) - surprise) / 2)
        for _ in range(_WEIGHTINGS):
            parts = likelihood * weights
            parts /= parts.sum(axis=1, keepdims=True)
            weights = parts.mean(axis=0)
        inner = (share[:, None] * variances + means * variance[:, None]) / total
        mean = (parts * inner).sum(axis=1)
        scatter = variance[:, None] * variances / total + (inner - mean[:, None]) ** 2
        left = np.maximum((parts * scatter).sum(axis=1), _LEAST_VARIANCE * variance)
        penalties = np.maximum(1 / left - 1 / variance, _LEAST_PENALTY / variance)
        pulls = mean * (penalties + 1 / variance) - share / variance
        effects = Effects(
            kept * effects.penalties + (1 - kept) * penalties,
            kept * effects.pulls + (1 - kept) * pulls,
        )
        kept = _KEPT
    return effects


def _bells(size: float) -> tuple[FloatArray, FloatArray]:
    """Return means and variances of the mixture's parts, the first of which is 0."""
    steps = max(int(np.ceil(np.log(1 / (_LEAST_SHARE * size)) / np.log(_FACTOR))), 0)
    means = _LEAST_SHARE * size * _FACTOR ** np.arange(steps + 1)
    widths = (_FACTOR - 1) / 2 * means
    return np.append(0.0, means), np.append(0.0, widths**2)


def _shares_without(
    gram: FloatArray, sums: FloatArray, effects: Effects
) -> tuple[FloatArray, FloatArray]:
    """Return each share and its variance as if it alone were a fixed effect; shape (a,) each."""
    precision = gram.copy()
    precision[np.diag_indices(len(gram))] += np.append(0.0, effects.penalties)
    # Variances need no more of the inverse than its root: a third less work.
    root = linalg.cholesky(precision, lower=True, overwrite_a=True)
    inverse, _ = linalg.lapack.dtrtri(root, lower=1, overwrite_c=1)
    own = np.einsum("ij,ij->j", inverse, inverse)[1:]
    found = (inverse.T @ (inverse @ (sums + np.append(0.0, effects.pulls))))[1:]
    reliability = np.maximum(1 - effects.penalties * own, UNDETERMINED)
    return (found - effects.pulls * own) / reliability, own / reliability
