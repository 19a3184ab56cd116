"""The best parameters for a goal within a budget: one search, one comparison, one curve.

A goal states which share some parameters show and among which parameters it is worth looking; the
search finds the noise (one number, see `noise`), then the fewest bits and cohorts that come close
to the best. Nothing is tabulated: the limit is computed for each trial, so the theory decides.
Invariant: what is returned stays within the budget, as `noise.params_within` rounds it.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import optimize

from hubbub.inference import PlanError
from hubbub.planning.goals import NEAR_BEST, Goal, Plan, PlanSearch
from hubbub.planning.limits import reports_reaching
from hubbub.planning.noise import Budget, common_rates, exact_params, params_within
from hubbub.protocol import RapporParams

USUAL_BITS = 1024
"""Most bits of a report of strings, 128 bytes. Measured with 100,000 candidates: four times as many
lower the limit by 0.3% at the paper's epsilons, 1% at (inf, 4) and 7% at (inf, 6)."""

_RATE_STEP = 4e-3  # of q*'s range: the limit is flat at its least, and moves by under a thousandth
_FIRST_REPORTS = 1e6  # where the search for a number of reports starts; any number would do
_ROUNDS = 8  # of it: most settle in three; where k jumps to and fro, the last one counts
_SETTLED = 1e-3  # a tenth of what `NEAR_BEST` may cost: m no longer changes
_CURVE_POINTS = 25  # six per decade of reports: smooth to the eye
_CURVE_REPORTS = 100  # how far the curve goes to either side of the plan


def make_plan(goal: Goal, name: str, params: RapporParams, n_reports: float) -> Plan:
    """Return parameters with what they achieve (raises PlanError if they are no answer)."""
    return Plan(
        name,
        goal,
        params,
        n_reports,
        goal.limit(params, n_reports),
        goal.error(params, n_reports),
        goal.figures(params, n_reports),
    )


def plan(
    goal: Goal,
    budget: Budget,
    *,
    n_reports: float | None = None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = USUAL_BITS,
) -> PlanSearch:
    """Search for the parameters that show the smallest share, or need the fewest reports.

    By default N is the fewest that show `share`, or else have `std_error`; the best m depends on N
    and N on m, so both are sought in turn until N stays. Raises `PlanError` if no parameters are
    within the budget, the best show nothing, or no number of reports is enough.
    """
    if n_reports is None:
        needed = _FIRST_REPORTS
        for _ in range(_ROUNDS):
            before, params = needed, best_params(goal, budget, needed, most_bits)
            needed = reports_for(goal, params, share, std_error)
            if math.isinf(needed):
                raise _out_of_reach(share, std_error, "within the budget")
            if abs(needed / before - 1) < _SETTLED:
                break
        n_reports = math.ceil(needed)
    params = best_params(goal, budget, n_reports, most_bits)
    best = make_plan(goal, "best", params, n_reports)
    if best.limit == math.inf:
        raise PlanError(
            f"reports = {n_reports:,.0f}: too few to show any share within the budget; "
            "collect more, or allow larger epsilons"
        )
    return PlanSearch(budget, best)


def evaluate(
    goal: Goal,
    params: RapporParams,
    *,
    n_reports: float | None = None,
    share: float | None = None,
    std_error: float | None = None,
    most_bits: int = USUAL_BITS,
) -> PlanSearch:
    """Compare parameters with the best at the epsilons that they spend; otherwise as `plan`."""
    if n_reports is None:
        needed = reports_for(goal, params, share, std_error)
        if math.isinf(needed):
            raise _out_of_reach(share, std_error, f"with {params}")
        n_reports = math.ceil(needed)
    each = goal.test.reports_each if params.has_permanent else 1.0
    budget = Budget(params.epsilon_permanent, goal.epsilon_report(params), each)
    given = make_plan(goal, "given", params, n_reports)
    return replace(plan(goal, budget, n_reports=n_reports, most_bits=most_bits), given=given)


def reports_for(
    goal: Goal, params: RapporParams, share: float | None, std_error: float | None
) -> float:
    """Return how many reports show a share, or else have a standard error; infinite if none."""
    if share is not None:
        return goal.reports_needed(params, share)
    if std_error is None:
        raise PlanError("reports, share, error: one of them must be given")
    return reports_reaching(lambda n: goal.error(params, n), std_error)


def _out_of_reach(share: float | None, std_error: float | None, how: str) -> PlanError:
    wanted = f"error = {std_error}" if share is None else f"share = {share:g}"
    return PlanError(f"{wanted}: no number of reports reaches it {how}")


def best_params(goal: Goal, budget: Budget, n_reports: float, most_bits: int) -> RapporParams:
    """Find q*, then k, then m, then q* again; `PlanError` if none are within the budget."""
    space = goal.space(budget, n_reports, most_bits)
    if isinstance(space, RapporParams):
        return space

    def limit(k: int, m: int, q_star: float) -> float:
        return goal.limit(exact_params(k, m, budget, q_star), n_reports)

    def rate(k: int, m: int) -> float:
        if space.rate is not None:
            return space.rate
        return best_rate(budget, functools.partial(limit, k, m))

    k, m = space.first
    refits = not isinstance(space.bits, range)
    first = math.nan if refits else rate(k, m)

    def tried(k: int, m: int) -> float:
        return limit(k, m, rate(k, m) if refits else first)

    k = fewest_near_best(space.bits, lambda bits: tried(bits, m), space.near_bits)
    m = fewest_near_best(space.cohorts(k), lambda cohorts: tried(k, cohorts))
    return params_within(k, m, budget, rate(k, m))


def fewest_near_best(
    choices: Sequence[int], limit_of: Callable[[int], float], near: float = NEAR_BEST
) -> int:
    """Return the first of ascending choices whose limit is at most `near` times the best.

    A range is too long to try; on it the limit falls, so bisection finds the place.
    """
    if len(choices) == 1:
        return choices[0]
    if isinstance(choices, range):
        wanted = near * limit_of(choices[-1])
        return choices[bisect_left(choices[:-1], True, key=lambda each: limit_of(each) <= wanted)]
    limits = [limit_of(each) for each in choices]
    return next(c for c, x in zip(choices, limits, strict=True) if x <= near * min(limits))


def best_rate(budget: Budget, limit_at: Callable[[float], float]) -> float:
    """Return the q* of the least limit; where nothing is detectable, that of the least variance."""
    low, high = common_rates(budget)
    margin = 1e-3 * (high - low)  # at either end p or q is 0 or 1, which the search must not touch
    if high - low < 1e-9:  # the two epsilons are equal, so one q* spends both
        return (low + high) / 2
    found = optimize.minimize_scalar(
        lambda q_star: min(math.log(limit_at(float(q_star))), 1e3),
        bounds=(low + margin, high - margin),
        method="bounded",
        options={"xatol": _RATE_STEP * (high - low)},
    )
    q_star = float(found.x)
    return q_star if limit_at(q_star) < math.inf else least_noise_rate(budget)


def least_noise_rate(budget: Budget) -> float:
    """Return the q* of the least variance of an absent value within a budget.

    That is 1/2 (Wang et al. 2017, section 4.3), or what is nearest to it among those that can be.
    """
    low, high = common_rates(budget)
    return min(max(0.5, low), high)


def against_reports(found: PlanSearch) -> list[dict[str, float]]:
    """Return the best plan's limits from a hundredth of its reports to a hundred times."""
    best = found.best
    low, high = best.reports / _CURVE_REPORTS, best.reports * _CURVE_REPORTS
    return [
        {"reports": n, "detectable_share": best.goal.limit(best.params, n)}
        for n in np.geomspace(low, high, _CURVE_POINTS).tolist()
    ]
