"""Standardised normals -> the chance that the largest of their absolute values exceeds a size.

Two ways, for two orders of cost: a Markov chain is integrated step by step, whatever is correlated
from neighbour to neighbour has a bound in closed form. Invariant: small chances keep their digits,
so first exits are added up and no chance is taken as one less another; results are logarithms.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray

_FAR = 8.0
"""Beyond it the union bound is taken: it is below 1e-14 for each variable there."""
# Variables so close that the chain hardly moves between them are taken as one; the nodes are
# Gauss's, as many as resolve a step. tests/unit/decoder/test_maxima.py holds the chance against
# simulation and the multivariate normal.
_FINEST_STEP = 0.1
_NODES_A_STEP = 4.8


def log_chain_exceedance(size: float, correlation: FloatArray) -> float:
    """Return ln P(max_i |Z_i| > size) of a Markov chain of normals.

    `size`: the size that is exceeded. `correlation`, shape (n, n): of variables in the chain's
    order; signs don't matter. Returns exact to numerical integration where neighbours are not too
    close; an upper bound where they are (correlation above 0.995), never above that of neighbours,
    and above a size of 8, where it is the union bound.

    Notes
    -----
    First exits are added up, P(|Z_1| > b) + sum_i P(|Z_i| > b, none before it). The density of
    "none so far" is kept at Gauss-Legendre nodes.
    """
    n = len(correlation)
    if size >= _FAR or n == 1:
        return _log_union(size, n)
    slopes = np.abs(correlation)
    deviations = np.sqrt(np.maximum(1.0 - slopes**2, 1e-30))
    kept, skipped = [0], []  # the chain, and what is too close after one of it, with that one
    for index in range(1, n):
        if deviations[kept[-1], index] >= _FINEST_STEP:
            kept.append(index)
        else:
            skipped.append((kept[-1], index))
    steps = [(slopes[pair], deviations[pair]) for pair in pairwise(kept)]
    finest = min([deviation for _, deviation in steps], default=1.0)
    nodes, weights = np.polynomial.legendre.leggauss(16 + math.ceil(_NODES_A_STEP * size / finest))
    nodes, weights = size * nodes, size * weights
    total = float(special.erfc(size / math.sqrt(2.0)))
    alive = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    for slope, deviation in steps:
        total += float(weights @ (alive * _leaves(size, slope * nodes, deviation)))
        kernel = np.exp(-(((nodes[:, None] - slope * nodes) / deviation) ** 2) / 2)
        alive = kernel @ (weights * alive) / (deviation * math.sqrt(2 * math.pi))
    total += float(_first_exits(size, np.array([slopes[pair] for pair in skipped])).sum())
    return min(math.log(total), log_exceedance_bound(size, np.diagonal(slopes, 1)))


def log_exceedance_bound(size: float, neighbours: FloatArray) -> float:
    """Return an upper bound of ln P(max_i |Z_i| > size), whatever the normals' joint distribution.

    `size`: the size that is exceeded. `neighbours`, shape (n - 1,): correlations of each variable
    with the next one.

    Notes
    -----
    P(|Z_1| > b) + sum_i P(|Z_i| > b, |Z_(i-1)| <= b) (Hunter, Journal of Applied Probability 13,
    1976).
    """
    if size >= _FAR:
        return _log_union(size, len(neighbours) + 1)
    once = float(special.erfc(size / math.sqrt(2.0)))
    return min(0.0, math.log(once + float(_first_exits(size, neighbours).sum())))


def _log_union(size: float, n: int) -> float:
    return min(0.0, math.log(2 * n) + float(special.log_ndtr(-size)))


def _first_exits(size: float, correlations: FloatArray) -> FloatArray:
    """Return P(|Y| > size, |X| <= size), or a little more, of pairs of normals.

    It is 2 P(Y > b, X <= b) less P(Y > b, X < -b) and its like, which is left out: it matters only
    where nothing is small. P(Y > b, X <= b) = 2 T(b, sqrt((1 - r)/(1 + r))), with Owen's T.
    """
    close = np.minimum(np.abs(correlations), 1.0)
    return np.asarray(4.0 * special.owens_t(size, np.sqrt((1.0 - close) / (1.0 + close))))


def _leaves(size: float, mean: FloatArray, deviation: float) -> FloatArray:
    scale = deviation * math.sqrt(2.0)
    above = special.erfc((size - mean) / scale) + special.erfc((size + mean) / scale)
    return np.asarray(0.5 * above)
