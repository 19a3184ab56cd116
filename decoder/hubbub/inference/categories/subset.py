"""How subset selection's bits scatter: a report is a set of fixed size, so they aren't independent.

A client's own category is in its report's set with chance q, and the rest of the set is drawn
uniformly from the other categories (Ye and Barg, IEEE Transactions on Information Theory 64, 2018).
Each bit's rate is a straight line in its category's share, as everywhere; but a bit that is set
leaves less room for others. Invariant: rates add up to 1 by themselves, and so do their errors to
0; whatever adds up shares needs the covariance for that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import FloatArray

# Keeps weights above 0 where nearly all clients are in one category and the set is large: then the
# largest category may be known better than any difference shows.
_LEAST_OF_MEAN = 1e-3


class SubsetNoise(NamedTuple):
    """Chances that one or two categories are in a report's set."""

    own: float  # of the client's own category (q), and of each other one (p)
    other: float
    own_and_other: float  # of both at once
    two_others: float

    @classmethod
    def of(cls, categories: int, size: int, chance: float) -> SubsetNoise:
        """Return the chances of a response.

        `categories` and `size`: d and w. `chance`: q.

        Notes
        -----
        With the own category in the set w - 1 of the other d - 1 are drawn, without it w of them.
        So one of them is in with p = (q (w - 1) + (1 - q) w) / (d - 1), and two are with
        (q (w - 1)(w - 2) + (1 - q) w (w - 1)) / ((d - 1)(d - 2)).
        """
        d, w, q = categories, size, chance
        other = (q * (w - 1) + (1 - q) * w) / (d - 1)
        own_and_other = q * (w - 1) / (d - 1)
        if d == 2:
            # There are no two others; with this the formulas below hold all the same.
            return cls(q, other, own_and_other, own_and_other - q * other + other**2)
        two_others = (w - 1) * (q * (w - 2) + (1 - q) * w) / ((d - 1) * (d - 2))
        return cls(q, other, own_and_other, two_others)

    def covariance(self, shares: FloatArray, n_reports: float) -> FloatArray:
        """Return the covariance of the rates, given the clients' values; rows add up to 0.

        `shares`, shape (d,): add up to 1. Returns an array of shape (d, d).
        """
        own, other = self.own * (1 - self.own), self.other * (1 - self.other)
        with_own, of_others = self._products
        pairs = of_others + (with_own - of_others) * np.add.outer(shares, shares)
        np.fill_diagonal(pairs, shares * own + (1 - shares) * other)
        return np.asarray(pairs / (n_reports * (self.own - self.other) ** 2))

    def variance(self, shares: FloatArray, n_reports: float) -> FloatArray:
        """Return what independent rates' variances would be for the same noise in differences.

        `shares`, shape (d,): add up to 1. Returns an array of shape (d,): x > 0. The variance of a
        weighted sum of rates, with weights z that add up to 0, is sum z_j^2 x_j: two rates'
        difference has x_i + x_j.

        Notes
        -----
        With b the covariance of two others' bits and a that of the own and another one, the bits'
        covariance is b + (a - b)(pi_i + pi_j) off its diagonal, so all but a diagonal of it, x,
        vanishes between weights that add up to 0.
        """
        with_own, of_others = self._products
        at_none = self.other * (1 - self.other) - of_others
        at_all = self.own * (1 - self.own) + of_others - 2 * with_own
        found = at_none + (at_all - at_none) * shares
        found = np.maximum(found, _LEAST_OF_MEAN * found.mean())
        return np.asarray(found / (n_reports * (self.own - self.other) ** 2))

    @property
    def _products(self) -> tuple[float, float]:
        return (
            self.own_and_other - self.own * self.other,
            self.two_others - self.other**2,
        )
