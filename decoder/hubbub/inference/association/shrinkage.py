"""Unbiased cells of strings and what comes with them -> a table that is near to the true one.

Most cells are smaller than their noise. Two estimates use that in different ways, and their mean is
nearer to the truth than either, because they don't err alike:

- *Empirical Bayes.* Each row's share is a draw from a distribution that is estimated from all rows
  (some share are 0, the rest a gamma distribution, averaged over its parameters), and a row is
  divided up by a beta distribution about the columns' shares. Of the posterior distributions the
  same quantile is taken of all cells, the one at which they add up to 1: no table has a smaller
  expected total variation.
- *Ascent that stops early.* From that table's margins, as if fields were independent, it takes
  multiplicative steps towards the most likely table, as expectation maximisation does: cells that
  the reports say little about stay where they start.

Invariant: such cells are for looking at and adding up, not for intervals: they are biased.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, IntArray

# Priors of a string's share: a part of strings that nobody has, and a gamma distribution of the
# others, from spikes at 0 (form .3) to shares that are much alike (form 8). The grid is averaged by
# likelihood, so that it need only be finer than what data can tell.
_ABSENT = np.arange(0.0, 1.0, 0.1)
_FORMS = (0.3, 0.5, 1.0, 2.0, 4.0, 8.0)
_SCALES = 12
# Points at which a share's density is summed, from a twentieth of a standard error on.
_SHARES = 80
# Log-odds of a row's division between two columns: 7 is a part of .1%, and steps of .29 are
# narrower than the errors by which divisions are known.
_ODDS = np.linspace(-7.0, 7.0, 49)
# From divisions that are all or nothing (.3) to one division of all rows (1,000), by factors of
# three.
_CONCENTRATIONS = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0])
_UNLISTED = (1.0, 19.0)
"""Exponents of the prior of what no list has: a mean of 9%, and seldom above 25%."""
# Steps of half a percentage point.
_UNLISTED_SHARES = 201
# Quantiles are read from bins 3.5% wide: far below the errors of shares.
_BINS = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
# EM for seven weights, from equal ones.
_WEIGHINGS = 50
# The level is then known to 2^-40.
_BISECTIONS = 40
# Steps of EM, which start from the shrunk cells and so needn't get far.
_ASCENT = 1_000
# Keeps cells above 0, which steps of EM could never leave.
_FLOOR = 1e-5
# A cell falls at most to a fiftieth in one step: it can't jump to 0, from where nothing returns.
_LEAST_STEP = 0.02
# Half a row in favour of each concentration, as under Jeffreys' prior.
_HELD = 0.5
# Keep quotients finite where a variance or a density is 0; no estimate is that sure.
_LEAST_VARIANCE = 1e-14
_TINY = 1e-300  # stands for 0 in logarithms


def near_table(
    unbiased: FloatArray, covariance: FloatArray, information: FloatArray, unlisted: bool
) -> FloatArray:
    """Return cells that are at least 0 and add up to 1, near to the true ones as a whole.

    Parameters
    ----------
    unbiased : float64 array, shape (r, c)
        The maximum of the likelihood, with sum 1.
    covariance, information : float64 array, shape (r c, r c)
        Its own, and minus the second derivatives of the log-likelihood of one report.
    unlisted : bool
        Whether the last row is the sum of what isn't listed.

    Returns
    -------
    float64 array, shape (r, c)
    """
    columns = np.maximum(unbiased.sum(axis=0), _FLOOR)
    columns /= columns.sum()
    bayes = _posterior_quantiles(unbiased, covariance, columns, unlisted)
    start = np.outer(bayes.sum(axis=1) + _FLOOR, columns).ravel()
    risen = _risen(unbiased.ravel(), information, start / start.sum())
    return np.asarray((bayes + risen.reshape(unbiased.shape)) / 2)


def _risen(maximum: FloatArray, information: FloatArray, start: FloatArray) -> FloatArray:
    """Take steps x <- x (1 + H (maximum - x)): those of EM, if the log-likelihood is a parabola."""
    shares, pull = start, information @ maximum
    for _ in range(_ASCENT):
        shares = shares * np.maximum(1.0 + pull - information @ shares, _LEAST_STEP)
        shares /= shares.sum()
    return shares


def _posterior_quantiles(
    unbiased: FloatArray, covariance: FloatArray, columns: FloatArray, unlisted: bool
) -> FloatArray:
    """Return that quantile of all cells' posterior distributions at which they add up to 1."""
    n_rows, n_columns = unbiased.shape
    own = covariance.reshape(n_rows, n_columns, n_rows, n_columns)
    rows = _Rows.of(unbiased, np.array([own[i, :, i, :] for i in range(n_rows)]))
    listed = np.arange(n_rows - unlisted)
    shares = rows.grid(listed)
    prior = _share_prior(rows, listed, shares)
    divisions = _division_priors(columns)
    weights = _division_weights(rows, listed, shares, prior, divisions)
    division = np.einsum("k,jkt->jt", weights, divisions)
    found = [_distributions(rows, i, shares, prior, division) for i in listed.tolist()]
    if unlisted:
        others = np.linspace(0.0, 1.0, _UNLISTED_SHARES)
        few = others ** _UNLISTED[0] * (1 - others) ** _UNLISTED[1]
        found.append(_distributions(rows, n_rows - 1, others, few, division))
    cumulated = np.concatenate(found).cumsum(axis=1)
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        level = (low + high) / 2
        low, high = (low, level) if _quantiles(cumulated, level).sum() > 1 else (level, high)
    cells = _quantiles(cumulated, low)
    return np.asarray(cells / cells.sum()).reshape(unbiased.shape)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Each row's share, and how its cells divide it up, as estimates that are independent.

    Attributes
    ----------
    share, std_error : float64 array, shape (r,)
        Of the row.
    weight : float64 array, shape (r, c)
        Of a cell's error, the part that goes with the row's: Cov(cell, row) / Var(row).
    rest, rest_variance : float64 array, shape (r, c)
        The cells less that part of the row, which no longer goes with it.
    """

    share: FloatArray
    std_error: FloatArray
    weight: FloatArray
    rest: FloatArray
    rest_variance: FloatArray

    @classmethod
    def of(cls, unbiased: FloatArray, own: FloatArray) -> _Rows:
        """Take apart estimates with the covariances (r, c, c) of each row's own cells."""
        share, together = unbiased.sum(axis=1), own.sum(axis=2)
        variance = np.maximum(together.sum(axis=1), _LEAST_VARIANCE)
        weight = together / variance[:, None]
        rest_variance = np.diagonal(own, axis1=1, axis2=2) - weight**2 * variance[:, None]
        return cls(
            share,
            np.sqrt(variance),
            weight,
            unbiased - weight * share[:, None],
            np.maximum(rest_variance, _LEAST_VARIANCE),
        )

    def grid(self, listed: IntArray) -> FloatArray:
        """Return shares that a row may have, 0 first."""
        error = self.std_error[listed]
        most = min(1.0, 1.2 * max(float(self.share[listed].max()), float(error.max())))
        return np.concatenate([[0.0], np.geomspace(error.min() / 20, most, _SHARES)])

    def share_density(self, rows: IntArray | int, shares: FloatArray) -> FloatArray:
        """Return the density of the estimated share of rows if these were the true ones."""
        z = (self.share[rows][..., None] - shares) / self.std_error[rows][..., None]
        log_density = -(z**2) / 2
        return np.asarray(np.exp(log_density - log_density.max(axis=-1, keepdims=True)))

    def rest_density(self, row: int, shares: FloatArray) -> FloatArray:
        """Return the density of the rest of a row's cells; shape (c, shares, divisions)."""
        divided = special.expit(_ODDS) - self.weight[row][:, None, None]
        off = self.rest[row][:, None, None] - shares[:, None] * divided
        log_density = -(off**2) / (2 * self.rest_variance[row][:, None, None])
        return np.asarray(np.exp(log_density - log_density.max(axis=(1, 2), keepdims=True)))


def _share_prior(rows: _Rows, listed: IntArray, shares: FloatArray) -> FloatArray:
    """Return the chances of the shares on a grid: the mean over priors, by their likelihoods."""
    logs = np.log(shares[1:])
    scales = np.geomspace(rows.std_error[listed].min() / 2, shares[-1], _SCALES)
    priors = []
    for absent, scale, form in itertools.product(_ABSENT, scales, _FORMS):
        present = np.exp(form * (logs - np.log(scale)) - shares[1:] / scale)
        priors.append(np.append(absent, (1 - absent) * present / max(present.sum(), _TINY)))
    density = rows.share_density(listed, shares)
    fit = np.log(density @ np.array(priors).T + _TINY).sum(axis=0)
    chances = np.exp(fit - fit.max())
    return np.asarray(chances / chances.sum() @ np.array(priors))


def _division_priors(columns: FloatArray) -> FloatArray:
    """Return beta distributions of a cell's part of its row, on the grid of odds.

    Returns
    -------
    float64 array, shape (c, concentrations, divisions)
    """
    part = special.expit(_ODDS)
    own = columns[:, None, None]
    log_density = own * np.log(part) + (1 - own) * np.log1p(-part)
    log_density = _CONCENTRATIONS[:, None] * log_density
    density = np.exp(log_density - log_density.max(axis=2, keepdims=True))
    return np.asarray(density / density.sum(axis=2, keepdims=True))


def _division_weights(
    rows: _Rows, listed: IntArray, shares: FloatArray, prior: FloatArray, divisions: FloatArray
) -> FloatArray:
    """Return how probable each concentration is; by maximum likelihood, slightly held back."""
    fits = []
    for row in listed.tolist():
        chances = prior * rows.share_density(row, shares)
        of_part = np.einsum(
            "a,jat->jt", chances / max(chances.sum(), _TINY), rows.rest_density(row, shares)
        )
        fits.append(np.einsum("jt,jkt->jk", of_part, divisions))
    fit = np.maximum(np.concatenate(fits), _TINY)
    weights = np.full(len(_CONCENTRATIONS), 1 / len(_CONCENTRATIONS))
    for _ in range(_WEIGHINGS):
        chances = fit * weights
        chances /= chances.sum(axis=1, keepdims=True)
        weights = chances.sum(axis=0) + _HELD
        weights /= weights.sum()
    return weights


def _distributions(
    rows: _Rows, row: int, shares: FloatArray, prior: FloatArray, division: FloatArray
) -> FloatArray:
    """Return the posterior chances of a row's cells in each bin; shape (c, bins)."""
    chances = (prior * rows.share_density(row, shares))[:, None] * division[:, None]
    chances = chances * rows.rest_density(row, shares)
    values = shares[:, None] * special.expit(_ODDS)
    bins = np.minimum(np.searchsorted(_BINS, values.ravel()), len(_BINS) - 1)
    found = np.array([np.bincount(bins, own.ravel(), len(_BINS)) for own in chances])
    return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), _TINY))


def _quantiles(cumulated: FloatArray, level: float) -> FloatArray:
    """Return a quantile of each distribution over the bins."""
    bins = np.minimum((cumulated < level).sum(axis=1), len(_BINS) - 1)
    inside = np.flatnonzero(bins > 0)
    upper, before = cumulated[inside, bins[inside]], cumulated[inside, bins[inside] - 1]
    part = np.clip((level - before) / np.maximum(upper - before, _TINY), 0.0, 1.0)
    found = np.zeros(len(cumulated))
    left, right = _BINS[bins[inside] - 1], _BINS[bins[inside]]
    found[inside] = left + part * (right - left)
    return found
