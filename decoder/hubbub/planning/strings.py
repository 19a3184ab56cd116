"""Strings of a list as a goal: hashes, bits and cohorts, and the paper's default beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scipy import special

from hubbub.inference.errors import PlanError
from hubbub.planning.goals import (
    Curve,
    Goal,
    Plan,
    PlanSearch,
    SearchSpace,
    entry_text,
    limit_finding,
    share_text,
)
from hubbub.planning.limits import (
    DetectionMethod,
    bit_rate,
    coin_variance,
    detection_limit,
    fewest_cohorts,
)
from hubbub.planning.noise import Budget, paper_within, permanent_noise
from hubbub.planning.search import fitted_curve, make_plan
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.reporting.estimates import Finding, Level

PAPER, SIMPLE = "the paper's default", "simple numbers"
"""Names of two alternatives."""

_HASHES = range(1, 9)  # h = 1 wins, and each further hash is worse (docs/understand/planning.md)
_MOST_COHORTS = 1024  # 16 times as many lower the limit by under 1%; by 5% at (8, 6), 1e9 reports
_REPORTS_PER_COHORT = 100  # fewer are outside of what docs/understand/planning.md measures
# How many times z^2 a plan's positions, h m, are at least. With 2 the promised .90 was .84 and .85,
# with 2.5 or more .89 to .92 (docs/measured/planning.md, Promised and found).
_NEAR_NORMAL = 2.5
# Steps of a third to a half: the limit is flat in m, and `NEAR_BEST` takes the first that will do.
_COHORTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_FIRST_BITS, _FIRST_COHORTS = 256, 64  # q* sought there is within 1% of the best; at 64, 16 not
_ROUND_STEPS = (20, 100)  # as fractions of 1: multiples of .05, else of .01
_ROUNDING = 1e-9  # far more than doubles lose
_MOST_ROUND = 12  # of h: variance orders them nearly as the limit does, which takes longer


@dataclass(frozen=True, slots=True)
class StringsGoal(Goal):
    """The rarest string of a list that reports show."""

    hashes: Sequence[int] = _HASHES  # numbers of hashes that are tried

    def spaces(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[SearchSpace]:  # noqa: ARG002
        """Return all multiples of 8 bits and some numbers of cohorts, for each number of hashes."""
        return [self.hashed(h, n_reports, most_bits) for h in self.hashes]

    def hashed(self, h: int, n_reports: float, most_bits: int) -> SearchSpace:
        """Return the search space of h hashes."""
        k = min(_FIRST_BITS, most_bits)
        return SearchSpace(
            h,
            range(8, most_bits + 1, 8),
            lambda bits: sorted({self._cohorts(m, bits, h, n_reports) for m in _COHORTS}),
            (k, self._cohorts(_FIRST_COHORTS, k, h, n_reports)),
        )

    def _cohorts(self, wanted: int, k: int, h: int, n_reports: float) -> int:
        most = min(int(n_reports / _REPORTS_PER_COHORT), _MOST_COHORTS)
        fewest = fewest_cohorts(k, h, self.test.level)
        needed = _NEAR_NORMAL * special.ndtri(self.test.level) ** 2 / h
        near_normal = next((m for m in _COHORTS if m >= needed), _MOST_COHORTS)
        return min(max(fewest, min(max(wanted, near_normal), most)), _MOST_COHORTS)

    def alternatives(
        self, best: Plan, others: Sequence[Plan], budget: Budget, most_bits: int
    ) -> tuple[Plan, ...]:
        """Return round numbers, the paper's default, and the best of each number of hashes."""
        found = (self._simple(best, budget, most_bits), self._paper(best.reports, budget))
        return (*(plan for plan in found if plan), *others)

    def _paper(self, n_reports: float, budget: Budget) -> Plan | None:
        """Return the paper's default at the budget, with the m that suits it best."""
        k, h, plans = 128, 2, []
        for cohorts in _COHORTS:
            m = self._cohorts(cohorts, k, h, n_reports)
            try:
                params = paper_within(k, m, budget)
            except PlanError:
                return None
            plans.append(make_plan(self, PAPER, params, n_reports))
        return min(plans, key=lambda plan: plan.limit)

    def _simple(self, best: Plan, budget: Budget, most_bits: int) -> Plan | None:
        """Return the best plan of round noise, with k and m powers of two."""
        bits = min(2 ** math.ceil(math.log2(best.params.k)), 2 ** int(math.log2(most_bits)))
        cohorts = min(2 ** math.ceil(math.log2(best.params.m)), _MOST_COHORTS)
        for steps in _ROUND_STEPS:
            plans = [
                make_plan(self, SIMPLE, params, best.reports)
                for h in _HASHES
                for params in round_params(bits, h, cohorts, budget, steps)
            ]
            if plans:
                return min(plans, key=lambda plan: plan.limit)
        return None

    def curves(self, found: PlanSearch) -> Mapping[str, Curve]:
        """Return the best limit and, if it can be had, that of the paper's default."""
        curves = {"detectable_share": fitted_curve("best", self.limit, found.best)}
        paper = found.rival(PAPER)
        if paper:
            k, _, m, *_ = paper.params
            within = partial(paper_within, k, m)
            curves["paper"] = Curve("the RAPPOR paper's default", self.limit, paper.params, within)
        return curves

    def asked(self, found: PlanSearch) -> Mapping[str, object]:  # noqa: ARG002
        """Return candidates, error rate, power, method, and what else sets bits."""
        test = self.test
        return {
            "candidates": test.candidates,
            "alpha": test.alpha,
            "power": test.power,
            "method": test.method.value,
            "concentration": test.concentration,
        }

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest share that {reports} reports show"

    def about_limit(self, plan: Plan) -> Finding:
        """Return which share is detected, among how many strings."""
        test = self.test
        string = f"A string held by {plan.limit:.3%} is" if plan.limit < math.inf else "No share is"
        return limit_finding(
            plan,
            f"{string} detected among {test.candidates:,.0f} candidates with probability "
            f"{test.power:g} (alpha {test.alpha:g}, Bonferroni; method {test.method.value}).",
        )

    def remarks(self, found: PlanSearch) -> Iterator[Finding]:
        """Yield the other method's limit, or the paper's default; what a list costs, and sizes."""
        subject, paper = found.subject, found.rival(PAPER)
        params, test = subject.params, self.test
        if found.given:
            other = {DetectionMethod.REGRESSION: DetectionMethod.LIKELIHOOD}.get(
                test.method, DetectionMethod.REGRESSION
            )
            limit = detection_limit(params, subject.reports, replace(test, method=other))
            text = f"With method {other.value} the limit is {share_text(limit)}."
            yield Finding("other_method", "", text, limit)
            fewest = fewest_cohorts(params.k, params.h, test.level)
            if params.m < fewest:
                text = (
                    f"m = {params.m}: with fewer than {fewest} cohorts, no test at this level "
                    "works as the theory assumes; it finds less than stated here."
                )
                yield Finding("few_cohorts", "", text, fewest, Level.WARNING)
        elif paper:
            ratio = paper.limit / subject.limit
            text = (
                "The RAPPOR paper's default at the same epsilons only finds a share "
                f"{ratio:.2f} times as large."
            )
            yield Finding("paper_ratio", "", text, ratio)
        text = (
            f"An estimate varies {subject.oue_ratio:.2f} times as much as with optimal unary "
            "encoding (Wang et al. 2017), which knows the list of strings before it asks."
        )
        yield Finding("oue_ratio", "", text, subject.oue_ratio)
        in_each = subject.reports / params.m
        text = f"A report has {params.k // 8} bytes; {in_each:,.0f} are in each cohort."
        yield Finding("report_bytes", "", text, params.k // 8)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of a string metric."""
        return entry_text(params, name, "string", schedule=self.schedule)


def string_params(metric: Metric) -> RapporParams:
    """Return the parameters of a metric whose values are hashed and looked for in a list."""
    if isinstance(metric.type, OpenStringType):
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: its strings stand in no list; "
            "plan it as open"
        )
    if metric.type.width is not None:
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be a type whose values are "
            "looked for among candidates, such as 'string'"
        )
    return metric.params


def round_params(k: int, h: int, m: int, budget: Budget, steps: int) -> list[RapporParams]:
    """Return the least noisy parameters within a budget whose f, p and q are multiples of 1/steps.

    A report spends half of what it may at least. At most twelve, those of least variance first.
    """
    least = math.ceil(permanent_noise(h, budget.permanent) * steps - 1e-9)  # rounding of doubles
    rate, found = bit_rate(k, h), []
    for up, low, high in itertools.product((least, least + 1), range(steps + 1), range(steps + 1)):
        if low >= high or up >= steps or (up == 0) != (budget.permanent == math.inf):
            continue
        f, p, q = up / steps, low / steps, high / steps
        p_star, q_star = p + f / 2 * (q - p), q - f / 2 * (q - p)
        if p_star <= 0 or q_star >= 1:
            continue
        spent = h * math.log(q_star * (1 - p_star) / (p_star * (1 - q_star)))
        if 0.5 * budget.report <= spent <= budget.report:
            variance = (1 - rate) * p_star * (1 - p_star) + rate * q_star * (1 - q_star)
            found.append((variance / (q_star - p_star) ** 2, (f, p, q)))
    # Parameters compute with exact fractions, so only those are made that may be among the least.
    enough = sorted(variance for variance, _ in found)[:_MOST_ROUND][-1:]
    near = [noise for variance, noise in found if variance <= enough[0] * (1 + _ROUNDING)]
    made = [RapporParams(k, h, m, *noise) for noise in near]
    made.sort(key=lambda params: coin_variance(params, rate))
    return [
        params
        for params in made[:_MOST_ROUND]
        if params.epsilon_permanent <= budget.permanent and params.epsilon_report <= budget.report
    ]
