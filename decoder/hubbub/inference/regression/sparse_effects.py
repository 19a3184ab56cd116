"""Random effects whose distribution is estimated: most shares are 0, the others are of any size.

A list that rows can't carry as fixed effects leaves each share's error to what is supposed of the
others. Draws of one variance suppose too little: with thirty strings of 1% and three hundred
absent ones the first are drawn towards 0, the latter scatter, and both widen every error. Here the
shares are draws from a mixture of 0 and of bells from half an error up to 1, whose weights are the
most likely ones (Robbins 1956), and each share gets the normal distribution that stands for its
posterior given all rows (expectation propagation: Minka 2001, Opper and Winther
2005).

Invariant: what stands for a share isn't used for its own estimate or test, but for the others'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import FloatArray

# The bells begin at half an error: smaller shares are like 0. Each is larger by 40% than the one
# before, and half as wide as the step, so that together they leave no gap.
_LEAST_SHARE, _FACTOR = 0.5, 1.4
# Updates of the mixture's weights per round of the shares, which converge as slowly.
_WEIGHTINGS = 10
UNDETERMINED = 1e-6
"""Part of a share's information: less is rounding, and the rows don't determine it."""
# A share's normal distribution leaves between a thousandth of its variance and all but a
# ten-thousandth of its information, so that neither is rounding.
_LEAST_VARIANCE, _LEAST_PENALTY = 1e-3, 1e-4
# Weight of a share's part before: keeps two shares that compete from taking turns.
_KEPT = 0.3


class Effects(NamedTuple):
    """Normal distributions of the members' shares: precision, and precision times mean."""

    penalties: FloatArray  # shape (a,); both 0 for fixed effects, which may be anything
    pulls: FloatArray


class GaussianMixture(NamedTuple):
    """The mixture's parts, the first of which is 0; float64 arrays of shape (b,)."""

    means: FloatArray
    variances: FloatArray


def sparse_effects(
    gram: FloatArray, sums: FloatArray, start: Effects | None, rounds: int
) -> Effects:
    """Return what stands for each share, given all rows.

    `gram`, shape (1 + a, 1 + a): of the unknown mass, which is a fixed effect, and the members.
    `sums`, shape (1 + a,): the rates' weighted sums over the same columns. `start`: of a similar
    model. `rounds`: how often what stands for a share is worked out from what stands for the
    others.
    """
    own = np.diag(gram)[1:]
    bells = gaussian_mixture(own)
    effects = start or Effects(own.copy(), np.zeros(len(own)))
    weights = np.full(len(bells.means), 1 / len(bells.means))
    kept = _KEPT if start else 0.0  # of a mere guess nothing
    for _ in range(rounds):
        share, variance = _shares_without(gram, sums, effects)
        likelihood = _likelihood(share, variance, bells)
        for _ in range(_WEIGHTINGS):
            parts = likelihood * weights
            parts /= parts.sum(axis=1, keepdims=True)
            weights = parts.mean(axis=0)
        now = _standing_for(share, variance, bells, parts)
        effects = Effects(
            *(kept * old + (1 - kept) * new for old, new in zip(effects, now, strict=True))
        )
        kept = _KEPT
    return effects


def _likelihood(share: FloatArray, variance: FloatArray, bells: GaussianMixture) -> FloatArray:
    total = variance[:, None] + bells.variances
    surprise = (share[:, None] - bells.means) ** 2 / total + np.log(total)
    return np.asarray(np.exp((surprise.min(axis=1, keepdims=True) - surprise) / 2))


def _standing_for(
    share: FloatArray, variance: FloatArray, bells: GaussianMixture, parts: FloatArray
) -> Effects:
    """Return the normal distributions that stand for shares which belong to parts so likely."""
    means, variances = bells
    total = variance[:, None] + variances
    inner = (share[:, None] * variances + means * variance[:, None]) / total
    mean = (parts * inner).sum(axis=1)
    scatter = variance[:, None] * variances / total + (inner - mean[:, None]) ** 2
    left = np.maximum((parts * scatter).sum(axis=1), _LEAST_VARIANCE * variance)
    penalties = np.maximum(1 / left - 1 / variance, _LEAST_PENALTY / variance)
    pulls = mean * (penalties + 1 / variance) - share / variance
    return Effects(penalties, pulls)


def gaussian_mixture(own: FloatArray) -> GaussianMixture:
    """Return the mixture's parts, from half of a typical error up to 1.

    `own`, shape (a,): the rows' information about each share if all others are known.
    """
    size = float(1 / np.sqrt(np.median(own)))
    steps = max(int(np.ceil(np.log(1 / (_LEAST_SHARE * size)) / np.log(_FACTOR))), 0)
    means = _LEAST_SHARE * size * _FACTOR ** np.arange(steps + 1)
    widths = (_FACTOR - 1) / 2 * means
    return GaussianMixture(np.append(0.0, means), np.append(0.0, widths**2))


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
