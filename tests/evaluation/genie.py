"""What reports give those who know more than a decoder can: bounds for its power.

The genie knows every other string's share, the oracle only which strings are held. Both test a
string by the most powerful linear statistic of bit counts, of which they know the exact covariance,
or by the score of whole reports. Absent strings' p-values are uniform, as exact tests' are. Of
strings that nobody listed a genie may know the shares, but not the bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy import linalg, special

from hubbub.decoder import CohortCounts, Correction
from hubbub.inference import (
    BoolArray,
    FloatArray,
    PackedReports,
    bit_positions,
    counted_tests,
    densities,
    distinct_positions,
    log_q_values,
    pair_probability,
    ratio_rows,
    unknown_column,
)
from hubbub.protocol import RapporParams

NOBODY = np.empty(0)
"""Shares, where every string is listed."""
_NOTHING = 1e-9  # what rounding leaves of 0, beside 1
_ROWS = 4096  # reports that are looked at together


@dataclass(frozen=True, slots=True)
class Information:
    """What reports say of the shares of all strings that are held, about the true ones."""

    shares: FloatArray  # shape (v,): chance that a report is of each
    # shape (v,): U, the derivative of the log-likelihood by each share, at the others' expense
    score: FloatArray
    matrix: FloatArray  # shape (v, v): J, the covariance of U

    @classmethod
    def of(
        cls,
        counts: CohortCounts,
        strings: tuple[str, ...],
        shares: FloatArray,
        params: RapporParams,
        unlisted: FloatArray = NOBODY,
    ) -> Information:
        """Return the information about `shares`, shape (v,), which are above 0.

        `unlisted` are the shares of all other strings, whose bits are random; all add up to 1.

        With x a string's filter, t the rates of true bits, d = (q* - p*)(x - t), S the covariance
        of a report's bits, and y - r the distance of N reports' rates from the expected ones,
        U = sum N d' S^-1 (y - r) and J = sum N d' S^-1 d over cohorts. The bits of an unlisted
        share u add N (q* - p*)^2 u^2 times the covariance of a random string's bits to S.
        """
        slope, total = params.q_star - params.p_star, unlisted.sum()
        single, pair = unknown_column(params), pair_probability(params)
        random = np.full((params.k, params.k), pair - single**2)
        np.fill_diagonal(random, single - single**2)
        random *= slope**2 * (unlisted**2).sum()
        filters = np.zeros((len(strings), params.m, params.k))
        np.put_along_axis(filters, bit_positions(strings, params).astype(np.int64), 1.0, axis=2)
        score, matrix = np.zeros(len(strings)), np.zeros((len(strings), len(strings)))
        for cohort, reports in enumerate(counts.reports.tolist()):
            own = filters[:, cohort]
            rate = shares @ own + total * single
            reported = params.p_star + slope * rate
            together = (own.T * shares) @ own + total * pair
            covariance = slope**2 * (together - np.outer(rate, rate))
            np.fill_diagonal(covariance, reported * (1 - reported))
            covariance += reports * random
            direction = slope * (own - rate)
            weighted = linalg.cho_solve(linalg.cho_factor(covariance), direction.T).T
            score += weighted @ (counts.bits[cohort] - reports * reported)
            matrix += reports * (weighted @ direction.T)
        return cls(shares, score, matrix)

    @classmethod
    def of_reports(
        cls, reports: PackedReports, strings: tuple[str, ...], shares: FloatArray
    ) -> Information:
        """Return what whole reports say of `shares`, which are above 0 and add up to 1.

        Notes
        -----
        With L_is string s's density at report i and mix_i the shares' mean of them, U_s is the sum
        of L_is / mix_i - 1, and J that of the products.
        """
        params = reports.params
        positions = distinct_positions(bit_positions(strings, params), params)
        score, matrix = np.zeros(len(strings)), np.zeros((len(strings), len(strings)))
        for cohort, bits, weights in reports.blocks(_ROWS):
            density = densities(ratio_rows(bits, params), positions[:, cohort])
            surprise = density / (shares @ density) - 1
            score += surprise @ weights
            matrix += (surprise * weights) @ surprise.T
        return cls(shares, score, matrix)

    def genie(self) -> FloatArray:
        """Return each string's z-score, the ratios of all other shares being known; shape (v,)."""
        known = np.diag(self.matrix)
        return np.asarray((self.score + self.shares * known / (1 - self.shares)) / np.sqrt(known))

    def oracle(self) -> FloatArray:
        """Return each string's z-score, no other share being known.

        It is -infinity, so that nothing is found, if counts don't determine the share.
        """
        values, vectors = linalg.eigh(self.matrix)
        sure = values > _NOTHING * values[-1]
        # J can't tell a multiple of all shares: that direction is fixed by their sum.
        balanced = vectors - self.shares[:, None] * vectors.sum(axis=0)
        scaled = balanced[:, sure] / np.sqrt(values[sure])
        estimate = self.shares + (balanced[:, sure] / values[sure]) @ (
            vectors[:, sure].T @ self.score
        )
        z = estimate / np.sqrt((scaled**2).sum(axis=1))
        loose = (balanced[:, ~sure] ** 2).sum(axis=1) > _NOTHING
        return np.where(loose, -np.inf, z)


def detected(
    z: FloatArray, absent: int, alpha: float, correction: Correction, rng: Generator
) -> BoolArray:
    """Mark the strings that the decoder's rule of discoveries finds, beside so many absent ones."""
    log_p = np.concatenate([special.log_ndtr(-z), np.log(rng.random(absent))])
    log_q = log_q_values(log_p, correction, counted_tests(log_p, correction))
    return np.asarray(log_q[: len(z)] <= np.log(alpha))
