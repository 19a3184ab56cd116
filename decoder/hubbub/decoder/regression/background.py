"""How much bit rates scatter beyond what sampling and the listed candidates explain.

Strings that nobody listed set *their* bits rather than a little of each, so the rows of the
regression scatter by a variance tau^2 about the model. It is estimated by matching one moment, and
never as exactly 0: a plain estimate is 0 in half of the populations without unlisted strings, and
where rows are few that would make every standard error too small.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse, special

from hubbub.decoder.arrays import FloatArray, SparseMatrix

_TINY = 1e-9


def excess_variance(
    scores: FloatArray,
    weights: FloatArray,
    sampling: FloatArray,
    basis: SparseMatrix,
    covariance: FloatArray,
    penalties: FloatArray,
    spread: float,
) -> float:
    """Return tau^2.

    Parameters
    ----------
    scores : float64 array, shape (m * k,)
        P y, with P = W - W B' C B W.
    weights, sampling : float64 array, shape (m * k,)
        W, and the sampling variances D; 0 where there are no reports.
    basis : sparse float64 array, shape (1 + a, m * k)
        B.
    covariance : float64 array, shape (1 + a, 1 + a)
        C.
    penalties : float64 array, shape (1 + a,)
    spread : float
        sigma^2.

    Notes
    -----
    With Z the penalised columns, E |P y|^2 = tr(P D P) + tau^2 tr(P P) + sigma^2 |P Z'|^2 (Rao
    1971, MINQUE). The moment's solution has standard deviation sqrt(2 / tr(P P)); what is returned
    is the mean of a normal law with that mean and deviation, cut off below 0.
    """
    free = int(np.count_nonzero(penalties == 0))
    if np.count_nonzero(weights) <= free:  # as many columns as rows: nothing to go by
        return 0.0
    squares = _gram(basis, weights**2)
    twice = covariance @ squares @ covariance

    def trace_with(diagonal: FloatArray, inner: FloatArray) -> float:
        """Return tr(diag P P), from products no larger than the covariance."""
        crossed = np.vdot(covariance, _gram(basis, diagonal * weights**3))
        return float(diagonal @ weights**2 - 2 * crossed + np.vdot(twice, inner))

    trace = trace_with(np.ones_like(weights), squares)
    if trace <= _TINY * float(weights @ weights):
        return 0.0
    from_sampling = trace_with(sampling, _gram(basis, sampling * weights**2))
    from_spread = float(penalties**2 @ np.diag(twice))
    found = (float(scores @ scores) - from_sampling - spread * from_spread) / trace
    return _mean_above_zero(found, float(np.sqrt(2 / trace)))


def _gram(basis: SparseMatrix, diagonal: FloatArray) -> FloatArray:
    """Return B diag(d) B'."""
    return np.asarray(((basis @ sparse.diags_array(diagonal)) @ basis.T).toarray())


def _mean_above_zero(mean: float, deviation: float) -> float:
    """Mean of a normal law that is cut off below 0."""
    z = mean / deviation
    return float(mean + deviation * np.exp(-(z**2) / 2 - special.log_ndtr(z)) / np.sqrt(2 * np.pi))
