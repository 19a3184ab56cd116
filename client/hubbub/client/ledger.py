"""What a client has answered, what that cost, and which answer a recording reports.

An answer (a distinct value, a period, a one-time report) is paid for as a whole when it is
admitted, so that reporting it again never fails. Invariant: whether a client is silent depends on
the times of its recordings and never on their values; so the lifetime budget has a part for what
times decide, and changes of values may use only the rest (docs/protocol, section 6).

A recording is charged once: by the writer, to the stored account, in the transaction that stores
its report. So whichever of several processes comes first wins, the others report its answer, and no
cap is exceeded. There is no I/O here: `storage` keeps the rows, in which values are keyed digests.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import NamedTuple

from hubbub.client.encoder import PermanentResponse
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Registry

ALREADY_REPORTED = "already reported (one-time metric)"
REPORTED_IN_PERIOD = "already reported in this period"
REPORTED_TODAY = "already reported today"
REPLACED_BY_NEWER = "replaced by a newer report"
WAITING = "waiting for its first period"
NOT_CHOSEN = "another metric of its group is answered"
PERIODS_USED_UP = "more periods than max_periods"
OVER_BUDGET = "over the lifetime budget"
PERIOD_OVER = "recorded in a period that is over"
SWITCHED_OFF = "switched off"
NOT_SAMPLED = "not in the sample"
CHANGED_DEFINITION = "definition changed without a new version"
_NUMBER_BYTES = 4  # big-endian, as long as the largest max_values or max_periods needs
_TOLERANCE = 1 + 1e-9
"""Sums of thousands of doubles are off by less; ten prices of a tenth fit into one."""


class AnswerKey(NamedTuple):
    """Which answer: of which metric's version, and which value (a digest) or period (a number)."""

    metric: str
    version: int
    key: bytes


class LedgerRow(NamedTuple):
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

    def spent(self, metric: Metric | None) -> float:
        """Return what its reports reveal, together.

        Parameters
        ----------
        metric : Metric or None
            Its metric's version, if that is registered; if not, more than one report count as all
            that could ever be made, because fewer may cost more than their sum
            (`RapporParams.epsilon_after`).
        """
        if not self.reports:
            return 0.0
        if metric is not None:
            return min(metric.epsilon_after(self.reports), self.price)
        return self.epsilon_report if self.reports == 1 else self.price


class Verdict(enum.Enum):
    """What becomes of a recording."""

    AGAIN = "reports an answer that was admitted before"
    NEW = "admits an answer"
    WAITS = "isn't reported, but changes what is remembered of periods"
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
        The same of any histories: infinite if some were made while a change would have been seen.
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


class ClientLedger:
    """The account of one client, under one registry's rules.

    Parameters
    ----------
    registry : Registry
    rows : iterable of LedgerRow
        What is stored, also of metrics and versions that aren't registered (any more).
    resets, restores : int
    unusable : collection of str
        Metrics whose definition changed under the same version; they count as not registered.
    revealing : collection of (str, int)
        Metrics and versions that were reported while a change of values would have been seen.

    Attributes
    ----------
    revealing : set of (str, int)
        The same, with what was entered since.
    """

    def __init__(
        self,
        registry: Registry,
        rows: Iterable[LedgerRow] = (),
        resets: int = 0,
        restores: int = 0,
        unusable: Collection[str] = (),
        revealing: Collection[tuple[str, int]] = (),
    ) -> None:
        self._rules = {
            (metric.name, metric.version): metric
            for metric in registry.values()
            if metric.name not in unusable
        }
        self._once = any(metric.one_time for metric in self._rules.values())
        self._counted_with = _counted_together(registry, self._rules)
        unlimited = registry.lifetime_epsilon is None
        self._budget = math.inf if unlimited else registry.lifetime_epsilon or 0.0
        self._resets, self._restores = resets, restores
        self.revealing = set(revealing)
        self._rows: dict[AnswerKey, LedgerRow] = {}
        self._answers: Counter[tuple[str, int]] = Counter()
        self._first = self._changed = 0.0
        first_of_others = 0.0
        for row in rows:
            self._enter(row)
            if not row.changed and row.answer[:2] not in self._rules:
                first_of_others += row.price
        reserve = first_of_others + registry.reserve(unusable)
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
        together = self._counted_with.get(answer[:2], (answer[:2],))
        used_up = sum(self._answers[each] for each in together) >= rules.max_answers
        if answered and rules.memory == "value":  # another value than the last one
            changes, total = self._changed + rules.price, self._first + self._changed + rules.price
            over_part = changes > self._for_changes * _TOLERANCE
            over_budget = total > self._budget * _TOLERANCE
            return (Verdict.STALE if used_up or over_part or over_budget else Verdict.NEW), ""
        if used_up and rules.memory == "period":
            return Verdict.REFUSED, PERIODS_USED_UP
        if self._first + rules.price > self._for_first * _TOLERANCE:
            return Verdict.REFUSED, OVER_BUDGET
        return Verdict.NEW, ""

    def add(self, answer: AnswerKey, *, answered: bool) -> None:
        """Enter a report of an answer that is admitted, or by this call (see `judge`)."""
        rules = self._rules[answer[:2]]
        if not rules.hides_changes:
            self.revealing.add(answer[:2])
        row = self._rows.get(answer)
        if row is not None:
            self._rows[answer] = row._replace(reports=row.reports + 1)
            return
        changed = answered and rules.memory == "value"
        self._enter(LedgerRow(answer, 1, rules.epsilon_report, rules.price, changed))

    def row(self, answer: AnswerKey) -> LedgerRow:
        """Return an answer's row for storage."""
        return self._rows[answer]

    def copy(self) -> ClientLedger:
        """Return a ledger of its own, with the same rows."""
        other = copy(self)
        other._rows, other._answers = self._rows.copy(), self._answers.copy()
        other.revealing = self.revealing.copy()
        return other

    def count(self, metric: str, version: int) -> int:
        """Return how many answers of a metric's version were admitted."""
        return self._answers[metric, version]

    def has_answered(self, metrics: Collection[str]) -> bool:
        """Return whether an answer of any version of some metrics was admitted."""
        return any(name in metrics for name, _ in self._answers)

    def spending(self) -> Spending:
        """Return the account for people."""
        by_metric: dict[tuple[str, int], list[LedgerRow]] = {}
        for answer, row in self._rows.items():
            by_metric.setdefault(answer[:2], []).append(row)
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

    def _of_metric(self, key: tuple[str, int], rows: list[LedgerRow]) -> MetricSpending:
        metric = self._rules.get(key)
        spent = {row[1:]: row.spent(metric) for row in rows}  # equal rows cost the same
        epsilon = math.fsum(spent[row[1:]] for row in rows)
        return MetricSpending(
            *key,
            answers=len(rows),
            reports=sum(row.reports for row in rows),
            epsilon=epsilon,
            epsilon_any_history=math.inf if key in self.revealing else epsilon,
            committed=math.fsum(row.price for row in rows),
        )

    def _enter(self, row: LedgerRow) -> None:
        self._rows[row.answer] = row
        self._answers[row.answer[:2]] += 1
        if row.changed:
            self._changed += row.price
        else:
            self._first += row.price


def _counted_together(
    registry: Registry, rules: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Return the metrics, with their versions, whose answers count against one `max_periods`.

    Those of a group whose choice is "period": else each metric could be answered in so many periods
    of its own, and a client would spend their sum.
    """
    together: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for group in registry.groups.values():
        if group.choice == "period":
            members = [key for key in rules if key[0] in group.metrics]
            together |= dict.fromkeys(members, members)
    return together


class CachedResponse(NamedTuple):
    """An answer, as a client remembers it.

    Attributes
    ----------
    answer : AnswerKey
    response : PermanentResponse
    period : int or None
        Number of the period that it is for; None with ``memory = "value"``.
    behind_since : float or None
        The clock's earliest reading in an earlier period than this one, in seconds since the epoch.
    forgotten : bool
        Whether the response was deleted, because its period was over; only its number is left.
    """

    answer: AnswerKey
    response: PermanentResponse
    period: int | None = None
    behind_since: float | None = None
    forgotten: bool = False


class Recording(NamedTuple):
    """A recording that isn't stored yet.

    Attributes
    ----------
    own : CachedResponse
        The answer to report if it is admitted.
    recorded_at : float
        Seconds since the epoch.
    begins : bool
        Whether that is the first day of its period, on which a client may start at once.
    """

    own: CachedResponse
    recorded_at: float
    begins: bool = True


class Decision(NamedTuple):
    """What becomes of a recording.

    Attributes
    ----------
    verdict : Verdict
    cached : CachedResponse
        The answer to report, unless it is refused.
    refusal : str
        Why not, if so.
    """

    verdict: Verdict
    cached: CachedResponse
    refusal: str


class Charges(NamedTuple):
    """What became of recordings.

    Attributes
    ----------
    admitted : list of CachedResponse
        The answer to report of each that wasn't refused, in order.
    stale : int
        How many of these report an earlier answer, because there was no room for another value.
    refused : Counter of str
        The others, by reason.
    """

    admitted: list[CachedResponse]
    stale: int
    refused: Counter[str]


def recall(
    cached: CachedResponse | None, metric: Metric, period: int, now: float
) -> CachedResponse | None:
    """Return the period's answer as it is in use at this moment; None if another must be drawn.

    Parameters
    ----------
    cached : CachedResponse or None
        The answer that was admitted last.
    metric : Metric
    period : int
        Number of the period at this moment.
    now : float
        This moment, in seconds since the epoch.

    Notes
    -----
    While the clock is in an earlier period than the answer's, that stays in use, but only for the
    length of a period: a clock that was wrong once must not keep it for years. An answer that was
    deleted is returned for its own period and the one before, so that nothing that was recorded
    then, and comes late, is answered once more. Mode "once" deletes an answer when it is reported,
    and so goes by the clock as if it were still there.
    """
    if cached is None or cached.period is None:
        return None
    if cached.forgotten and metric.mode != "once":
        return cached if cached.period - 1 <= period <= cached.period else None
    if period == cached.period:
        return cached if cached.behind_since is None else cached._replace(behind_since=None)
    if period > cached.period:
        return None
    if cached.behind_since is None or now < cached.behind_since:
        return cached._replace(behind_since=now)
    return cached if now - cached.behind_since < metric.period_days * SECONDS_A_DAY else None


def new_period_response(metric: Metric, response: PermanentResponse, period: int) -> CachedResponse:
    """Return a new answer for a period."""
    key = AnswerKey(metric.name, metric.version, b"")  # numbered when it is admitted
    return CachedResponse(key, response, period)


def _emptied(cached: CachedResponse) -> CachedResponse:
    """Return an answer of which only the period's number is left."""
    return cached._replace(response=PermanentResponse(0, 0), forgotten=True)


class Account:
    """A client's ledger, and of each metric the answer that was admitted last.

    Parameters
    ----------
    registry : Registry
    ledger : ClientLedger, optional
    memory : mapping of str to CachedResponse
        By metric.
    unusable : frozenset of str
        Metrics whose definition changed under the same version.
    """

    def __init__(
        self,
        registry: Registry,
        ledger: ClientLedger | None = None,
        memory: Mapping[str, CachedResponse] | None = None,
        unusable: frozenset[str] = frozenset(),
    ) -> None:
        self._registry = registry
        self.ledger = ledger or ClientLedger(registry)
        self.memory = dict(memory or {})
        self.unusable = unusable

    def copy(self) -> Account:
        """Return an account of its own, that holds the same."""
        return Account(self._registry, self.ledger.copy(), self.memory, self.unusable)

    def decide(self, recording: Recording) -> Decision:
        """Return what becomes of a recording, without charging for it."""
        cached, recorded_at, begins = recording
        name = cached.answer.metric
        if name in self.unusable:
            return Decision(Verdict.REFUSED, cached, CHANGED_DEFINITION)
        metric = self._registry[name]
        if metric.group and self._answers_another(metric, cached.period):
            return Decision(Verdict.REFUSED, cached, NOT_CHOSEN)
        last = self.memory.get(name)
        if cached.period is not None:
            in_use = recall(last, metric, cached.period, recorded_at)
            if in_use is not None:
                if in_use.forgotten:
                    verdict = Verdict.REFUSED if in_use == last else Verdict.WAITS
                    return Decision(verdict, cached, _why_forgotten(metric, in_use))
                return Decision(Verdict.AGAIN, in_use, "")
            if metric.mode == "once" and not begins and not self._has_begun(metric):
                return Decision(Verdict.WAITS, cached, WAITING)
            number = self.ledger.count(name, cached.answer.version) + 1
            key = number.to_bytes(_NUMBER_BYTES, "big")
            cached = cached._replace(answer=cached.answer._replace(key=key))
        verdict, refusal = self.ledger.judge(cached.answer, answered=last is not None)
        if verdict is Verdict.STALE and last is not None:
            return Decision(verdict, last, "")
        return Decision(verdict, cached, refusal)

    def charge(self, recordings: Iterable[Recording]) -> Charges:
        """Decide on recordings, and enter a report of each that isn't refused."""
        charges = Charges([], 0, Counter())
        stale = 0
        for recording in recordings:
            decision = self.decide(recording)
            if decision.verdict is Verdict.WAITS:
                self._wait(recording)
            if decision.refusal:
                charges.refused[decision.refusal] += 1
                continue
            self._enter(decision)
            stale += decision.verdict is Verdict.STALE
            charges.admitted.append(decision.cached)
        return charges._replace(stale=stale)

    def _wait(self, recording: Recording) -> None:
        """Remember the period in which a client begins to wait, or that its clock went back."""
        own, recorded_at, _ = recording
        name = own.answer.metric
        last = recall(self.memory.get(name), self._registry[name], own.period or 0, recorded_at)
        self.memory[name] = last or _emptied(own)

    def _enter(self, decision: Decision) -> None:
        """Count a report of a decision's answer, and remember that.

        Where an answer is reported once only its period is remembered, if it has one: the response
        is never used again, and where f = 0 it is the true bits.
        """
        cached = decision.cached
        name = cached.answer.metric
        last = self.memory.get(name)
        self.ledger.add(cached.answer, answered=last is not None)
        if self._registry[name].one_time:
            return
        if self._registry[name].mode == "once":
            self.memory[name] = _emptied(cached)
        elif last is None or decision.verdict is Verdict.NEW or cached.period is not None:
            self.memory[name] = cached

    def _has_begun(self, metric: Metric) -> bool:
        """Whether this client was asked a metric, or another of its group, in a period before."""
        group = self._registry.groups.get(metric.group)
        names = group.metrics if group and group.choice == "period" else (metric.name,)
        return any(name in self.memory for name in names)

    def _answers_another(self, metric: Metric, period: int | None) -> bool:
        """Whether another metric of its group has this client's answer, for life or this period.

        The secret's choice says so already, unless the group had other metrics then.
        """
        group = self._registry.groups[metric.group]
        others = [name for name in group.metrics if name != metric.name]
        if group.choice == "life":
            return self.ledger.has_answered(others)
        answered = (self.memory.get(name) for name in others)
        return any(last and last.answer.key and last.period == period for last in answered)


def _why_forgotten(metric: Metric, last: CachedResponse) -> str:
    """Return why nothing more is reported in the period of an answer that isn't there any more."""
    if metric.mode != "once":
        return PERIOD_OVER  # recorded before the period was over
    return REPORTED_IN_PERIOD if last.answer.key else WAITING
