"""Reports of enum, boolean and ordinal metrics -> the share of each category, with covariance.

One bit per category, one cohort, no hash: each bit's observed rate is a straight line in its
category's share, and that every client is in exactly one category is used, too. Bits have noise of
their own, or are a set of fixed size (`hubbub.inference.categories.shares`).

Invariant: `unbiased` and `covariance` belong together and are never cut off at 0. `share` is the
nearest distribution, for people, and biased where shares are smaller than their noise.

How subset selection's bits scatter: a report is a set of fixed size, so they aren't independent.

A client's own category is in its report's set with chance q, and the rest of the set is drawn
uniformly from the other categories (Ye and Barg, IEEE Transactions on Information Theory 64, 2018).
Each bit's rate is a straight line in its category's share, as everywhere; but a bit that is set
leaves less room for others. Invariant: rates add up to 1 by themselves, and so do their errors to
0; whatever adds up shares needs the covariance for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.counts import estimate_bits
from hubbub.inference.repeated_reports import (
    ONCE,
    AbsentBit,
    RepeatedReports,
    instantaneous_variance as coins_variance,
)
from hubbub.inference.testing.multiple_testing import ShareInterval, after_selection, share_interval
from hubbub.protocol import CohortCounts, Metric, MetricError, RapporParams, Subset

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


@dataclass(frozen=True, slots=True)
class CategoryEstimates:
    """Estimated shares of n categories."""

    unbiased: FloatArray  # shape (n,); adds up to 1; may fall outside [0, 1]
    # Shape (n, n); of `unbiased`: noise of both responses, and the sampling of clients if the
    # population's shares are asked for.
    covariance: FloatArray
    # Shape (n,); the distribution nearest to `unbiased` in the metric of the noise: none is below
    # 0.
    share: FloatArray
    tests: tuple[PresenceTest, ...]  # of all categories, in their order

    @property
    def std_error(self) -> FloatArray:
        """Standard errors of `unbiased`, shape (n,)."""
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def log_p_value(self) -> FloatArray:
        """Natural logarithms of the tests' p-values, shape (n,)."""
        return np.concatenate([test.log_p_values() for test in self.tests])

    def thresholds(self, log_cutoff: float) -> FloatArray:
        """Return the shares above which categories are detected, given all other bits; shape (n,).

        Notes
        -----
        What makes estimates add up to 1 is uncorrelated with each of them, so that given it an
        estimate passes its threshold where the count of its own bit does.
        """
        beyond = np.concatenate([test.beyond(log_cutoff) for test in self.tests])
        return np.asarray(self.unbiased - beyond)

    def intervals(self) -> ShareInterval:
        """Return 95% intervals of the shares, whether detected or not."""
        return share_interval(self.unbiased, self.std_error)

    def contrast(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weighted sums of the shares and their standard errors.

        `weights`, shape (..., n): one row per sum: (1, -1, 0, ...) is a difference of two shares,
        (1, 1, 0, ...) a cumulative share.
        """
        variance = np.einsum("...i,ij,...j->...", weights, self.covariance, weights, optimize=True)
        # Weights that are all equal have none, and rounding may leave a little less.
        return weights @ self.unbiased, np.sqrt(np.maximum(variance, 0.0))


@dataclass(frozen=True, slots=True)
class PresenceTest:
    """Counts of bits, each of which shows whether anybody is in a category."""

    counts: IntArray  # shape (n,); reports that speak for each category
    n_reports: int  # of how many
    bit: AbsentBit  # how reports come to count for an empty category
    of_one: float  # by how much one report more raises the estimated share
    repeats: RepeatedReports  # how often the reports' clients have reported

    @classmethod
    def of(
        cls,
        ones: IntArray,
        n_reports: int,
        bit: AbsentBit,
        slope: float,
        repeats: RepeatedReports,
    ) -> PresenceTest:
        """Return the test by counts of set bits, whose rate has a slope in the share."""
        if slope < 0:
            ones, bit = n_reports - ones, bit.turned
        return cls(ones, n_reports, bit, 1 / (n_reports * abs(slope)), repeats)

    def log_p_values(self) -> FloatArray:
        """Return ln of the chances of such counts; exact where no client has reported twice."""
        return self.repeats.log_tail(self.counts, self.n_reports, self.bit)

    def beyond(self, log_cutoff: float) -> FloatArray:
        """Return how far estimated shares are above what is just detected; shape (n,)."""
        fewest, enough = 0, self.n_reports + 1
        while fewest < enough:
            middle = np.array([(fewest + enough) // 2])
            if self.repeats.log_tail(middle, self.n_reports, self.bit)[0] <= log_cutoff:
                enough = int(middle[0])
            else:
                fewest = int(middle[0]) + 1
        # Counts are whole numbers: the threshold is half-way to the next smaller one.
        return np.asarray((self.counts - enough + 0.5) * self.of_one)


def estimate_categories(
    counts: CohortCounts, metric: Metric, repeats: RepeatedReports = ONCE
) -> CategoryEstimates:
    """Estimate the shares of the values of a type that lists them.

    Values are in the order of their bits; of a single bit, the value that leaves it unset comes
    first.

    `counts`: reports and set bits. `metric`: whose type lists the values. Raises `MetricError` if
    the metric's type has no categories. Raises `UndecodableError` if there are no reports, or the
    counts have another shape than the parameters say.

    Notes
    -----
    With y_j the inverted rate of bit j and pi the shares, N reports give

        Cov(y) = diag(d) + D (diag(pi) - pi pi^T) / N,
        d_j = (pi_j q*(1 - q*) + (1 - pi_j) p*(1 - p*)) / (N (q* - p*)^2)

    if no client has reported twice (D = 1); else permanent responses count D times in d
    (`repeated_reports`). diag(d) is the noise: given the clients' values the bits of a report are
    independent. The rest is the sampling of clients, a multinomial's. Since Cov(y) 1 = d, the best
    linear unbiased estimate that adds up to 1 is y - d (sum(y) - 1) / sum(d), and its covariance is
    Cov(y) - d d^T / sum(d). Rates of sets of fixed size add up to 1 by themselves.
    """
    width, params = metric.type.width, metric.params
    if width is None:
        what = f"metrics.{metric.name}.type = {metric.type.name!r}"
        raise MetricError(f"{what}: must be a type with categories")
    rate = estimate_bits(counts, params).rate[0, :width]
    ones = counts.bits[0, :width]
    if width == 1:
        return _of_one_bit(float(rate[0]), int(ones[0]), counts.total, params, repeats)
    if isinstance(metric.response, Subset):
        return _of_subset(rate, ones, counts.total, metric.response, repeats)
    shares = nearest_distribution(rate, np.ones_like(rate))
    noise = noise_variance(shares, counts.total, params, repeats)
    correction = noise / noise.sum()
    covariance = rate_covariance(shares, counts.total, params, repeats)
    return CategoryEstimates(
        unbiased=rate - correction * (rate.sum() - 1),
        covariance=covariance - np.outer(noise, correction),
        share=nearest_distribution(rate, noise),
        tests=(_bit_test(ones, counts.total, params, repeats),),
    )


def noise_variance(
    shares: FloatArray, n_reports: int, params: RapporParams, repeats: RepeatedReports = ONCE
) -> FloatArray:
    """Return d: each rate's variance by both responses, given the clients' values."""
    return repeats.noise_variance(shares, params) / n_reports


def rate_covariance(
    shares: FloatArray, n_reports: int, params: RapporParams, repeats: RepeatedReports = ONCE
) -> FloatArray:
    """Return Cov(y) of the inverted rates, shape (n, n); the shares add up to 1."""
    noise = np.diag(noise_variance(shares, n_reports, params, repeats))
    return noise + repeats.sampling_covariance(shares, n_reports)


def instantaneous_variance(
    estimates: CategoryEstimates, n_reports: int, metric: Metric
) -> FloatArray:
    """Return the part of the variance of `unbiased` that is new in every report, shape (n,).

    The rest comes from permanent responses and from who is a client at all, and so is the same
    error again wherever the same clients report.

    Notes
    -----
    The estimates are A y with A = I - d 1^T / sum(d) (see `estimate_categories`), which turns the
    variances i_j of the rates by the coins of reports alone into A diag(i) A^T.
    """
    params = metric.params
    coins = coins_variance(estimates.share, params) / n_reports
    if metric.type.width == 1:
        return np.full(2, coins[1])
    noise = noise_variance(estimates.share, n_reports, params)
    mixing = np.eye(len(coins)) - (noise / noise.sum())[:, None]
    return np.asarray(mixing**2 @ coins)


def nearest_distribution(rate: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the x >= 0 with sum 1 that is nearest: sum (x_j - rate_j)^2 / variance_j is least.

    `rate` and `variance`, shape (n,): variances are above 0.

    Notes
    -----
    x_j = max(0, rate_j - lambda variance_j). Sorted by rate_j / variance_j, the categories that
    stay above 0 come first, and lambda is (their sum - 1) / (their variances' sum) for the longest
    such beginning.
    """
    order = np.argsort(-rate / variance, kind="stable")
    level = (np.cumsum(rate[order]) - 1) / np.cumsum(variance[order])
    above = rate[order] - level * variance[order] > 0
    last = int(np.flatnonzero(above)[-1])
    nearest = np.maximum(rate - level[last] * variance, 0.0)
    return np.asarray(nearest / nearest.sum())


def _of_one_bit(
    rate: float, ones: int, n_reports: int, params: RapporParams, repeats: RepeatedReports
) -> CategoryEstimates:
    """Return the estimates of False and True, which share a bit."""
    true_share = min(max(rate, 0.0), 1.0)
    noise = noise_variance(np.array([true_share]), n_reports, params, repeats)[0]
    variance = noise + repeats.sampling_variance(np.array(true_share), n_reports)
    count = np.array([ones])
    return CategoryEstimates(
        unbiased=np.array([1 - rate, rate]),
        covariance=variance * np.array([[1.0, -1.0], [-1.0, 1.0]]),
        share=np.array([1 - true_share, true_share]),
        tests=(
            _bit_test(count, n_reports, params, repeats, of_zero=True),
            _bit_test(count, n_reports, params, repeats),
        ),
    )


def _bit_test(
    ones: IntArray,
    n_reports: int,
    params: RapporParams,
    repeats: RepeatedReports,
    *,
    of_zero: bool = False,
) -> PresenceTest:
    permanent = 1 - params.f1 if of_zero else params.f0
    slope = params.q_star - params.p_star
    bit = AbsentBit(permanent, params.p, params.q)
    return PresenceTest.of(ones, n_reports, bit, -slope if of_zero else slope, repeats)


def subset_noise(response: Subset) -> SubsetNoise:
    """Return how the bits of a response scatter."""
    return SubsetNoise.of(response.cells, response.width, response.chance)


def _of_subset(
    rate: FloatArray, ones: IntArray, n_reports: int, response: Subset, repeats: RepeatedReports
) -> CategoryEstimates:
    """Return the estimates from sets of fixed size.

    An empty category is in a report's set with the same chance whatever that client's
    category is, so its count alone is binomial, as that of an independent bit.
    """
    noise = subset_noise(response)
    shares = nearest_distribution(rate, np.ones_like(rate))
    bit = AbsentBit(0.0, noise.other, noise.own)
    return CategoryEstimates(
        unbiased=rate,
        covariance=noise.covariance(shares, n_reports)
        + repeats.sampling_covariance(shares, n_reports),
        share=nearest_distribution(rate, noise.variance(shares, n_reports)),
        tests=(PresenceTest.of(ones, n_reports, bit, noise.own - noise.other, repeats),),
    )


def detected_interval(
    estimate: FloatArray, std_error: FloatArray, detected: BoolArray, threshold: FloatArray
) -> ShareInterval:
    """Return 95% intervals of shares; those of the detected hold given that they were detected.

    `estimate` and `std_error`, shape (n,): as for `share_interval`. `detected` has shape (n,).
    `threshold`, shape (n,): estimates above which each is detected, given the other ones' noise.
    """
    low, high = share_interval(estimate, std_error)
    low[detected], high[detected] = after_selection(
        estimate[detected],
        std_error[detected],
        np.minimum(threshold, estimate)[detected],
        unselected=(low[detected], high[detected]),
        most=1.0,
    )
    return ShareInterval(low, high)
