"""What a client has spent of its privacy, and what it may still spend.

A client pays for each distinct value of a metric: epsilon_report for every report of it, until
epsilon_permanent, which bounds all of them together; different values and metrics add up
(sequential composition; docs/statistics.md, "What a client spends"). Here is only arithmetic: the
rows live in `storage`, and values appear as keyed digests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from hubbub.client.metrics import Metric, Registry

ALREADY_REPORTED = "already reported (one-time metric)"
TOO_MANY_VALUES = "more distinct values than max_values"
OVER_BUDGET = "over the lifetime budget"


class Spend(NamedTuple):
    """One report's entry: which metric's version, and which value (by digest)."""

    metric: str
    version: int
    digest: bytes


class Price(NamedTuple):
    """What reports of a metric's version cost."""

    epsilon_report: float
    epsilon_permanent: float

    def of(self, reports: int) -> float:
        """Return what so many reports of one value cost."""
        return min(reports * self.epsilon_report, self.epsilon_permanent) if reports else 0.0


class Row(NamedTuple):
    """One value's account as it is stored."""

    spend: Spend
    reports: int
    price: Price


class MetricSpending(NamedTuple):
    """What a client spent on one version of a metric.

    Attributes
    ----------
    metric : str
    version : int
    distinct_values, reports : int
    epsilon : float
        Bound on what all these reports reveal, together.
    """

    metric: str
    version: int
    distinct_values: int
    reports: int
    epsilon: float


class Spending(NamedTuple):
    """A client's whole account.

    Attributes
    ----------
    metrics : tuple of MetricSpending
    epsilon : float
        Their sum.
    lifetime_epsilon : float or None
        The registry's bound.
    resets : int
        How often the secret was replaced; each time all values cost anew.
    """

    metrics: tuple[MetricSpending, ...]
    epsilon: float
    lifetime_epsilon: float | None
    resets: int


class Ledger:
    """The accounts of one client, under one registry's rules.

    Parameters
    ----------
    registry : Registry
    rows : iterable of Row
        What is stored, of metrics and versions that the registry no longer has as well.
    resets : int
    """

    def __init__(self, registry: Registry, rows: Iterable[Row] = (), resets: int = 0) -> None:
        self._rules = {(metric.name, metric.version): metric for metric in registry.values()}
        self._prices = {key: _price(metric) for key, metric in self._rules.items()}
        self._budget = registry.lifetime_epsilon
        self._reports: Counter[Spend] = Counter()
        self._values: Counter[tuple[str, int]] = Counter()
        self._epsilon = 0.0
        self._resets = resets
        for row in rows:
            key = row.spend[:2]
            self._prices.setdefault(key, row.price)
            self._reports[row.spend] += row.reports
            self._values[key] += 1
            self._epsilon += self._prices[key].of(row.reports)

    def refusal(self, spend: Spend) -> str | None:
        """Return why one more report may not be made; None if it may."""
        key = spend[:2]
        rules = self._rules[key]
        reports = self._reports.get(spend, 0)
        if rules.one_time and self._values[key]:
            return ALREADY_REPORTED
        if not reports and self._values[key] >= rules.max_values:
            return TOO_MANY_VALUES
        if self._budget is not None:
            price = self._prices[key]
            if self._epsilon + price.of(reports + 1) - price.of(reports) > self._budget:
                return OVER_BUDGET
        return None

    def add(self, spend: Spend) -> None:
        """Enter one report."""
        price = self._prices[spend[:2]]
        reports = self._reports.get(spend, 0)
        if not reports:
            self._values[spend[:2]] += 1
        self._reports[spend] = reports + 1
        self._epsilon += price.of(reports + 1) - price.of(reports)

    def row(self, spend: Spend) -> Row:
        """Return a value's account for storage."""
        return Row(spend, self._reports[spend], self._prices[spend[:2]])

    def spending(self) -> Spending:
        """Return the account for people."""
        by_metric: dict[tuple[str, int], list[int]] = {}
        for spend, reports in self._reports.items():
            by_metric.setdefault(spend[:2], []).append(reports)
        metrics = tuple(
            MetricSpending(
                *key, len(counts), sum(counts), math.fsum(map(self._prices[key].of, counts))
            )
            for key, counts in sorted(by_metric.items())
        )
        total = math.fsum(metric.epsilon for metric in metrics)
        return Spending(metrics, total, self._budget, self._resets)


def _price(metric: Metric) -> Price:
    return Price(metric.epsilon_report, metric.epsilon_permanent)
