"""Parameters of a table of several fields, and how well it will be known.

Where each cell has a bit of its own, a cell's count is binomial and all errors follow exactly from
p*, q* and N; whatever else is in the table changes them little. Where cells are hashed, a cell is
found as a listed string is (`limits`), among as many candidates as there are cells. Invariant: the
tuple is one value, so both epsilons are those of a string with as many hashes, whichever field
changes.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.categories.shares import nearest_distribution, noise_variance
from hubbub.decoder.errors import PlanError
from hubbub.decoder.planning.limits import (
    Question,
    coin_variance,
    detection_limit,
    reports_needed,
    string_errors,
)
from hubbub.decoder.planning.noise import (
    Budget,
    common_rates,
    count_variance,
    exact_params,
    oue_variance,
    params_within,
    rare_rate,
)
from hubbub.decoder.planning.search import best_params, settled_reports
from hubbub.protocol.metric_types.joint import (
    FEWEST_FIELDS,
    MOST_FIELDS,
    JointType,
    number_of_values,
)
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import MOST_BITS, RapporParams

GIVEN_SHARE = 0.1
"""Of the clients: who are asked about where conditional shares are."""

TEST_LEVEL = 0.05
"""At which independence is rejected."""

_FEWEST_VALUES, _MOST_VALUES = 2, 4096
_MOST_REPORTS = 1e15
_CURVE_POINTS = 25
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


@dataclass(frozen=True, slots=True)
class JointPlan:
    """Parameters of a joint metric, and what they achieve.

    Attributes
    ----------
    hashed : bool
        Whether the cells are hashed; otherwise each has a bit.
    reports : float
        N.
    limit : float
        Share of a cell that N reports show with the question's power; infinite if none.
    std_error : float
        Of the share of a cell that nobody is in.
    margins : tuple of float
        Standard errors of a value's share of each field, if nobody has it; none if hashed.
    conditional : float
        Standard error of an average value of the last field among those with a value of the first
        that `GIVEN_SHARE` have; nan if hashed.
    total_variation : float
        Expected, of the possible table nearest to the estimates from the typical one; nan if
        hashed.
    association : float
        Share of clients with a partner value that the test of independence finds with the
        question's power (see `partner_table`); nan if hashed or of three fields, infinite if none.
    """

    name: str
    params: RapporParams
    hashed: bool
    reports: float
    limit: float
    std_error: float
    margins: tuple[float, ...] = ()
    conditional: float = math.nan
    total_variation: float = math.nan
    association: float = math.nan

    @property
    def oue_ratio(self) -> float:
        """As `search.Plan` has it."""
        return count_variance(self.params) / oue_variance(self.params.epsilon_report)


class Split(NamedTuple):
    """Fields that share the epsilons instead, an equal part each.

    Attributes
    ----------
    margins : tuple of float
        Standard errors of a value's share of each field that nobody has, as metrics apart.
    cell_ratio : float
        How much more an empty cell's estimate varies if each report has all fields side by side.
    """

    margins: tuple[float, ...]
    cell_ratio: float


@dataclass(frozen=True, slots=True)
class JointComparison:
    """What was planned.

    Attributes
    ----------
    split : Split
        What the fields would be at the best plan's reports, if they had parts of the epsilons.
    given : JointPlan or None
        Parameters that were to be evaluated; the budget is what they spend.
    """

    question: TableQuestion
    budget: Budget
    best: JointPlan
    split: Split
    given: JointPlan | None = None


class JointPoint(NamedTuple):
    """Of a cell, at one epsilon or number of reports."""

    at: float
    limit: float
    std_error: float


def make_joint_plan(
    name: str, params: RapporParams, n_reports: float, question: TableQuestion
) -> JointPlan:
    """Return parameters with what they achieve.

    Raises
    ------
    PlanError
        If there are hashes or cohorts although each cell has a bit, or more reports than can be
        drawn.
    """
    if n_reports > _MOST_REPORTS:
        raise PlanError(f"reports = {n_reports:g}: must be at most {_MOST_REPORTS:g} for a table")
    hashed = is_hashed(params, question)
    limit = cell_limit(params, n_reports, question)
    std_error = cell_error(params, n_reports, question)
    if hashed:
        return JointPlan(name, params, hashed, n_reports, limit, std_error)
    errors = TableErrors(params, question.cells)
    first, last = question.sizes[0], question.sizes[-1]
    scale = 1 / math.sqrt(n_reports)
    return JointPlan(
        name,
        params,
        hashed,
        n_reports,
        limit,
        std_error,
        margins=tuple(scale * errors.of_margin(size) for size in question.sizes),
        conditional=scale * errors.of_conditional(first, last, GIVEN_SHARE, 1 / last),
        total_variation=expected_total_variation(params, n_reports, question.sizes),
        association=association_limit(params, n_reports, question),
    )


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


def plan_joint(
    budget: Budget, question: TableQuestion, n_reports: float, most_bits: int = MOST_BITS
) -> JointComparison:
    """Choose parameters: a bit a cell if there are so many, with the least noise; else hashes.

    Parameters
    ----------
    n_reports : float
        N.
    most_bits : int
        Largest k.

    Raises
    ------
    PlanError
        If no parameters are within the budget, or they show nothing.
    """
    params = _params(budget, question, n_reports, most_bits)
    best = make_joint_plan("best", params, n_reports, question)
    if best.limit == math.inf:
        raise PlanError(
            f"reports = {n_reports:,.0f}: too few to show any of {question.cells:,} cells within "
            "the budget; collect more, or allow larger epsilons"
        )
    return JointComparison(question, budget, best, _split(budget, question, n_reports))


def plan_joint_for_share(
    budget: Budget, question: TableQuestion, share: float, most_bits: int = MOST_BITS
) -> JointComparison:
    """Choose parameters that show a cell's share from the fewest reports."""

    def needed_by_best(n_reports: float) -> float:
        params = _params(budget, question, n_reports, most_bits)
        return cell_reports_needed(params, share, question)

    needed = settled_reports(needed_by_best)
    if math.isinf(needed):
        raise PlanError(f"share = {share:g}: no number of reports shows it within the budget")
    return plan_joint(budget, question, math.ceil(needed), most_bits)


def plan_joint_for_error(
    budget: Budget, question: TableQuestion, std_error: float, most_bits: int = MOST_BITS
) -> JointComparison:
    """Choose parameters that estimate a rare cell with an error from the fewest reports."""

    def needed_by_best(n_reports: float) -> float:
        params = _params(budget, question, n_reports, most_bits)
        return error_reports_needed(params, std_error, question)

    needed = settled_reports(needed_by_best)
    if math.isinf(needed):
        raise PlanError(f"error = {std_error:g}: no number of reports has it within the budget")
    return plan_joint(budget, question, math.ceil(needed), most_bits)


def evaluate_joint(
    params: RapporParams,
    question: TableQuestion,
    n_reports: float | None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = MOST_BITS,
) -> JointComparison:
    """Compare given parameters with the best at the epsilons that they spend.

    Parameters
    ----------
    n_reports : float, optional
        N; by default as many as the given parameters need for `share` or else `std_error`.

    Raises
    ------
    PlanError
        As `plan_joint`, and if no number of reports is enough.
    """
    if n_reports is None:
        wanted = f"share = {share}" if share is not None else f"error = {std_error}"
        if share is not None:
            needed = cell_reports_needed(params, share, question)
        else:
            needed = error_reports_needed(params, std_error or 0.0, question)
        if math.isinf(needed):
            raise PlanError(f"{wanted}: no number of reports has it with {params}")
        n_reports = math.ceil(needed)
    budget = Budget(params.epsilon_permanent, params.epsilon_report)
    given = make_joint_plan("given", params, n_reports, question)
    return replace(plan_joint(budget, question, n_reports, most_bits), given=given)


def joint_question(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> TableQuestion:
    """Return the question about the table of a joint metric.

    Raises
    ------
    PlanError
        If it is of another type, or has a field of strings, which have no number.
    """
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    if not isinstance(metric.type, JointType):
        raise PlanError(
            f"{what}: must be 'joint', or a type of strings with --candidates or --open"
        )
    sizes = tuple(number_of_values(field.type) for field in metric.type.fields)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise PlanError(
            f"{what}: has a field of strings, so there are as many cells as tuples that are looked "
            "for; give --candidates"
        )
    return TableQuestion(known, alpha, power)


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

    high = math.log(_MOST_REPORTS)
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
    low, high = 0.0, math.log(_MOST_REPORTS)
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


def joint_by_epsilon(found: JointComparison) -> list[JointPoint]:
    """Return errors over epsilons of a report, from a quarter of the budget's to four times."""
    best, spent = found.best, found.budget.report
    highest = min(4 * spent, found.budget.permanent)
    points = []
    for epsilon in np.geomspace(spent / 4, highest, _CURVE_POINTS).tolist():
        budget = Budget(found.budget.permanent, min(epsilon, found.budget.permanent))
        params = exact_params(*best.params[:3], budget, least_noise_rate(budget))
        points.append(_point(epsilon, params, best.reports, found.question))
    return points


def joint_by_reports(found: JointComparison) -> list[JointPoint]:
    """Return errors over N, from a hundredth of the plan's to a hundred times, at fixed noise."""
    best = found.best
    reports = np.geomspace(best.reports / 100, best.reports * 100, _CURVE_POINTS).tolist()
    return [_point(n, best.params, n, found.question) for n in reports]


def least_noise_rate(budget: Budget) -> float:
    """Return the q* of the least variance of an empty cell within a budget.

    That is 1/2 (Wang et al. 2017, section 4.3), or what is nearest to it among those that can be.
    """
    low, high = common_rates(1, budget)
    return min(max(0.5, low), high)


def _params(
    budget: Budget, question: TableQuestion, n_reports: float, most_bits: int
) -> RapporParams:
    if question.cells <= most_bits:
        k = -(-question.cells // 8) * 8
        return params_within(k, 1, 1, budget, least_noise_rate(budget))
    return best_params(1, budget, question.of_strings, n_reports, most_bits)


def _point(
    at: float, params: RapporParams, n_reports: float, question: TableQuestion
) -> JointPoint:
    limit = cell_limit(params, n_reports, question)
    return JointPoint(at, limit, cell_error(params, n_reports, question))


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


def _split(budget: Budget, question: TableQuestion, n_reports: float) -> Split:
    """Return what fields with equal parts of the epsilons would be."""
    fields = len(question.sizes)
    part = Budget(budget.permanent / fields, budget.report / fields)
    apart, together = (_least_variance(each) for each in (part, budget))
    # Of a field's values that have a bit each, the sum is known (see TableErrors).
    margins = (math.sqrt(apart * (1 - 1 / size) / n_reports) for size in question.sizes)
    return Split(tuple(margins), apart**fields / together)


def _least_variance(budget: Budget) -> float:
    """Return N times the least variance of an empty cell's share."""
    q_star = least_noise_rate(budget)
    p_star = rare_rate(1, budget.report, q_star)
    return p_star * (1 - p_star) / (q_star - p_star) ** 2


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
