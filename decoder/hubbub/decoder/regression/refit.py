"""Shares that are possible: none negative, and with the unknown mass no more than everybody.

Unbiased estimates scatter below 0 and may add up to more than 1. For adding up, plotting and
comparing, the detected are fitted once more under these constraints, the others being noise: less
variance, at the price of a little bias.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, optimize

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.regression.model import Fit

_FIRM = 1e4
_RIDGE = 1e-9
_STEPS = 30


def possible_shares(fit: Fit) -> tuple[IntArray, FloatArray]:
    """Return the non-negative least squares shares of the free members.

    Parameters
    ----------
    fit : Fit
        Its free members are those whose shares are wanted.

    Returns
    -------
    selected : int64 array, shape (d,)
    shares : float64 array, shape (d,)
        They add up to 1 with that of the unknown mass.

    Notes
    -----
    The coefficients theta of the unknown mass and the free members have the covariance C, the
    others being draws. Minimises (beta - theta)' C^-1 (beta - theta) over beta >= 0 with
    sum beta = 1, by the active set method of Lawson and Hanson (1974).
    """
    free = fit.penalties == 0
    information = linalg.inv(fit.covariance[np.ix_(free, free)])
    information[np.diag_indices(len(information))] *= 1 + _RIDGE
    root = linalg.cholesky(information)
    firm = _FIRM * float(np.sqrt(np.diag(information).max()))
    rows = np.vstack([root, np.full(len(root), firm)])
    wanted = np.append(root @ fit.coefficients[free], firm)
    shares, _ = optimize.nnls(rows, wanted, maxiter=_STEPS * len(root))
    return fit.selected[free[1:]], np.asarray(shares / shares.sum())[1:]
