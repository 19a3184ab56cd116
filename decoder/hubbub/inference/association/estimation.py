"""The unbiased table: cells that make the reports most likely, free to be below 0.

The log-likelihood is concave; Newton's method with the sum of the shares kept at 1 needs a few
passes where expectation maximisation needs thousands. No cell is held above 0, so that estimates of
rare cells are not pushed up and are about normal, with the inverse information as covariance.

Invariant: the covariance belongs to the unconstrained estimate, and to nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import FloatArray
from hubbub.inference.association.mixture import AssociationMixture
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.sums import distinct_positions

TOLERANCE = 1e-4
"""Twice what the log-likelihood may still gain: estimates are then within 0.01 of a standard error
of the maximum."""

# Newton's steps converge quadratically near the maximum; as many as this never will.
_MAX_PASSES = 60
# Of the line search: the usual part of the expected gain (Nocedal and Wright, section 3.1).
_SLOPE = 1e-4
# A step this short gains nothing but rounding.
_LEAST_STEP = 1e-4
# Of scaled information, in double precision: well above rounding (1e-16 times some hundred cells),
# and below what cells that only resemble each other leave.
_DEPENDENT = 1e-9
# Random strings by which the scatter of scores is measured: its error is about the root of 2 / (m
# probes); 32 are enough, and large tables, where each costs more, make do with 8.
_PROBES = (8, 32)
_PROBE_CELLS = 256
# Any fixed number: the same reports give the same estimates.
_SEED = 20_140_814


@dataclass(frozen=True, slots=True)
class Maximum:
    """Where the log-likelihood is largest, among shares with sum 1.

    Attributes
    ----------
    shares : float64 array, shape (n,)
        May be below 0.
    information, inverse : float64 array, shape (n, n)
        Minus the second derivatives there, and their inverse.
    gain : float
        By how much the log-likelihood may still rise, if it is a parabola.
    passes : int
        Evaluations that it took.
    """

    shares: FloatArray
    information: FloatArray
    inverse: FloatArray
    gain: float
    passes: int


def maximise(mixture: AssociationMixture) -> Maximum:
    """Find the most likely shares.

    Raises
    ------
    UndecodableError
        If the reports don't determine all cells, or no maximum is found.
    """
    n = prod(mixture.shape)
    shares = np.full(n, 1.0 / n)
    at = mixture.evaluate(shares)
    for passes in range(1, _MAX_PASSES):
        inverse = _inverted(at.information)
        towards = inverse @ at.gradient
        step = towards - inverse.sum(axis=1) * (towards.sum() / inverse.sum())
        gain = float(at.gradient @ step)
        if gain <= TOLERANCE:
            return Maximum(shares, at.information, inverse, max(gain, 0.0) / 2, passes)
        length, ahead = 1.0, mixture.evaluate(shares + step)
        while ahead.value < at.value + _SLOPE * length * gain:
            length /= 2
            if length < _LEAST_STEP:
                break
            ahead = mixture.evaluate(shares + length * step)
        if length < _LEAST_STEP:
            break
        shares, at = shares + length * step, ahead
    raise UndecodableError(
        "likelihood of pairs: no maximum found; expected more reports, or fewer strings"
    )


def _inverted(information: FloatArray) -> FloatArray:
    """Return the inverse, or raise UndecodableError if cells can't be told apart."""
    scale = 1 / np.sqrt(np.diag(information))
    scaled = information * np.outer(scale, scale)
    try:
        factor = linalg.cholesky(scaled, lower=True)
    except linalg.LinAlgError:
        factor = np.zeros_like(scaled)
    if np.diag(factor).min() ** 2 < _DEPENDENT:
        raise IndistinctCellsError(
            "likelihood of pairs: the reports don't tell all cells apart; expected fewer strings"
        )
    inverse, _ = linalg.lapack.dpotri(factor, lower=True)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    return np.asarray(inverse * np.outer(scale, scale))


class IndistinctCellsError(UndecodableError):
    """Cells that the reports don't tell apart."""


def covariance(mixture: AssociationMixture, maximum: Maximum) -> FloatArray:
    """Return the covariance of the shares, as estimates of the population's; shape (n, n).

    Notes
    -----
    At the maximum I pi = N 1, so with the sum kept at 1 the covariance is
    (1 - pi 1') I^-1 (1 - 1 pi') = I^-1 - pi pi' / N. Unlisted strings set *their* bits and not
    random ones in every report, which moves a listed string's cells by an error of its own, of
    covariance E (`excess`), and those of the unknown by the opposite.
    """
    shares, total = maximum.shares, mixture.reports.total
    found = maximum.inverse - np.outer(shares, shares) / total
    for variable, given in enumerate(mixture.positions):
        if given is None:
            continue
        cells = np.moveaxis(np.arange(len(shares)).reshape(mixture.shape), variable, 0)
        rows = cells.reshape(len(given) + 1, -1)
        added = excess(mixture, maximum, variable)
        for string in rows[:-1]:
            found[np.ix_(string, string)] += added
            found[np.ix_(string, rows[-1])] -= added
            found[np.ix_(rows[-1], string)] -= added
            found[np.ix_(rows[-1], rows[-1])] += added
    return found


def excess(mixture: AssociationMixture, maximum: Maximum, variable: int) -> FloatArray:
    """Return E, what unlisted strings add to the covariance of one string's cells; shape (r, r).

    Notes
    -----
    With S how the scores of random strings that nobody has scatter over the hash, and J how they
    would if the unlisted set random bits, which also is such a string's information: J^-1 S J^-1
    is the covariance of its cells, and J^-1 what the model says. E is the difference, without the
    directions in which it is below 0.
    """
    params = mixture.reports.params
    rest = len(maximum.shares) // mixture.shape[variable]
    n_probes = int(np.clip(_PROBE_CELLS // rest, *_PROBES))
    rng = np.random.default_rng(_SEED)
    size = (n_probes, params.m, params.h)
    probes = distinct_positions(rng.integers(params.k, size=size, dtype=np.int16), params)
    found = mixture.scatter(maximum.shares, maximum.inverse, variable, probes)
    values, vectors = linalg.eigh(found.scattered, found.expected)
    # vectors' J vectors = 1, so that J^-1 = vectors vectors'
    return np.asarray(vectors * np.maximum(values - 1.0, 0.0) @ vectors.T)
