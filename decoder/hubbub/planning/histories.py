"""What one client's linked reports reveal: of its permanent response, and of its history of values.

Each reported bit is a new coin with bias q or p, so from n linked reports the permanent bits follow
one by one, with an error that falls exponentially. The permanent response is a fingerprint, not a
value: epsilon_permanent still holds. These probabilities are exact sums of binomials.

Histories are compared in two senses. The first compares histories that change at the same times:
that is what the client's account adds up. The second compares *any* two histories that record at
the same times; where a change itself can be seen there is no such bound, and the figure is
infinite. docs/understand/proofs.md has the proofs. Reports come once a day, however the periods'
borders lie. Invariant: every rounding makes a bound larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hubbub.inference.binomial import at_most, more_than
from hubbub.planning.linking import ROUNDED_UP
from hubbub.protocol.metrics import Metric, most_answers
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry

_MOST = 2**40  # reports: 3 billion years of days
_TIE = 1e-9  # as a share of n: what rounding can do to an equal number of ones and zeros
_TOLERANCE = 1 + 1e-9  # of the client's account: docs/protocol, section 6


def permanent_known(params: RapporParams, reports: int, prior: float = 0.5) -> float:
    """Return the probability that all k permanent bits are guessed right from linked reports.

    The observer takes each bit's likelier value; of two equally likely ones, either. The value has
    h distinct bits, and all k bits of a report take part.

    `params`: with f > 0: otherwise there is no permanent response. `reports`: n, of one value of
    one client. `prior`: what the observer takes for the share of ones among permanent bits, in (0,
    1): 0.5 if the reports alone decide, `share_of_ones` for one who knows f, h and k as well.
    """
    if_one, if_zero = _right(params, reports, prior)
    of_true = (1 - params.f1) * if_one + params.f1 * if_zero
    of_others = params.f0 * if_one + (1 - params.f0) * if_zero
    return of_true**params.h * of_others ** (params.k - params.h)


def share_of_ones(params: RapporParams) -> float:
    """Return the expected share of ones among the permanent bits of a value with h true bits."""
    return params.f0 + params.h / params.k * (1 - params.f)


def reports_to_know(params: RapporParams, probability: float) -> float:
    """Return after how many linked reports an observer of f, p, q, h and k knows the response.

    n reports reach the probability and n - 1 don't; infinite beyond 2^40.

    `params`: with f > 0, as `permanent_known` has them. `probability`: that all bits are right, in
    (0, 1).
    """
    prior, high = share_of_ones(params), 1
    while permanent_known(params, high, prior) < probability:
        high *= 2
        if high > _MOST:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if permanent_known(params, middle, prior) >= probability:
            high = middle
        else:
            low = middle
    return high


def _right(params: RapporParams, n: int, prior: float) -> tuple[float, float]:
    """Return the chance that a permanent 1, and a permanent 0, is guessed right from n coins."""
    low, high = sorted((params.p, params.q))
    line = _line(n, low, high, prior if params.q > params.p else 1 - prior)
    nearest = round(line)
    tie = abs(line - nearest) < _TIE * n
    last, share = (nearest, 0.5) if tie else (math.floor(line), 0.0)
    # A tie counts half: what is right with it, and what is right without.
    if_high = (1 - share) * more_than(last, n, high) + share * more_than(last - 1, n, high)
    if_low = (1 - share) * at_most(last, n, low) + share * at_most(last - 1, n, low)
    right = float(if_high), float(if_low)
    return right if params.q > params.p else right[::-1]


def _line(n: int, low: float, high: float, prior: float) -> float:
    """Return the number of ones above which the bias `high`, so likely before, is the likelier.

    Below 0 or above n the reports don't matter.
    """
    odds = math.log(prior / (1 - prior))
    if low == 0:  # which a single one refutes
        return 0.5 if high == 1 or odds < -n * math.log1p(-high) else -1.0
    if high == 1:  # which a single zero refutes
        return n - 0.5 if odds > n * math.log(low) else n + 1.0
    zeros, ones = math.log((1 - low) / (1 - high)), math.log(high / low)
    return (n * zeros - odds) / (zeros + ones)


@dataclass(frozen=True, slots=True)
class LifetimeBudget:
    """How a client divides its lifetime_epsilon (docs/protocol, section 6)."""

    # The price of what times alone decide: first values, periods, one-time reports.
    reserve: float = 0.0
    # What is left for second and later values; infinite without a lifetime_epsilon.
    changes: float = math.inf

    @classmethod
    def of(cls, registry: Registry) -> LifetimeBudget:
        """Return the division for a client that never knew another registry."""
        reserve = registry.reserve()
        if registry.lifetime_epsilon is None:
            return cls(reserve)
        return cls(reserve, max(registry.lifetime_epsilon - reserve, 0.0))

    def most_values(self, metric: Metric) -> int:
        """Return how many distinct values of a metric a client can ever report."""
        if metric.one_time:
            return 1
        changes = self.changes * _TOLERANCE / metric.price
        return int(min(metric.max_values, 1 + changes))


def constant_epsilon(metric: Metric, days: int) -> float:
    """Return what a client's daily reports reveal, together, if its value never changes.

    For each answer what its reports reveal together (`Metric.epsilon_after`), which is exact for
    one hash.
    """

    def of_one(reports: int) -> float:
        return min(metric.epsilon_after(reports), metric.price)

    return _over_responses(metric, days, of_one)


def same_times_epsilon(metric: Metric, days: int, values: int) -> float:
    """Return the same for histories of at most V values that are equal at the same times.

    Of n reports of a value epsilon_n is at most n s, s being the largest epsilon_n / n, and at most
    epsilon_T: so however T reports are divided among V values, they reveal min(T s, V epsilon_T) at
    most. A symmetric permanent response has s = epsilon_1. With periods the number of values
    doesn't matter.
    """
    if metric.memory == "period" or values == 1:
        return constant_epsilon(metric, days)
    reports = _reports(metric, days)
    most = min(values, reports)
    each = reports * dearest_report(metric, reports)
    return min(each, most * metric.epsilon_after(reports), most * metric.price) * ROUNDED_UP


def dearest_report(metric: Metric, most: int) -> float:
    """Return the largest epsilon_n / n for n up to a number of reports.

    `most`: at least 1.
    """
    dearest, n = metric.epsilon_report, 2
    # Of more reports than that the permanent epsilon alone shows that each costs less.
    while n <= most and metric.price > dearest * n:
        dearest = max(dearest, metric.epsilon_after(n) / n)
        n += 1
    return dearest


def any_history_epsilon(metric: Metric, days: int, most_values: int) -> float:
    """Return the bound for any two histories that record at the same times; infinite if none.

    `days`: T; one report each day. `most_values`: distinct values that a client can ever report. If
    it is one, later values are never heard.
    """
    if metric.memory == "value" and not metric.reports_once and most_values > 1:
        return math.inf
    return constant_epsilon(metric, days)


def life_epsilon(metric: Metric, most_values: int) -> float:
    """Return what a client ever reveals, of any two histories that record at the same times.

    Infinite if changes are seen (`any_history_epsilon`, whose parameters these are).
    """
    if metric.memory == "value" and not metric.reports_once and most_values > 1:
        return math.inf
    return metric.reserve * ROUNDED_UP


def most_periods(metric: Metric, days: int) -> int:
    """Return in how many periods a client answers in T days, at most (``memory = "period"``)."""
    most = most_answers(days, metric.period_days, metric.mode)
    return min(most, metric.max_periods)


def _over_responses(metric: Metric, days: int, loss: Callable[[int], float]) -> float:
    """Add up what the reports of each permanent response reveal, for T days.

    With periods it is the worst of all ways in which their borders may lie: the first period has
    1 to D of the days, each further one D, the last the rest; from `max_periods` on the client is
    silent.
    """
    if metric.memory == "value":
        return loss(_reports(metric, days))
    if metric.reports_once:
        return most_periods(metric, days) * loss(1) * ROUNDED_UP
    length, most = metric.period_days, metric.max_periods
    whole = loss(length)
    worst = 0.0
    for first in range(1, min(length, days) + 1):
        full, rest = divmod(days - first, length)
        full = min(full, most - 1)
        last = loss(rest) if rest and full + 1 < most else 0.0
        worst = max(worst, loss(first) + full * whole + last)
    return worst * ROUNDED_UP


def _reports(metric: Metric, days: int) -> int:
    return 1 if metric.reports_once else days
