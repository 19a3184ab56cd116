"""How well a table of several fields is known: errors, limits of detection, departures.

Where each cell has a bit of its own, a cell's count is binomial and all errors follow exactly from
p*, q* and N; whatever else is in the table changes them little. Where cells are hashed, a cell is
found as a listed string is (`limits`), among as many candidates as there are cells.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.categories.shares import nearest_distribution, noise_variance
from hubbub.decoder.errors import PlanError
from hubbub.planning.limits import (
    Question,
    coin_variance,
    detection_limit,
    reports_needed,
    string_errors,
)
from hubbub.protocol.metric_types.joint import FEWEST_FIELDS, MOST_FIELDS
from hubbub.protocol.params import RapporParams

TEST_LEVEL = 0.05
"""At which independence is rejected."""

MOST_REPORTS = 1e15
"""For which these formulas are computed."""

_FEWEST_VALUES, _MOST_VALUES = 2, 4096
_TABLES_OF_CELLS = 40_000
_FEWEST_TABLES = 16
_MOST_DRAWS, _DRAWN_CELLS = 2_000, 4_000_000
_SEED = 20
_CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """A table of two or three fields, and what detecting a cell means.

    Attributes
    ----------
    sizes : tuple of int
        How many values each field has.
    alpha : float
        Chance of even one false cell among the detected (Bonferroni).
    power : float
        Probability with which a cell of the limit's share is to be detected.

    Raises
    ------
    PlanError
        If a number is out of range.
    """

    sizes: tuple[int, ...]
    alpha: float = 0.05
    power: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what isn't a table."""
        shown = "x".join(map(str, self.sizes))
        if not FEWEST_FIELDS <= len(self.sizes) <= MOST_FIELDS:
            raise PlanError(
                f"cells = {shown}: must be {FEWEST_FIELDS} or {MOST_FIELDS} numbers of values, "
                "as 100x20"
            )
        if not all(_FEWEST_VALUES <= size <= _MOST_VALUES for size in self.sizes):
            raise PlanError(
                f"cells = {shown}: each field must have {_FEWEST_VALUES} to {_MOST_VALUES:,} values"
            )
        _ = self.of_strings  # checks alpha and power

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.sizes)

    @property
    def level(self) -> float:
        """The level of one test, alpha / cells."""
        return self.alpha / self.cells

    @property
    def of_strings(self) -> Question:
        """The same, asked of hashed cells, of which Zipf's law holds."""
        return Question(self.cells, self.alpha, self.power)


def is_hashed(params: RapporParams, question: TableQuestion) -> bool:
    """Return whether cells are hashed with some parameters (raises PlanError if that is unclear).

    As the registry has it: where all cells have a bit, there is one hash and one cohort.
    """
    if params.k < question.cells:
        return True
    if (params.h, params.m) != (1, 1):
        raise PlanError(
            f"h = {params.h}, m = {params.m}: must be 1 where each of {question.cells:,} cells has "
            "a bit"
        )
    return False


@dataclass(frozen=True, slots=True)
class TableErrors:
    """Standard errors of sums over cells with a bit each, times the square root of N.

    With d_c a cell's noise from both responses, D the sum of them and pi_c its share, the estimates
    that add up to 1 have the covariance diag(d) - d d^T / D + diag(pi) - pi pi^T, over N
    (`categories.shares.estimate_categories`). d_c is a line in pi_c, so a sum over cells needs how
    many they are and their share together, not how it is divided.
    """

    params: RapporParams
    cells: int

    def of_cell(self, share: float = 0.0) -> float:
        """Of a cell's share."""
        return self._of(1.0, 1, share, 0.0, 0, 0.0)

    def of_margin(self, size: int, share: float = 0.0) -> float:
        """Of the share of one of a field's `size` values."""
        return self._of(1.0, self.cells // size, share, 0.0, 0, 0.0)

    def of_conditional(self, first: int, last: int, given: float, share: float) -> float:
        """Of the share of a value among the clients with a given value of another field.

        Parameters
        ----------
        first, last : int
            How many values the fields have, that of the condition first.
        given : float
            Share of the clients with the given value.
        share : float
            Of them, how many have the value.
        """
        row = self.cells // first
        inside = row // last
        return (
            self._of(1 - share, inside, given * share, -share, row - inside, given * (1 - share))
            / given
        )

    def _of(self, a: float, n_a: int, share_a: float, b: float, n_b: int, share_b: float) -> float:
        """Of a times the sum over some cells and b times that over others."""
        noise_a, noise_b = self._noise(n_a, share_a), self._noise(n_b, share_b)
        noise = a * a * noise_a + b * b * noise_b
        noise -= (a * noise_a + b * noise_b) ** 2 / self._noise(self.cells, 1.0)
        sampling = a * a * share_a + b * b * share_b - (a * share_a + b * share_b) ** 2
        return math.sqrt(max(noise, 0.0) + sampling)

    def _noise(self, cells: int, share: float) -> float:
        """Return the sum of d over cells that have a share together."""
        empty = coin_variance(self.params, 0.0)
        return cells * empty + share * (coin_variance(self.params, 1.0) - empty)


def cell_error(params: RapporParams, n_reports: float, question: TableQuestion) -> float:
    """Return the standard error of an empty cell's share."""
    if is_hashed(params, question):
        return string_errors(params, n_reports, 0.0, question.of_strings).absent
    return TableErrors(params, question.cells).of_cell() / math.sqrt(n_reports)


def error_reports_needed(params: RapporParams, std_error: float, question: TableQuestion) -> float:
    """Return the number of reports at which an empty cell has a standard error; infinite if none.

    Of hashed cells other strings' bits leave an error that more reports don't lower.
    """
    if not is_hashed(params, question):
        return (TableErrors(params, question.cells).of_cell() / std_error) ** 2

    def excess(log_reports: float) -> float:
        return math.log(cell_error(params, math.exp(log_reports), question) / std_error)

    high = math.log(MOST_REPORTS)
    return math.inf if excess(high) > 0 else math.exp(optimize.brentq(excess, 0.0, high, xtol=1e-6))


def cell_limit(params: RapporParams, n_reports: float, question: TableQuestion) -> float:
    """Return the smallest share of a cell that is detected with the question's power.

    Infinite if none is. A bit of a cell that nobody is in is 1 in Binomial(N, p*) reports, and of a
    share pi in Binomial(N, p* + pi (q* - p*)): both tails are exact.
    """
    if is_hashed(params, question):
        return detection_limit(params, n_reports, question.of_strings)
    p, q = _rates(params)
    threshold = _threshold(n_reports, p, question.level)
    if threshold > n_reports:
        return math.inf
    rate = float(special.betaincinv(threshold, n_reports - threshold + 1, question.power))
    share = (rate - p) / (q - p)
    return share if share <= 1 else math.inf


def cell_power(
    params: RapporParams, n_reports: float, share: float, question: TableQuestion
) -> float:
    """Return the probability that a cell of a share with a bit of its own is detected."""
    p, q = _rates(params)
    threshold = _threshold(n_reports, p, question.level)
    rate = p + share * (q - p)
    return float(special.betainc(threshold, max(n_reports - threshold, 0) + 1, rate))


def cell_reports_needed(params: RapporParams, share: float, question: TableQuestion) -> float:
    """Return about how many reports detect a cell of a share; infinite if no number does."""
    if is_hashed(params, question):
        return reports_needed(params, share, question.of_strings)
    low, high = 0.0, math.log(MOST_REPORTS)
    if cell_limit(params, math.exp(high), question) > share:
        return math.inf
    while high - low > _CLOSE:
        middle = (low + high) / 2
        found = cell_limit(params, math.exp(middle), question) <= share
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


def association_limit(params: RapporParams, n_reports: float, question: TableQuestion) -> float:
    """Return the share of clients with partners that the test of independence finds.

    With the question's power, at `TEST_LEVEL`; infinite if none is, nan of three fields.

    Notes
    -----
    The statistic is sum a_i b_j (y_ij - a_i b_j)^2 with the table's own margins a and b. Its
    distribution, with partners and for the product of their margins, comes from the same normal
    errors, so that it changes smoothly with the share.
    """
    if len(question.sizes) != FEWEST_FIELDS:
        return math.nan
    rng = np.random.default_rng(_SEED)
    n_draws = min(_MOST_DRAWS, _DRAWN_CELLS // question.cells)
    draws = rng.standard_normal((n_draws, question.cells))

    def excess(share: float) -> float:
        table = partner_table(question.sizes, share)
        product = np.outer(table.sum(axis=1), table.sum(axis=0))
        found, null = (
            _statistics(_drawn(params, n_reports, shares, draws), question.sizes)
            for shares in (table, product)
        )
        threshold = np.quantile(null, 1 - TEST_LEVEL)
        return float(np.quantile(found, 1 - question.power) / threshold - 1)

    if excess(1.0) < 0:
        return math.inf
    return float(optimize.brentq(excess, 0.0, 1.0, xtol=_CLOSE, rtol=1e-2))


def _rates(params: RapporParams) -> tuple[float, float]:
    """Return p* and q*, or of bits that are rarer where they are true, those of zeros."""
    p, q = params.p_star, params.q_star
    return (p, q) if p < q else (1 - p, 1 - q)


def _threshold(n_reports: float, rate: float, level: float) -> int:
    """Return the least count whose chance of being reached at a rate is at most a level."""
    low, high = 0, math.floor(n_reports) + 1  # which is never reached
    while high - low > 1:
        middle = (low + high) // 2
        reached = special.betainc(middle, n_reports - middle + 1, rate) <= level
        low, high = (low, middle) if reached else (middle, high)
    return high


def _drawn(
    params: RapporParams, n_reports: float, table: FloatArray, draws: FloatArray
) -> FloatArray:
    """Return tables as they might be estimated: normal, and adding up to 1.

    Parameters
    ----------
    draws : float64 array, shape (d, n)
        Standard normal.
    """
    shares = table.ravel()
    variance = noise_variance(shares, 1, params) + shares
    errors = draws * np.sqrt(variance)
    errors -= np.outer(errors.sum(axis=1), variance / variance.sum())
    return np.asarray(shares + errors / math.sqrt(n_reports))


def _statistics(tables: FloatArray, sizes: tuple[int, ...]) -> FloatArray:
    """Return the statistic of independence of each of some tables, shape (d,)."""
    y = tables.reshape(-1, *sizes)
    a, b = y.sum(axis=2), y.sum(axis=1)
    # Expanded, so that no further array of the tables' size is needed.
    crossed = np.einsum("dij,di,dj->d", y * y, a, b, optimize=True)
    mixed = np.einsum("dij,di,dj->d", y, a * a, b * b, optimize=True)
    return np.asarray(crossed - 2 * mixed + (a**3).sum(axis=1) * (b**3).sum(axis=1))
