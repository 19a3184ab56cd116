"""What one client's linked reports reveal of its history of values, in two senses.

The first compares histories that change at the same times: that is what the client's account adds
up. The second compares *any* two histories that record at the same times; where a change itself can
be seen there is no such bound, and the figure is infinite. docs/privacy.md has the proofs. Reports
come once a day, however the periods' borders lie. Invariant: every rounding makes a bound larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry

ROUNDED_UP = 1 + 1e-12
_TOLERANCE = 1 + 1e-9  # of the client's account: docs/protocol, section 6


@dataclass(frozen=True, slots=True)
class Budget:
    """How a client divides its lifetime_epsilon (docs/protocol, section 6).

    Attributes
    ----------
    reserve : float
        The price of what times alone decide: first values, periods, one-time reports.
    changes : float
        What is left for second and later values; infinite without a lifetime_epsilon.
    """

    reserve: float = 0.0
    changes: float = math.inf

    @classmethod
    def of(cls, registry: Registry) -> Budget:
        """Return the division for a client that never knew another registry."""
        reserve = math.fsum(metric.reserve for metric in registry.values())
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

    min(T epsilon_report, epsilon_permanent) for each permanent response.
    """

    def of_one(reports: int) -> float:
        return min(reports * metric.epsilon_report, metric.epsilon_permanent)

    return _over_responses(metric, days, of_one)


def same_times_epsilon(metric: Metric, days: int, values: int) -> float:
    """Return the same for histories of at most V values that are equal at the same times.

    min(T epsilon_report, V epsilon_permanent): however T reports are divided among V values, each
    term of the sum is at most n_v epsilon_report and at most epsilon_permanent. With periods the
    number of values doesn't matter.
    """
    if metric.memory == "period" or values == 1:
        return constant_epsilon(metric, days)
    reports = _reports(metric, days)
    most = min(values, reports)
    return min(reports * metric.epsilon_report, most * metric.epsilon_permanent) * ROUNDED_UP


def any_history_epsilon(metric: Metric, days: int, most_values: int) -> float:
    """Return the bound for any two histories that record at the same times; infinite if none.

    Parameters
    ----------
    metric : Metric
    days : int
    most_values : int
        Distinct values that a client can ever report. If it is one, later values are never heard.
    """
    if metric.memory == "value" and not metric.one_time and most_values > 1:
        return math.inf
    return constant_epsilon(metric, days)


def linked_epsilon(metric: Metric, days: int) -> float:
    """Return the exact loss of linked reports of one value: the largest log likelihood ratio.

    With a = 1 - f/2 and u the log ratio that n reports give for a permanent bit, a true bit's is
    G(u) = 2 artanh((2a - 1) tanh(u/2)); u is largest if all reports agree. Two values of h bits
    differ in 2h of them.
    """
    exact = _over_responses(metric, days, lambda reports: _linked(metric, reports))
    return min(exact * ROUNDED_UP, constant_epsilon(metric, days))


def most_periods(metric: Metric, days: int) -> int:
    """Return in how many periods a client answers in T days, at most (``memory = "period"``)."""
    touched = 1 + -(-(days - 1) // metric.period_days)
    return min(touched, metric.max_periods)


def _over_responses(metric: Metric, days: int, loss: Callable[[int], float]) -> float:
    """Add up what the reports of each permanent response reveal, for T days.

    With periods it is the worst of all ways in which their borders may lie: the first period has
    1 to D of the days, each further one D, the last the rest; from `max_periods` on the client is
    silent.
    """
    if metric.memory == "value":
        return loss(_reports(metric, days))
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
    return 1 if metric.one_time else days


def _linked(metric: Metric, reports: int) -> float:
    params = metric.params
    ones = _true_ratio(reports * _log_ratio(params.q, params.p), params.flip)
    zeros = _true_ratio(reports * _log_ratio(1 - params.q, 1 - params.p), params.flip)
    if isinstance(metric.type, BooleanType):
        return max(abs(ones), abs(zeros))
    return params.h * abs(ones - zeros)


def _log_ratio(one: float, other: float) -> float:
    if one == 0 or other == 0:
        return math.inf if one else -math.inf
    return math.log(one / other)


def _true_ratio(permanent: float, flip: float) -> float:
    """Return G(u); u itself where there is no permanent response."""
    if flip == 0:
        return permanent
    slope = (1 - 2 * flip) * math.tanh(permanent / 2)
    return 2 * math.atanh(slope) if abs(slope) < 1 else math.copysign(math.inf, slope)
