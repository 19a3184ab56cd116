"""A table of several fields as a goal: a bit per cell or hashes, and how well it will be known.

Cells have a bit each while they fit, and are hashed otherwise; noise is the least that both
epsilons allow. A cell with a bit of its own has a binomial count, from which all errors follow;
hashed, it is found as a listed string is, among as many candidates as there are cells. Invariant:
the tuple is one value, so both epsilons are those of a string with as many hashes, whichever field
changes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from hubbub.inference import FloatArray, PlanError, nearest_distribution, noise_variance
from hubbub.planning.goals import (
    Curve,
    Goal,
    Plan,
    PlanSearch,
    SearchSpace,
    category_lines,
    entry_text,
    limit_finding,
    percents,
)
from hubbub.planning.limits import DetectionTest, coin_variance, equivalent_reports
from hubbub.planning.noise import Budget, rare_rate
from hubbub.planning.search import fitted_curve, least_noise_rate
from hubbub.planning.strings import StringsGoal
from hubbub.protocol import (
    FEWEST_FIELDS,
    MOST_FIELDS,
    JointType,
    Metric,
    RapporParams,
    counted,
    number_of_values,
)
from hubbub.reporting import Finding, Types

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
class TableErrors:
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
        """Of a cell's share."""
        return self._of(1.0, 1, share, 0.0, 0, 0.0)

    def of_margin(self, size: int, share: float = 0.0) -> float:
        """Of the share of one of a field's `size` values."""
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

    Infinite if none is. A bit of a cell that nobody is in is 1 in Binomial(N, p*) reports, and of a
    share pi in Binomial(N, p* + pi (q* - p*)): both tails are exact if each client reports once.
    Otherwise they are those of as many clients as know an absent cell's share as well.
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


GIVEN_SHARE = 0.1
"""Share of the clients among whom conditional shares are stated: a value that is common, but not
the commonest."""

_FEWEST_VALUES, _MOST_VALUES = 2, 4096  # of a field: a boolean's, and as many as a report has bits
_MARGINS = [f"margin_std_error_{i + 1}" for i in range(MOST_FIELDS)]


@dataclass(frozen=True, slots=True)
class TableGoal(Goal):
    """The rarest cell of a table of two or three fields that reports show (`table_goal`)."""

    sizes: tuple[int, ...]  # how many values each field has

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.sizes)

    def is_hashed(self, params: RapporParams) -> bool:
        """Return whether cells are hashed; otherwise there is one hash and one cohort."""
        if params.k < self.cells:
            return True
        if (params.h, params.m) != (1, 1):
            raise PlanError(
                f"h = {params.h}, m = {params.m}: must be 1 where each of {self.cells:,} cells has "
                "a bit"
            )
        return False

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the smallest share of a cell that N reports show."""
        if self.is_hashed(params):
            return super(TableGoal, self).limit(params, n_reports)
        return bit_limit(params, self.clients(n_reports), self.test)

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of an empty cell's share."""
        if self.is_hashed(params):
            return super(TableGoal, self).error(params, n_reports)
        return self._errors(params).of_cell() / math.sqrt(self.clients(n_reports))

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which N reports show a cell of a share."""
        if self.is_hashed(params):
            return super(TableGoal, self).power(params, n_reports, share)
        return bit_power(params, self.clients(n_reports), share, self.test)

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return about how many reports detect a cell of a share."""
        if self.is_hashed(params):
            return super(TableGoal, self).reports_needed(params, share)
        return bit_reports_needed(params, share, self.test) / self.clients(1.0)

    def figures(self, params: RapporParams, n_reports: float) -> Mapping[str, Any]:
        """Return the errors of sums over cells (nan if these are hashed), and whether they are.

        The error of an average value of the last field among those with a value of the first that
        `GIVEN_SHARE` have; the expected total variation of the typical table; and the share of
        clients with a partner value that the test of independence finds (`tables.partner_table`).
        """
        names = (*_MARGINS, "conditional_std_error", "total_variation", "partner_share")
        figures: dict[str, Any] = dict.fromkeys(names, math.nan)
        figures["hashed"] = self.is_hashed(params)
        if figures["hashed"]:
            return figures
        clients, each = self.clients(n_reports), self.test.reports_each
        errors, scale = self._errors(params), 1 / math.sqrt(clients)
        first, last = self.sizes[0], self.sizes[-1]
        for name, size in zip(_MARGINS, self.sizes, strict=False):
            figures[name] = scale * errors.of_margin(size)
        conditional = errors.of_conditional(first, last, GIVEN_SHARE, 1 / last)
        figures["conditional_std_error"] = scale * conditional
        once = equivalent_reports(params, clients, each)
        figures["total_variation"] = expected_total_variation(params, once, self.sizes)
        figures["partner_share"] = association_limit(params, once, self.sizes, self.test.power)
        return figures

    def _errors(self, params: RapporParams) -> TableErrors:
        return TableErrors(params, self.cells, self.test.reports_each)

    def margins(self, plan: Plan) -> tuple[float, ...]:
        """Return the errors of a rare value's share of each field."""
        return tuple(plan.figures[name] for name in _MARGINS[: len(self.sizes)])

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:
        """Return a bit per cell with the least noise if there are so many; else one hash."""
        if n_reports > MOST_REPORTS:
            raise PlanError(
                f"reports = {n_reports:g}: must be at most {MOST_REPORTS:g} for a table"
            )
        if self.cells > most_bits:
            return [StringsGoal(self.test).hashed(1, n_reports, most_bits)]
        k = -(-self.cells // 8) * 8
        return [SearchSpace(1, (k,), lambda _: (1,), (k, 1), least_noise_rate(1, budget))]

    def curves(self, found: PlanSearch) -> Mapping[str, Curve]:
        """Return a cell's limit and error."""
        rate = partial(least_noise_rate, 1)
        return {
            "detectable_share": fitted_curve("detected cell", self.limit, found.best, rate),
            "std_error": fitted_curve("standard error", self.error, found.best, rate),
        }

    @property
    def columns(self) -> Types:
        """The table's errors, and whether its cells are hashed."""
        errors = (*_MARGINS, "conditional_std_error", "total_variation", "partner_share")
        return {**dict.fromkeys(errors, float), "hashed": bool}

    def shown(self, plan: Plan) -> Mapping[str, str]:
        """Return the total variation."""
        variation = plan.figures["total_variation"]
        return {"total variation": "-" if math.isnan(variation) else f"{variation:.3f}"}

    def asked(self, found: PlanSearch) -> Mapping[str, object]:
        """Return the table's sizes, error rate and power, and what parts of the epsilons do."""
        split = split_epsilons(self.sizes, found.budget, found.best.reports)
        return {
            "cells": list(self.sizes),
            "alpha": self.test.alpha,
            "power": self.test.power,
            "given_share": GIVEN_SHARE,
            "test_level": TEST_LEVEL,
            "margin_std_errors_apart": list(split.margins),
            "cell_variance_side_by_side": split.cell_ratio,
        }

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest cell of {' x '.join(map(str, self.sizes))} that {reports} reports show"

    def about_limit(self, plan: Plan) -> Finding:
        """Return which cell is detected, among how many."""
        cell = f"A cell that {plan.limit:.3%} are in" if plan.limit < math.inf else "No cell"
        return limit_finding(
            plan,
            f"{cell} is detected among {self.cells:,} cells with probability "
            f"{self.test.power:g} (alpha {self.test.alpha:g}, Bonferroni).",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield what is seen of margins and their association, and what parts would do."""
        plan = found.subject
        if self.is_hashed(plan.params):
            text = (
                f"{self.cells:,} cells are hashed into {plan.params.k:,} bits: margins add up "
                "the errors of as many cells as they have."
            )
            yield Finding("hashed", "", text, True)
        else:
            yield from self._about_sums(
                plan, split_epsilons(self.sizes, found.budget, plan.reports)
            )
        size = plan.params.k // 8
        text = f"A report has {counted(size, 'byte')}."
        yield Finding("report_bytes", "", text, size)

    def _about_sums(self, plan: Plan, split: Split) -> Iterator[Finding]:
        """Yield the errors of sums over cells, and the comparison with parts of the epsilons."""
        fields, figures = len(self.sizes), plan.figures
        part = {2: "half", 3: "a third of"}[fields]
        text = (
            f"Standard errors: {percents(plan.std_error)} for a rare cell; "
            f"{percents(*self.margins(plan))} for a rare value of each field; "
            f"{percents(figures['conditional_std_error'])} for an average value of the last field, "
            f"among those with a value of the first field that {GIVEN_SHARE:.0%} have."
        )
        yield Finding("std_error", "", text, plan.std_error)
        text = (
            "If the fields are independent and each follows Zipf's law, the closest possible "
            f"table is off by {figures['total_variation']:.3f} (total variation) on average."
        )
        yield Finding("total_variation", "", text, figures["total_variation"])
        if fields == 2:
            partners = figures["partner_share"]
            shows = (
                f"notices with probability {self.test.power:g} if {partners:.1%} of the clients "
                "hold a value together with its partner."
                if math.isfinite(partners)
                else "shows nothing."
            )
            text = f"The test of independence (level {TEST_LEVEL:g}) {shows}"
            yield Finding("partner_share", "", text, partners)
        text = (
            f"As {fields} separate metrics, with {part} the epsilons each, rare values would "
            f"have errors of {percents(*split.margins)}, and there would be no table."
        )
        yield Finding("margin_std_errors_apart", "", text, list(split.margins))
        text = (
            f"Side by side in one report, with {part} the epsilons each, cells would vary "
            f"{split.cell_ratio:.1f} times as much as they do at best."
        )
        yield Finding("cell_variance_side_by_side", "", text, split.cell_ratio)

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return the parameters, and the number of cells unless they are hashed."""
        return params, None if self.is_hashed(params) else self.cells

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of a joint metric, with fields to be filled in."""
        keys = ("k", "h", "m") if self.is_hashed(params) else ()
        fields: list[str] = []
        for i, size in enumerate(self.sizes):
            fields += ["", f"[[metrics.{name}.fields]]", f'name = "field_{i + 1}"']
            fields += (
                ['type = "boolean"'] if size == 2 else ['type = "enum"', *category_lines(size)]
            )
        return entry_text(params, name, "joint", keys, self.schedule, after=fields)


class Split(NamedTuple):
    """Fields that share the epsilons instead, an equal part each."""

    # Standard errors of a value's share of each field that nobody has, as metrics apart.
    margins: tuple[float, ...]
    # How much more an empty cell's estimate varies if each report has all fields side by side.
    cell_ratio: float


def split_epsilons(sizes: tuple[int, ...], budget: Budget, n_reports: float) -> Split:
    """Return what fields with equal parts of a budget would be."""
    part = Budget(budget.permanent / len(sizes), budget.report / len(sizes))
    apart, together = (_least_variance(each) for each in (part, budget))
    # Of a field's values that have a bit each, the sum is known (see TableErrors).
    margins = (math.sqrt(apart * (1 - 1 / size) / n_reports) for size in sizes)
    return Split(tuple(margins), apart ** len(sizes) / together)


def table_goal(sizes: tuple[int, ...], alpha: float = 0.05, power: float = 0.9) -> TableGoal:
    """Return the goal of a table, whose cells are tested as strings of which Zipf's law holds."""
    shown = "x".join(map(str, sizes))
    if not FEWEST_FIELDS <= len(sizes) <= MOST_FIELDS:
        raise PlanError(
            f"cells = {shown}: must be {FEWEST_FIELDS} or {MOST_FIELDS} numbers of values, "
            "as 100x20"
        )
    if not all(_FEWEST_VALUES <= size <= _MOST_VALUES for size in sizes):
        raise PlanError(
            f"cells = {shown}: each field must have {_FEWEST_VALUES} to {_MOST_VALUES:,} values"
        )
    return TableGoal(DetectionTest(math.prod(sizes), alpha, power), sizes)


def joint_goal(metric: Metric, alpha: float = 0.05, power: float = 0.9) -> TableGoal:
    """Return the goal of a joint metric's table; `PlanError` if it has a field of strings."""
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    if not isinstance(metric.type, JointType):
        raise PlanError(f"{what}: must be 'joint' to be planned as a table")
    sizes = tuple(number_of_values(each.type) for each in metric.type.fields)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise PlanError(
            f"{what}: has a field of strings, so there are as many cells as tuples that are looked "
            "for; plan it as strings"
        )
    return table_goal(known, alpha, power)


def _least_variance(budget: Budget) -> float:
    q_star = least_noise_rate(1, budget)
    p_star = rare_rate(1, budget.report, q_star)
    return p_star * (1 - p_star) / (q_star - p_star) ** 2
