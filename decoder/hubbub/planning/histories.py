"""Bounds on what one client's linked reports reveal of its response and history of values.

Each reported bit is a new coin with bias q or p, so from n linked reports the permanent bits follow
one by one, with an error that falls exponentially. The permanent response is a fingerprint, not a
value: epsilon_permanent still holds. These probabilities are exact sums of binomials.

Histories are compared in two senses. The first compares histories that change at the same times:
that is what the client's account adds up. The second compares *any* two histories that record at
the same times; where a change itself can be seen there is no such bound, and the figure is
infinite. docs/understand/proofs.md has the proofs. Reports come once a day, however the periods'
borders lie. Invariant: every rounding makes a bound larger.

How well reports can be linked by their content alone, though no record keeps which came together:
all reports of a permanent response are copies of one random pattern, in noise. Two reports of one
client have a log likelihood ratio against two of different clients whose mean is the information
that a report has about another; where it exceeds the log of how many clients there are to confuse
it with, most links are right. docs/understand/proofs.md has the derivation, and what attacks reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubbub.inference import at_most, more_than
from hubbub.protocol import Metric, RapporParams, Registry, most_answers

_MOST = 2**40  # reports: 3 billion years of days
_TIE = 1e-9  # as a share of n: what rounding can do to an equal number of ones and zeros
_TOLERANCE = 1 + 1e-9  # of the client's account: docs/protocol, section 6
ROUNDED_UP = 1 + 1e-12  # of a bound: some thousand roundings of doubles


def link_information(params: RapporParams, width: int | None, *, known: bool = False) -> float:
    """Return the information I, in nats, that a report has about another of the same response.

    I = sum over bits of the mutual information of the two reported bits. Values are spread evenly
    over the bits that values can set: `width` of which a value sets one (None: h of k by hashing);
    the others are the padding of the last byte. `known`: one side is the permanent response itself,
    as after many linked reports.
    """
    parts = [(params.k, 1 - (1 - 1 / params.k) ** params.h)]
    if width is not None:
        parts = [(width, 1 / max(width, 2)), (params.k - width, 0.0)]
    reported = np.array([[1 - params.p, params.p], [1 - params.q, params.q]])
    information = 0.0
    for count, true in parts:
        one = params.f0 + true * (1 - params.f)
        permanent = np.diag([1 - one, one])
        # The chances of what both sides show (0 or 1) if they are one client's, and if they aren't.
        joint = (permanent if known else reported.T @ permanent) @ reported
        apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        ratio = np.log(np.divide(joint, apart, out=np.ones((2, 2)), where=joint > 0))
        information += count * float((joint * ratio).sum())
    return information


def linked_clients(params: RapporParams, width: int | None, *, known: bool = False) -> float:
    """Return m e^I: among so many clients, more than half of the links of two days are right."""
    nats = link_information(params, width, known=known) + math.log(params.m)
    return math.exp(nats) if nats < 700 else math.inf


def value_ratio(epsilon: float) -> float:
    """Return how much likelier two reports of independent responses are of one client, at most.

    Two periods' reports of mode "once" share nothing but the value and the slice; this is about
    reports of one slice. With pi_v the values' shares
    and l_v(r) = P(r | v)/P(r), the likelihood ratio against two clients is sum_v pi_v l_v(r1)
    l_v(r2), at most the larger of sum_v pi_v l_v(r)^2. The l_v of a report have the mean 1 and
    differ by a factor of e^eps at most, so that is at most cosh^2(eps/2): where the ratios are
    e^eps and 1 over their mean, and both kinds of values weigh as much. Rounded up.
    """
    return math.cosh(epsilon / 2) ** 2 * ROUNDED_UP


def permanent_known(params: RapporParams, reports: int, prior: float = 0.5) -> float:
    """Return the probability that all k permanent bits are guessed right from n linked reports.

    The observer takes each bit's likelier value; of two equally likely ones, either. The value has
    h distinct bits. `prior` is its share of ones: 0.5 if the reports alone decide, `share_of_ones`
    for one who knows f, h and k as well. f must be above 0.
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
    """Return the number of ones above which the bias `high` is likelier; may be < 0 or > n."""
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
    # Budget left for second and later values; infinite without a lifetime_epsilon.
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
    """Return what a client's daily reports of one value reveal; exact for one hash."""

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
    """Return the largest epsilon_n / n for n up to a number of reports."""
    dearest, n = metric.epsilon_report, 2
    # With more reports the permanent epsilon alone shows that each costs less.
    while n <= most and metric.price > dearest * n:
        dearest = max(dearest, metric.epsilon_after(n) / n)
        n += 1
    return dearest


def any_history_epsilon(metric: Metric, days: int, most_values: int) -> float:
    """Return the bound for any two histories that record at the same times; infinite if none.

    T days have a report each; after `most_values` distinct values later ones are never heard.
    """
    if metric.memory == "value" and not metric.reports_once and most_values > 1:
        return math.inf
    return constant_epsilon(metric, days)


def life_epsilon(metric: Metric, most_values: int) -> float:
    """Return what a client ever reveals, of any two histories; infinite if changes are seen."""
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
