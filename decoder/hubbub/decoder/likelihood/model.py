"""The model that estimates are made in: the unknown, and the members that the maximum left above 0.

Members at the boundary have no normal distribution and are left out; each of them, like every
candidate outside, is estimated as if it alone were added. The unknown always stays, and may go
below 0, so that estimates are unbiased when everything is listed, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from hubbub.decoder.arrays import FloatArray, IntArray, PositionArray
from hubbub.decoder.likelihood.mixture import Solution
from hubbub.decoder.likelihood.sums import Mixture, Overlaps
from hubbub.decoder.likelihood.terms import distinct_positions
from hubbub.protocol.params import RapporParams

_PROBES = 256
_PROBE_SEED = 20140814
_DEPENDENT = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class FreeModel:
    """The unknown and the free members.

    Attributes
    ----------
    mixture : Mixture
        Of the free members alone.
    kept : int64 array, shape (1 + a,)
        Their components in the whole mixture: 0, the unknown, first.
    rows : int64 array, shape (a,)
        Which candidates the members are, in ascending order.
    shares : float64 array, shape (1 + a,)
        At the maximum.
    step : float64 array, shape (1 + a,)
        The Newton step from there that lets the unknown go below 0.
    inverse : float64 array, shape (1 + a, 1 + a)
        Of the observed information.
    """

    mixture: Mixture
    kept: IntArray
    rows: IntArray
    shares: FloatArray
    step: FloatArray
    inverse: FloatArray

    def left_over(self, own: FloatArray, shared: FloatArray) -> FloatArray:
        """Return the information that strings have beyond what they share with the model.

        Parameters
        ----------
        own : float64 array, shape (o,)
        shared : float64 array, shape (o, 1 + a)
        """
        return np.asarray(own - np.einsum("ij,ij->i", shared @ self.inverse, shared))


def let_free(mixture: Mixture, solution: Solution, members: IntArray) -> FreeModel:
    """Keep the members above 0, but for those whose bits the others explain.

    Parameters
    ----------
    mixture : Mixture
    solution : Solution
        Its most likely shares.
    members : int64 array, shape (a,)
        Which candidates its members are.
    """
    kept = np.concatenate([[0], 1 + np.flatnonzero(solution.shares[1:] > 0)])
    information = solution.at.information[np.ix_(kept, kept)]
    scale = np.sqrt(np.diag(information))
    scale[0] /= 2  # the largest pivot comes first: the unknown always stays
    _, pivots, rank, _ = linalg.lapack.dpstrf(information / np.outer(scale, scale), tol=_DEPENDENT)
    kept = kept[np.sort(pivots[:rank]) - 1]
    inverse = linalg.inv(solution.at.information[np.ix_(kept, kept)])
    step = inverse @ (solution.at.gradient[kept] - mixture.reports.total)
    smaller = Mixture(mixture.reports, mixture.members[kept[1:] - 1], mixture.threads)
    return FreeModel(smaller, kept, members[kept[1:] - 1], solution.shares[kept], step, inverse)


def probe(mixture: Mixture, shares: FloatArray) -> Overlaps:
    """Return what random strings share with the model: a sample of what absent ones do."""
    params = mixture.reports.params
    return mixture.overlaps(shares, random_strings(params, _PROBES))


def random_strings(params: RapporParams, n: int) -> PositionArray:
    """Return the distinct positions of strings that nobody has, the same at every call."""
    rng = np.random.default_rng(_PROBE_SEED)
    drawn = rng.integers(params.k, size=(n, params.m, params.h), dtype=np.int16)
    return distinct_positions(drawn, params)
