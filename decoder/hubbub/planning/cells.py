"""Cells with a bit each: detection of one, errors of sums over them, and tables of fields.

The bit of an empty cell is 1 in a binomial number of reports, from which all errors
follow. Invariant: a tuple is one value, so both epsilons are those of a string with as many hashes,
whichever field changes.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from hubbub.inference import FloatArray, nearest_distribution, noise_variance
from hubbub.planning.limits import DetectionTest, coin_variance, equivalent_reports
from hubbub.protocol import FEWEST_FIELDS, RapporParams

TEST_LEVEL = 0.05
"""At which independence is rejected: the decoder's own default."""

MOST_REPORTS = 1e15
"""For which these formulas are computed: counts and the reports themselves stay exact doubles."""

_TABLES_OF_CELLS, _FEWEST_TABLES = 10_000, 16  # measured: their mean varies by .4 to .9%
_MOST_DRAWS, _DRAWN_CELLS = 2_000, 4_000_000  # measured: the limit varies by 1.6%; 32 MB
_CLOSE_LIMIT = 5e-3  # of its logarithm: well below what the draws leave open
_SEED = 20  # any: the same test has the same answer
_CLOSE = 1e-4  # of a logarithm: what is printed has four digits


@dataclass(frozen=True, slots=True)
class CellErrors:
    """Standard errors of sums over cells with a bit each, times the square root of N clients.

    With d_c a cell's noise from both responses, D the sum of them and pi_c its share, the estimates
    that add up to 1 have the covariance diag(d) - d d^T / D + diag(pi) - pi pi^T, over N
    (`categories.shares.estimate_categories`). d_c is a line in pi_c, so a sum over cells needs how
    many they are and their share together, not how it is divided.
    """

    params: RapporParams
    cells: int
    reports_each: float = 1.0

    def of_cell(self, share: float = 0.0) -> float:
        """Return the standard error of a cell's share."""
        return self._of(1.0, 1, share, 0.0, 0, 0.0)

    def of_margin(self, size: int, share: float = 0.0) -> float:
        """Return the standard error of one of a field's `size` values."""
        return self._of(1.0, self.cells // size, share, 0.0, 0, 0.0)

    def of_conditional(self, first: int, last: int, given: float, share: float) -> float:
        """Error of a value's share among the clients with the `given` value of another field."""
        row = self.cells // first
        inside = row // last
        return (
            self._of(1 - share, inside, given * share, -share, row - inside, given * (1 - share))
            / given
        )

    def _of(self, a: float, n_a: int, share_a: float, b: float, n_b: int, share_b: float) -> float:
        noise_a, noise_b = self._noise(n_a, share_a), self._noise(n_b, share_b)
        noise = a * a * noise_a + b * b * noise_b
        noise -= (a * noise_a + b * noise_b) ** 2 / self._noise(self.cells, 1.0)
        sampling = a * a * share_a + b * b * share_b - (a * share_a + b * share_b) ** 2
        return math.sqrt(max(noise, 0.0) + sampling)

    def _noise(self, cells: int, share: float) -> float:
        empty = coin_variance(self.params, 0.0, self.reports_each)
        return cells * empty + share * (coin_variance(self.params, 1.0, self.reports_each) - empty)


def bit_limit(params: RapporParams, n_clients: float, test: DetectionTest) -> float:
    """Return the smallest share of a cell with a bit of its own that is detected with the power.

    Infinite if none is. A bit of an empty cell is 1 in Binomial(N, p*) reports, and of a
    share pi in Binomial(N, p* + pi (q* - p*)): both tails are exact if each client reports once.
    Otherwise they are those of `equivalent_reports`.
    """
    p, q = _rates(params)
    n_reports = equivalent_reports(params, n_clients, test.reports_each)
    threshold = _threshold(n_reports, p, test.level)
    if threshold > n_reports:
        return math.inf
    rate = float(special.betaincinv(threshold, n_reports - threshold + 1, test.power))
    share = (rate - p) / (q - p)
    return share if share <= 1 else math.inf


def bit_power(params: RapporParams, n_clients: float, share: float, test: DetectionTest) -> float:
    """Return the probability that a cell of a share with a bit of its own is detected."""
    p, q = _rates(params)
    n_reports = equivalent_reports(params, n_clients, test.reports_each)
    threshold = _threshold(n_reports, p, test.level)
    rate = p + share * (q - p)
    return float(special.betainc(threshold, max(n_reports - threshold, 0) + 1, rate))


def bit_reports_needed(params: RapporParams, share: float, test: DetectionTest) -> float:
    """Return about how many clients' reports detect a cell of a share; infinite if no number does.

    The limit falls in small jumps, so an interval is halved until it is `_CLOSE` wide.
    """
    low, high = 0.0, math.log(MOST_REPORTS)
    if bit_limit(params, math.exp(high), test) > share:
        return math.inf
    while high - low > _CLOSE:
        middle = (low + high) / 2
        found = bit_limit(params, math.exp(middle), test) <= share
        low, high = (low, middle) if found else (middle, high)
    return math.exp(high)


def typical_shares(size: int) -> FloatArray:
    """Return Zipf's law: the share of rank r is proportional to 1 / r; shape (size,)."""
    shares = 1 / np.arange(1, size + 1)
    return np.asarray(shares / shares.sum())


def typical_table(sizes: tuple[int, ...]) -> FloatArray:
    """Return the table of independent fields by Zipf's law, of shape `sizes`."""
    return functools.reduce(np.multiply.outer, map(typical_shares, sizes))


def partner_table(sizes: tuple[int, ...], share: float) -> FloatArray:
    """Return `typical_table` of two fields, but of a share of clients the first decides the second.

    Their second value is the partner of the first. Common values have rare partners, which is when
    the test of independence finds least.
    """
    first, second = sizes
    table = (1 - share) * typical_table(sizes)
    rows = np.arange(first)
    table[rows, second - 1 - rows % second] += share * typical_shares(first)
    return table


@functools.lru_cache(maxsize=64)  # plans of one goal are compared at one number of reports
def expected_total_variation(
    params: RapporParams, n_reports: float, sizes: tuple[int, ...]
) -> float:
    """Return how far the nearest possible table is from the typical one, on average.

    Half the sum of the absolute differences. Tables are drawn by the exact law of the counts, of
    the same seed always, and estimated as the decoder does, each cell by itself.
    """
    shares, n = typical_table(sizes).ravel(), round(n_reports)
    rng = np.random.default_rng(_SEED)
    p, q = params.p_star, params.q_star
    differences = []
    for _ in range(max(_FEWEST_TABLES, _TABLES_OF_CELLS // len(shares))):
        clients = rng.multinomial(n, shares)
        ones = rng.binomial(clients, q) + rng.binomial(n - clients, p)
        rate = (ones / n - p) / (q - p)
        possible = nearest_distribution(rate, np.ones_like(rate))
        found = nearest_distribution(rate, noise_variance(possible, n, params))
        differences.append(np.abs(found - shares).sum() / 2)
    return float(np.mean(differences))


@functools.lru_cache(maxsize=64)
def association_limit(
    params: RapporParams, n_reports: float, sizes: tuple[int, ...], power: float
) -> float:
    """Return the share of clients with partners that the test of independence finds.

    At `TEST_LEVEL`; infinite if none is, nan of three fields. The statistic is sum a_i b_j (y_ij -
    a_i b_j)^2 with the table's own margins a and b. Its distribution, with partners and for the
    product of their margins, comes from the same normal errors, so that it changes smoothly with
    the share.
    """
    if len(sizes) != FEWEST_FIELDS:
        return math.nan
    rng = np.random.default_rng(_SEED)
    cells = math.prod(sizes)
    n_draws = min(_MOST_DRAWS, _DRAWN_CELLS // cells)
    draws = rng.standard_normal((n_draws, cells))

    def excess(log_share: float) -> float:
        share = math.exp(log_share)
        table = partner_table(sizes, share)
        product = np.outer(table.sum(axis=1), table.sum(axis=0))
        found, null = (
            _statistics(_drawn(params, n_reports, shares, draws), sizes)
            for shares in (table, product)
        )
        threshold = np.quantile(null, 1 - TEST_LEVEL)
        return float(np.quantile(found, 1 - power) / threshold - 1)

    if excess(0.0) < 0:
        return math.inf
    # A single client with a partner is never found.
    return math.exp(optimize.brentq(excess, -math.log(n_reports), 0.0, xtol=_CLOSE_LIMIT))


def _rates(params: RapporParams) -> tuple[float, float]:
    p, q = params.p_star, params.q_star
    return (p, q) if p < q else (1 - p, 1 - q)


def _threshold(n_reports: float, rate: float, level: float) -> int:
    low, high = 0, math.floor(n_reports) + 1  # which is never reached
    while high - low > 1:
        middle = (low + high) // 2
        reached = special.betainc(middle, n_reports - middle + 1, rate) <= level
        low, high = (low, middle) if reached else (middle, high)
    return high


def _drawn(
    params: RapporParams, n_reports: float, table: FloatArray, draws: FloatArray
) -> FloatArray:
    """Return tables as they might be estimated from normal `draws`, shape (d, n)."""
    shares = table.ravel()
    variance = noise_variance(shares, 1, params) + shares
    errors = draws * np.sqrt(variance)
    errors -= np.outer(errors.sum(axis=1), variance / variance.sum())
    return np.asarray(shares + errors / math.sqrt(n_reports))


def _statistics(tables: FloatArray, sizes: tuple[int, ...]) -> FloatArray:
    y = tables.reshape(-1, *sizes)
    a, b = y.sum(axis=2), y.sum(axis=1)
    # Expanded, so that no further array of the tables' size is needed.
    crossed = np.einsum("dij,di,dj->d", y * y, a, b, optimize=True)
    mixed = np.einsum("dij,di,dj->d", y, a * a, b * b, optimize=True)
    return np.asarray(crossed - 2 * mixed + (a**3).sum(axis=1) * (b**3).sum(axis=1))
