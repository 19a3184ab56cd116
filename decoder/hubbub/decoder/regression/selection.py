"""Which of a long list's candidates may be present: a screen, then a non-negative Lasso.

The selection only proposes. Whether a candidate is detected is decided by its p-value afterwards,
so a generous selection costs time, not false discoveries.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from hubbub.decoder.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.decoder.bits import BitEstimates
from hubbub.decoder.candidates.listing import Candidates, make_design
from hubbub.decoder.regression.estimates import Estimates
from hubbub.decoder.regression.model import Fit

_SCREEN_Z = 2.0
_MAX_SURVIVORS = 1000
_MAX_SHARE_OF_ROWS = 3  # at most a third as many candidates as rows leaves noise to be estimated
_MAX_STEPS = 5000


def select(fit: Fit, estimates: Estimates, candidates: Candidates, bits: BitEstimates) -> IntArray:
    """Return the candidates for the model, in ascending order.

    Parameters
    ----------
    fit, estimates
        Of the model that holds nothing but the unknown mass: the marginal statistics.
    candidates : Candidates
    bits : BitEstimates
    """
    z = np.nan_to_num(estimates.share / estimates.std_error)
    survivors = _strongest(z, _MAX_SURVIVORS)
    survivors = survivors[z[survivors] > _SCREEN_Z]
    if not len(survivors):
        return survivors
    design = make_design(candidates.positions(survivors), candidates.params)
    lasso = Lasso(
        alpha=penalty(fit.weights, design.matrix, len(candidates)),
        positive=True,
        max_iter=_MAX_STEPS,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it only proposes
        lasso.fit(design.matrix.T.tocsc(), bits.rate.ravel(), sample_weight=fit.weights)
    return keep_fittest(survivors, lasso.coef_, bits)


def penalty(weights: FloatArray, matrix: SparseMatrix, n_candidates: int) -> float:
    """Return the Lasso's alpha, in scikit-learn's scale, that lets through about one of n nulls.

    The noise level is known, so no cross-validation is needed: the score of an absent candidate has
    standard deviation sqrt(x'Wx), and the n-th part of a normal lies above Phi^-1(1 - 1/n).

    Parameters
    ----------
    weights : float64 array, shape (m * k,)
    matrix : sparse array, shape (s, m * k)
        Bloom filters of some of the candidates.
    n_candidates : int
        n.
    """
    z = max(float(stats.norm.isf(1.0 / n_candidates)), 1.0)
    typical = float(np.median(np.asarray(matrix @ weights)))
    return z * float(np.sqrt(typical) / weights.sum())


def keep_fittest(candidates: IntArray, merit: FloatArray, bits: BitEstimates) -> IntArray:
    """Keep candidates of positive merit, the best ones if the rows can't carry them all."""
    room = max(1, bits.informative // _MAX_SHARE_OF_ROWS)
    best = np.argsort(-merit, kind="stable")[:room]
    return np.sort(candidates[best[merit[best] > 0]])


def _strongest(z: FloatArray, most: int) -> IntArray:
    """Return the places of the largest values, largest first, equal ones by place."""
    if len(z) > most:
        limit = np.partition(z, len(z) - most)[len(z) - most]
        places = np.flatnonzero(z >= limit)
    else:
        places = np.arange(len(z))
    return places[np.argsort(-z[places], kind="stable")[:most]]
