"""By how much a candidate's own noise comes back to it, learned from strings that nobody has.

With random effects each share is judged by what all others seem to be, and these were judged beside
it: noise that looks like a string takes something from the strings it shares bits with, which then
leave it more. In many rows or cohorts that is little. With more candidates than the rows of few
cohorts, p-values of absent ones lie below one in a thousand up to four times as often.

So *decoys* are listed, too: strings with random bits, of which it is known that nobody has them.
Their p-values have the distribution of absent candidates' (as in Elias and Gygi, Nature Methods 4,
2007), and one that a thousandth of them lies below counts as .001.
Small p-values are rare, so most decoys are drawn with bits that score high, and count for less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, PositionArray
from hubbub.inference.testing.hash_null import score_totals
from hubbub.inference.testing.multiple_testing import z_scores

# Decoys' scores are drawn around so many standard deviations above the mean, a quarter of the
# decoys around each: thresholds of up to 1,200 candidates lie at 2 to 4.
_HEIGHTS = (0.0, 1.5, 2.5, 3.5)
DECOYS = 160
"""They know the chance of small p-values to a fifth, which is .06 standard errors of a share."""
_SEED = 20151107  # any fixed number: the same reports give the same p-values
# Members below are tested by approximation, and nothing depends on how large a large p-value is.
_FROM_Z = 1.2
# Of the highest decoys, whose mean says how much z-scores beyond all decoys are too high.
_HIGHEST = 10


@dataclass(frozen=True, slots=True)
class Feedback:
    """Which z-scores absent candidates' have the tails of."""

    # Shape (d,); z-scores of p-values as they are found, in ascending order, and of what these are.
    found: FloatArray
    exact: FloatArray

    @classmethod
    def of_decoys(cls, log_p: FloatArray, weights: FloatArray) -> Feedback:
        """Learn it from decoys.

        `log_p`, shape (d,): their p-values, as found. `weights`, shape (d,): how many times as
        likely as here each would be among random strings, over d.
        """
        z = z_scores(log_p)
        falling = np.argsort(-z, kind="stable")
        tails = np.cumsum(weights[falling]) - weights[falling] / 2
        high = falling[(z[falling] > _FROM_Z) & (tails < 1)]
        exact = -special.ndtri(tails[: len(high)])
        found = z[high][::-1]
        rising = np.maximum.accumulate(np.minimum(exact[::-1], found))
        return cls(found, np.maximum(rising, _FROM_Z))

    def without(self, log_p: float) -> float:
        """Return what a p-value is without feedback; both are logarithms."""
        z = float(z_scores(np.array(log_p)))
        if z <= _FROM_Z or not len(self.found):
            return log_p
        if z > self.found[-1]:
            z -= float(np.mean((self.found - self.exact)[-_HIGHEST:]))
        else:
            z = min(float(np.interp(z, self.found, self.exact)), z)
        return float(special.log_ndtr(-max(z, _FROM_Z)))


def draw_decoys(scores: FloatArray, hashes: int) -> tuple[PositionArray, FloatArray]:
    """Draw the bits of decoys: more often than others those that score high.

    `scores`, shape (m, k): what a string gains for each bit it sets. `hashes`: h. Returns
    `positions`, shape (d, m, h). `weights`, shape (d,): as of `Feedback.of_decoys`.

    Notes
    -----
    Around a height t the chance of bits with total score T is e^(tT - K(t)) times what it is among
    random strings, K being the cumulant generating function of T. Decoys of all heights count as
    draws from the mixture of these (Veach and Guibas 1995), so that no weight is above 4 / d.
    """
    rng = np.random.default_rng(_SEED)
    per_height = DECOYS // len(_HEIGHTS)
    deviation = np.sqrt(hashes * scores.var(axis=1).sum())
    heights = np.array(_HEIGHTS) / deviation if deviation else np.zeros(len(_HEIGHTS))
    highest = scores.max(axis=1, keepdims=True)
    chances = np.exp(heights[:, None, None] * (scores - highest))
    cumulants = np.log(chances.mean(axis=2)).sum(axis=1) + heights * float(highest.sum())
    shape = len(heights), per_height, len(scores), hashes
    drawn = np.empty(shape, dtype=np.int16)
    coins = rng.random(shape)
    for i, rising in enumerate(np.cumsum(chances, axis=2)):
        for c, ends in enumerate(rising):
            drawn[i, :, c] = np.searchsorted(ends[:-1], coins[i, :, c] * ends[-1], side="right")
    positions = drawn.reshape(-1, *shape[2:])
    totals = score_totals(scores, positions)
    density = np.exp(np.outer(totals, heights) - hashes * cumulants).mean(axis=1)
    return positions, 1 / (density * len(positions))
