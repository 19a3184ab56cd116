"""What one whole report tells of one string: exact Fisher information, before random strings.

A report's likelihood under a string, relative to noise alone, depends on how many of the string's
bits it has; under a random string on how many bits it has at all. So all expectations are sums over
those two numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.decoder.arrays import FloatArray

_NEGLIGIBLE = 1e-13  # of the information: kinds of reports that add less are left out
_RARE = 1e-5  # probability of an overlap of two strings that is left out


@dataclass(frozen=True, slots=True)
class Information:
    """Reports by kind (how many distinct bits the string has, how many are set, how many others).

    Attributes
    ----------
    chance : float64 array, shape (a,)
        Probability of each kind if there were no true bits at all.
    string, random : float64 array, shape (a,)
        Likelihood under the string, and under a random string, relative to that.
    overlap : float
        Variance, over the hash, of what another string adds to the score for each of its reports.
    """

    chance: FloatArray
    string: FloatArray
    random: FloatArray
    overlap: float

    @classmethod
    def of_string(cls, k: int, h: int, p_star: float, q_star: float) -> Information:
        """Tabulate the kinds of reports for strings of h hashes into k bits."""
        one, zero = q_star / p_star, (1 - q_star) / (1 - p_star)
        random = _random_likelihood(k, h, one, zero)
        distinct = distinct_bits(k, h)
        chance, string, background = [], [], []
        for d in np.flatnonzero(distinct):
            own = np.arange(d + 1)
            own_chance = distinct[d] * _binomial(int(d), p_star)
            chance.append(np.outer(own_chance, _binomial(k - int(d), p_star)).ravel())
            string.append(np.repeat(one**own * zero ** (d - own), k - d + 1))
            background.append(random[np.add.outer(own, np.arange(k - d + 1))].ravel())
        kinds = (np.concatenate(chance), np.concatenate(string), np.concatenate(background))
        weight = kinds[0] * (kinds[1] ** 2 / kinds[2] + kinds[2])
        kept = weight > _NEGLIGIBLE * weight.sum()
        overlap = _overlap_variance(k, distinct, random, p_star, q_star)
        return cls(kinds[0][kept], kinds[1][kept], kinds[2][kept], overlap)

    def at(self, share: float) -> float:
        """Return the information of one report about the string's share of a mixture.

        E[((L_s - L_0) / ((1 - share) L_0 + share L_s))^2], L_0 being the random string's.
        """
        difference = self.string - self.random
        mixture = self.random + share * difference
        return float(self.chance @ (difference**2 / mixture))

    @property
    def skewness(self) -> float:
        """Skewness of one report's score if nobody has the string."""
        score = self.string / self.random - 1
        weights = self.chance * self.random
        return float(weights @ score**3) / math.sqrt(float(weights @ score**2)) ** 3


def bit_rate(k: int, h: int) -> float:
    """Return b = 1 - (1 - 1/k)^h, the chance that a random string sets a given bit."""
    return 1.0 - (1.0 - 1.0 / k) ** h


def filter_variance(k: int, h: int) -> float:
    """Return the mean variance of a random string's bits over the k positions: b - E[D^2]/k^2.

    D is the number of its distinct bits. Its filter has D ones, so this is less than b(1 - b) by
    what D itself varies.
    """
    squares = float(distinct_bits(k, h) @ np.arange(h + 1) ** 2)
    return bit_rate(k, h) - squares / k**2


def distinct_bits(k: int, h: int) -> FloatArray:
    """Return the distribution of the number of distinct bits among h hashes: shape (h + 1,)."""
    distribution = np.zeros(h + 1)
    distribution[0] = 1.0
    hit = np.arange(h + 1) / k
    for _ in range(h):
        distribution = distribution * hit + np.concatenate([[0.0], (distribution * (1 - hit))[:-1]])
    return distribution


def _random_likelihood(k: int, h: int, one: float, zero: float) -> FloatArray:
    """Return a random string's likelihood of reports with 0 ... k bits set, relative to noise."""
    ones = np.arange(k + 1)
    total = np.zeros(k + 1)
    for d, probability in enumerate(distinct_bits(k, h)):
        for i in range(d + 1):
            ways = special.binom(ones, i) * special.binom(k - ones, d - i) / special.binom(k, d)
            total += probability * ways * one**i * zero ** (d - i)
    return total


def _overlap_variance(
    k: int, distinct: FloatArray, random: FloatArray, p_star: float, q_star: float
) -> float:
    """Return the variance, over two strings' hashes, of the mean score under the other one."""
    one, zero = q_star / p_star, (1 - q_star) / (1 - p_star)
    chances, means = [], []
    for mine in np.flatnonzero(distinct):
        for others in np.flatnonzero(distinct):
            for shared in range(int(min(mine, others)) + 1):
                ways = special.binom(mine, shared) * special.binom(k - mine, others - shared)
                chance = distinct[mine] * distinct[others] * ways / special.binom(k, others)
                if chance < _RARE:
                    continue
                own = np.convolve(_binomial(shared, q_star), _binomial(int(mine) - shared, p_star))
                apart = int(others) - shared
                rest = np.convolve(
                    _binomial(apart, q_star), _binomial(k - int(mine) - apart, p_star)
                )
                windows = np.lib.stride_tricks.sliding_window_view(1 / random, len(rest))
                set_bits = np.arange(mine + 1)
                likelihood = one**set_bits * zero ** (mine - set_bits)
                chances.append(chance)
                means.append(float((own * likelihood) @ (windows @ rest)))
    weights, values = np.array(chances), np.array(means)
    mean = weights @ values / weights.sum()
    return float(weights @ (values - mean) ** 2 / weights.sum())


def _binomial(n: int, p: float) -> FloatArray:
    """Return the probabilities of 0 ... n."""
    i = np.arange(n + 1)
    log_ways = special.gammaln(n + 1) - special.gammaln(i + 1) - special.gammaln(n - i + 1)
    return np.asarray(np.exp(log_ways + i * np.log(p) + (n - i) * np.log1p(-p)))
