"""What a client has answered, what that cost, and whether it may answer anew.

An answer (a distinct value, a period, a one-time report) is paid for as a whole when it is
admitted, so that reporting it again never fails. Invariant: whether a client is silent depends on
the times of its recordings and never on their values; so the lifetime budget has a part for what
times decide, and what changes of values may use is only the rest (docs/protocol, section 6). Here
is arithmetic alone: `storage` keeps the rows, in which values are keyed digests.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from hubbub.protocol.registry import Registry

ALREADY_REPORTED = "already reported (one-time metric)"
PERIODS_USED_UP = "more periods than max_periods"
OVER_BUDGET = "over the lifetime budget"
_TOLERANCE = 1 + 1e-9


class AnswerKey(NamedTuple):
    """Which answer: of which metric's version, and which value (a digest) or period (a number)."""

    metric: str
    version: int
    key: bytes


class Row(NamedTuple):
    """An admitted answer as it is stored.

    Attributes
    ----------
    answer : AnswerKey
    reports : int
    epsilon_report, price : float
        As they were when it was admitted.
    changed : bool
        Whether it followed another value of the same metric; if not, times alone decided on it.
    """

    answer: AnswerKey
    reports: int
    epsilon_report: float
    price: float
    changed: bool

    @property
    def spent(self) -> float:
        """What its reports reveal, together: min(n epsilon_report, price)."""
        return min(self.reports * self.epsilon_report, self.price) if self.reports else 0.0


class Verdict(enum.Enum):
    """What becomes of a recording."""

    AGAIN = "reports an answer that was admitted before"
    NEW = "admits an answer"
    STALE = "reports the answer that was admitted last, in place of another value"
    REFUSED = "isn't reported"


class MetricSpending(NamedTuple):
    """What a client spent on one version of a metric.

    Attributes
    ----------
    metric : str
    version : int
    answers : int
        Distinct values, periods, or one-time reports that were admitted.
    reports : int
    epsilon : float
        What these reports reveal, together, of histories that change at the same times.
    epsilon_any_history : float
        The same of any histories: infinite where a change can be seen, or the metric's memory isn't
        known any more.
    committed : float
        What was paid for: all prices, however few reports there were so far.
    """

    metric: str
    version: int
    answers: int
    reports: int
    epsilon: float
    epsilon_any_history: float
    committed: float


class Spending(NamedTuple):
    """A client's whole account.

    Attributes
    ----------
    metrics : tuple of MetricSpending
    epsilon, epsilon_any_history, committed : float
        Their sums.
    lifetime_epsilon : float or None
        The registry's bound on `committed`.
    resets, restores : int
        How often the secret was replaced, and how often the state was found to be a copy (a
        restored backup, a cloned machine), whose original may have spent more.
    """

    metrics: tuple[MetricSpending, ...]
    epsilon: float
    epsilon_any_history: float
    committed: float
    lifetime_epsilon: float | None
    resets: int
    restores: int


class Ledger:
    """The account of one client, under one registry's rules.

    Parameters
    ----------
    registry : Registry
    rows : iterable of Row
        What is stored, also of metrics and versions that aren't registered (any more).
    resets, restores : int
    unusable : collection of str
        Metrics whose definition changed under the same version; they count as not registered.
    """

    def __init__(
        self,
        registry: Registry,
        rows: Iterable[Row] = (),
        resets: int = 0,
        restores: int = 0,
        unusable: Collection[str] = (),
    ) -> None:
        self._rules = {
            (metric.name, metric.version): metric
            for metric in registry.values()
            if metric.name not in unusable
        }
        self._once = any(metric.one_time for metric in self._rules.values())
        unlimited = registry.lifetime_epsilon is None
        self._budget = math.inf if unlimited else registry.lifetime_epsilon or 0.0
        self._resets, self._restores = resets, restores
        self._rows: dict[AnswerKey, Row] = {}
        self._added: Counter[AnswerKey] = Counter()  # reports since
        self._answers: Counter[tuple[str, int]] = Counter()
        self._first = self._changed = 0.0
        first_of_others = 0.0
        for row in rows:
            self._enter(row)
            if not row.changed and row.answer[:2] not in self._rules:
                first_of_others += row.price
        reserve = math.fsum([first_of_others, *(m.reserve for m in self._rules.values())])
        self._for_first = math.inf if unlimited else min(reserve, self._budget)
        self._for_changes = max(0.0, self._budget - reserve)

    def judge(self, answer: AnswerKey, *, answered: bool) -> tuple[Verdict, str]:
        """Return what becomes of a recording of this answer, and if it is refused, why.

        Parameters
        ----------
        answer : AnswerKey
        answered : bool
            Whether this metric's version has an answer that could be reported in its place.
        """
        known = answer in self._rows
        if known and not self._once:  # most recordings of most apps
            return Verdict.AGAIN, ""
        rules = self._rules[answer[:2]]
        if rules.one_time and self._answers[answer[:2]]:
            return Verdict.REFUSED, ALREADY_REPORTED
        if known:
            return Verdict.AGAIN, ""
        changed = answered and rules.memory == "value"
        used_up = self._answers[answer[:2]] >= rules.max_answers
        if changed:
            stale = used_up or self._lacks_for_change(rules.price)
            return (Verdict.STALE if stale else Verdict.NEW), ""
        if used_up and rules.memory == "period":
            return Verdict.REFUSED, PERIODS_USED_UP
        if self._first + rules.price > self._for_first * _TOLERANCE:
            return Verdict.REFUSED, OVER_BUDGET
        return Verdict.NEW, ""

    def add(self, answer: AnswerKey, reports: int = 1, *, answered: bool) -> None:
        """Enter reports of an answer that is admitted, or by this call (see `judge`)."""
        if answer in self._rows:
            self._added[answer] += reports
            return
        rules = self._rules[answer[:2]]
        changed = answered and rules.memory == "value"
        self._enter(Row(answer, reports, rules.epsilon_report, rules.price, changed))

    def row(self, answer: AnswerKey) -> Row:
        """Return an answer's row for storage."""
        row = self._rows[answer]
        return row._replace(reports=row.reports + self._added[answer])

    def count(self, metric: str, version: int) -> int:
        """Return how many answers of a metric's version were admitted."""
        return self._answers[metric, version]

    def spending(self) -> Spending:
        """Return the account for people."""
        by_metric: dict[tuple[str, int], list[Row]] = {}
        for answer in self._rows:
            by_metric.setdefault(answer[:2], []).append(self.row(answer))
        metrics = tuple(self._of_metric(*item) for item in sorted(by_metric.items()))
        return Spending(
            metrics,
            epsilon=math.fsum(metric.epsilon for metric in metrics),
            epsilon_any_history=math.fsum(metric.epsilon_any_history for metric in metrics),
            committed=math.fsum(metric.committed for metric in metrics),
            lifetime_epsilon=None if math.isinf(self._budget) else self._budget,
            resets=self._resets,
            restores=self._restores,
        )

    def _of_metric(self, key: tuple[str, int], rows: list[Row]) -> MetricSpending:
        rules = self._rules.get(key)
        epsilon = math.fsum(row.spent for row in rows)
        return MetricSpending(
            *key,
            answers=len(rows),
            reports=sum(row.reports for row in rows),
            epsilon=epsilon,
            epsilon_any_history=epsilon if rules and rules.hides_changes else math.inf,
            committed=math.fsum(row.price for row in rows),
        )

    def _lacks_for_change(self, price: float) -> bool:
        """Whether there is no room for another value in its part of the budget, or in all of it."""
        total = self._first + self._changed
        part = self._changed + price > self._for_changes * _TOLERANCE
        return part or total + price > self._budget * _TOLERANCE

    def _enter(self, row: Row) -> None:
        self._rows[row.answer] = row
        self._answers[row.answer[:2]] += 1
        if row.changed:
            self._changed += row.price
        else:
            self._first += row.price
