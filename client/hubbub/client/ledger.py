"""A client's answers, their privacy cost, and the choice of the answer that is reported.

An answer (a distinct value, a period, a one-time report) is paid for as a whole when it is
admitted, so that reporting it again never fails. Invariant: whether a client is silent depends on
the times of its recordings and never on their values; so the lifetime budget has a part for what
times decide, and changes of values may use only the rest (docs/protocol, section 6).

A recording is charged once: by the writer, to the stored account, in the transaction that stores
its report. So whichever of several processes comes first wins, the others report its answer, and no
cap is exceeded. There is no I/O here: `state` keeps the rows, in which values are keyed digests.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import NamedTuple

from hubbub.client.encoder import PermanentResponse
from hubbub.client.schedule import Period
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
CHANGED_DEFINITION = "definition changed without a new version"
_NUMBER_BYTES = 4  # big-endian, as long as the largest max_values or max_periods needs
_TOLERANCE = 1 + 1e-9
"""Sums of thousands of doubles are off by less; ten prices of a tenth fit into one."""


class AnswerKey(NamedTuple):
    """An answer's metric, version, and value (a digest) or period (a number)."""

    metric: str
    version: int
    key: bytes


class LedgerRow(NamedTuple):
    """An admitted answer as it is stored."""

    answer: AnswerKey
    reports: int
    epsilon_report: float  # as they were when it was admitted
    price: float
    # It followed another value of the same metric; if not, only times decided on it.
    changed: bool

    def spent(self, metric: Metric | None) -> float:
        """Return what its reports reveal, together.

        Without its metric more than one report count as all that could ever be made, because fewer
        may cost more than their sum (`RapporParams.epsilon_after`).
        """
        if not self.reports:
            return 0.0
        if metric is not None:
            return min(metric.epsilon_after(self.reports), self.price)
        return self.epsilon_report if self.reports == 1 else self.price


class Verdict(enum.Enum):
    """The outcome of a recording."""

    AGAIN = "reports an answer that was admitted before"
    NEW = "admits an answer"
    WAITS = "isn't reported, but changes what is remembered of periods"
    STALE = "reports the answer that was admitted last, in place of another value"
    REFUSED = "isn't reported"


class MetricSpending(NamedTuple):
    """The privacy budget that a client spent on one version of a metric.

    Attributes
    ----------
    metric : str
    version : int
    answers : int
        Distinct values, periods, or one-time reports that were admitted.
    reports : int
    epsilon : float
        Bound on what these reports reveal, together, of histories that change alike.
    epsilon_any_history : float
        The same of any histories: infinite if some were made while a change would have been seen.
    committed : float
        All prices paid, however few reports there were so far.
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
    restores : int
        How often the state was found to be a copy (a restored backup, a cloned machine), whose
        original may have spent more.
    """

    metrics: tuple[MetricSpending, ...]
    epsilon: float
    epsilon_any_history: float
    committed: float
    lifetime_epsilon: float | None
    restores: int


class CachedResponse(NamedTuple):
    """An answer, as a client remembers it."""

    answer: AnswerKey
    response: PermanentResponse
    # The day, from the epoch, on which its period is over; None with ``memory = "value"``.
    end_day: int | None = None


class LastPeriod(NamedTuple):
    """The last period that a client answered, or waited in, of all of a metric's versions."""

    version: int  # of the metric, then
    first_day: int  # from the epoch; it is over on the second one
    end_day: int
    answered: bool  # if not, the client waited in it
    # The clock's earliest reading before this period, in seconds since the epoch.
    behind_since: float | None = None


class Recording(NamedTuple):
    """A recording that isn't stored yet."""

    own: CachedResponse  # the answer to report if it is admitted
    recorded_at: float  # seconds since the epoch
    period: Period | None = None  # the client's, then; None with ``memory = "value"``
    begins: bool = True  # whether that was its first day, on which a client may start at once

    @property
    def key(self) -> tuple[str, int, int | None]:
        """The metric, its version, and the number of the period: what a switch goes by."""
        answer = self.own.answer
        return answer.metric, answer.version, self.period and self.period.number


class Decision(NamedTuple):
    """The answer that a recording reports, or the reason why it has none."""

    verdict: Verdict
    cached: CachedResponse  # the answer to report, unless it is refused
    refusal: str  # why not, if so


class Charges(NamedTuple):
    """The answers charged for recordings, and the refusals."""

    admitted: list[CachedResponse]  # the answer to report of each that wasn't refused, in order
    # How many of these report an earlier answer, because there was no room for another value.
    stale: int
    refused: Counter[str]  # the others, by reason


def period_in_use(
    last: LastPeriod | None, metric: Metric, period: Period, now: float
) -> LastPeriod | None:
    """Return the last period as it is at this moment; None if the client may answer in another.

    That is one which begins only when the last one is over. This holds between versions, and where
    these have other periods: no two periods that a client answers share a day, nor does a version
    that is raised within one answer once more in it. While the clock is before the last period
    nothing is drawn, but only for the length of a period: a clock that was wrong once must not
    silence a client for years.
    """
    if last is None or period.first_day >= last.end_day:
        return None
    if now >= last.first_day * SECONDS_A_DAY:
        return last if last.behind_since is None else last._replace(behind_since=None)
    if last.behind_since is None or now < last.behind_since:
        return last._replace(behind_since=now)
    return last if now - last.behind_since < metric.period_days * SECONDS_A_DAY else None


class Account:
    """The account of one client, the answers that it may report again, and its last periods.

    It goes by one registry's rules. `rows`: what is stored, also of metrics and versions that
    aren't registered (any more). `memory`: by metric, of the registered version: the answer that
    was admitted last. `periods`: by metric, of all versions. `unusable`: metrics whose definition
    changed under the same version; they count as not registered. `revealing`: metrics and versions
    that were reported while a change of values would have been seen.
    """

    def __init__(
        self,
        registry: Registry,
        rows: Iterable[LedgerRow] = (),
        memory: Mapping[str, CachedResponse] | None = None,
        periods: Mapping[str, LastPeriod] | None = None,
        *,
        restores: int = 0,
        unusable: Collection[str] = (),
        revealing: Collection[tuple[str, int]] = (),
    ) -> None:
        self.memory = dict(memory or {})
        self.periods = dict(periods or {})
        self.unusable = unusable
        self._rules = {
            (metric.name, metric.version): metric
            for metric in registry.values()
            if metric.name not in unusable
        }
        self._once = any(metric.one_time for metric in self._rules.values())
        self._registry = registry
        unlimited = registry.lifetime_epsilon is None
        self._budget = math.inf if unlimited else registry.lifetime_epsilon or 0.0
        self._restores = restores
        self.revealing = set(revealing)
        self._rows: dict[AnswerKey, LedgerRow] = {}
        self._answers: Counter[tuple[str, int]] = Counter()
        self._first_answers: Counter[str] = Counter()
        self._first = self._changed = 0.0
        first_of_others = 0.0
        for row in rows:
            self._add_row(row)
            if not row.changed and row.answer[:2] not in self._rules:
                first_of_others += row.price
        reserve = first_of_others + registry.reserve(unusable)
        self._for_first = math.inf if unlimited else min(reserve, self._budget)
        self._for_changes = max(0.0, self._budget - reserve)

    def copy(self) -> Account:
        """Return an independent account with the same contents."""
        other = copy(self)
        for name in ("memory", "periods", "revealing", "_rows", "_answers", "_first_answers"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def decide(self, recording: Recording) -> Decision:
        """Return what becomes of a recording, without charging for it."""
        cached = recording.own
        name = cached.answer.metric
        if name in self.unusable:
            return Decision(Verdict.REFUSED, cached, CHANGED_DEFINITION)
        metric = self._registry[name]
        # Another metric of its group may have this client's answer for life, though the secret has
        # chosen this one, if the group had other metrics then.
        group = self._registry.groups.get(metric.group)
        if group and group.choice == "life":
            others = {*group.metrics} - {name}
            if any(answered in others for answered, _ in self._answers):
                return Decision(Verdict.REFUSED, cached, NOT_CHOSEN)
        # With periods: the answer of the period in use, or the next number, after the first wait.
        if recording.period is not None:
            if in_use := self._in_use(recording):
                return self._decide_in(in_use, recording)
            if not recording.begins and self.is_new_to(metric):
                return Decision(Verdict.WAITS, cached, WAITING)
            number = self.count(name, cached.answer.version) + 1
            key = number.to_bytes(_NUMBER_BYTES, "big")
            cached = cached._replace(answer=cached.answer._replace(key=key))
        # Is there room for it?
        last = self.memory.get(name)
        verdict, refusal = self.judge(cached.answer, answered=last is not None)
        if verdict is Verdict.STALE and last is not None:
            return Decision(verdict, last, "")
        return Decision(verdict, cached, refusal)

    def _in_use(self, recording: Recording) -> dict[str, LastPeriod]:
        """Return the last periods, by metric, because of which a recording draws no answer.

        The metrics of a group that chooses for each period are one question here.
        """
        found = {}
        if recording.period is not None:
            metric = self._registry[recording.own.answer.metric]
            for name in self._registry.shares_periods(metric):
                last = self.periods.get(name)
                if kept := period_in_use(last, metric, recording.period, recording.recorded_at):
                    found[name] = kept
        return found

    def _decide_in(self, in_use: Mapping[str, LastPeriod], recording: Recording) -> Decision:
        cached = recording.own
        name = cached.answer.metric
        last = in_use.get(name)
        answer = self.memory.get(name)
        if last and answer and last.version == cached.answer.version:
            return Decision(Verdict.AGAIN, answer, "")
        is_news = any(self.periods[each] != kept for each, kept in in_use.items())
        verdict = Verdict.WAITS if is_news else Verdict.REFUSED
        if not any(kept.answered for kept in in_use.values()):
            return Decision(verdict, cached, WAITING)
        is_own = last is not None and last.version == cached.answer.version
        late = is_own and self._registry[name].mode != "once"  # the answer is deleted
        return Decision(verdict, cached, PERIOD_OVER if late else REPORTED_IN_PERIOD)

    def charge(self, recordings: Iterable[Recording]) -> Charges:
        """Decide on recordings, and enter a report of each that isn't refused."""
        charges = Charges([], 0, Counter())
        stale = 0
        for recording in recordings:
            decision = self.decide(recording)
            in_use = self._in_use(recording)
            self.periods.update(in_use)
            if decision.verdict is Verdict.WAITS and not in_use:
                self.wait(recording)
            if decision.refusal:
                charges.refused[decision.refusal] += 1
                continue
            self._enter(decision, recording)
            stale += decision.verdict is Verdict.STALE
            charges.admitted.append(decision.cached)
        return charges._replace(stale=stale)

    def wait(self, recording: Recording) -> None:
        """Remember the period in which a client begins to wait, if it is new to a metric.

        Also if it is in no sample then, or the samples of some periods would have no new clients.
        """
        name, version, _ = recording.own.answer
        if recording.period is not None and self.is_new_to(self._registry[name]):
            _, first_day, end_day = recording.period
            self.periods[name] = LastPeriod(version, first_day, end_day, answered=False)

    def _enter(self, decision: Decision, recording: Recording) -> None:
        """Count a report of a decision's answer, and remember that.

        Where an answer is reported once only its period is remembered, if it has one: the response
        is never used again, and where f = 0 it is the true bits.
        """
        cached = decision.cached
        name, version, _ = cached.answer
        last = self.memory.get(name)
        self.add(cached.answer, answered=last is not None)
        is_new = decision.verdict is Verdict.NEW
        if is_new and recording.period is not None:
            _, first_day, end_day = recording.period
            self.periods[name] = LastPeriod(version, first_day, end_day, answered=True)
        if not self._registry[name].reports_once and (last is None or is_new):
            self.memory[name] = cached

    def is_new_to(self, metric: Metric) -> bool:
        """Whether this client waits for a first period of a metric, or of others of its group."""
        names = self._registry.shares_periods(metric)
        return metric.mode == "once" and not any(name in self.periods for name in names)

    def judge(self, answer: AnswerKey, *, answered: bool) -> tuple[Verdict, str]:
        """Return what becomes of a recording of this answer, and if it is refused, why.

        `answered`: whether this metric's version has an answer that could be reported in its place.
        """
        known = answer in self._rows
        if known and not self._once:  # most recordings of most apps
            return Verdict.AGAIN, ""
        rules = self._rules[answer[:2]]
        if rules.one_time and self._answers[answer[:2]]:
            return Verdict.REFUSED, ALREADY_REPORTED
        if known:
            return Verdict.AGAIN, ""
        # A new answer: another value than the last one, or one at a time of its own.
        # `max_periods` holds for the metric's name and its group, over all versions. Only first
        # answers count, which follow from times; others would make silence depend on values.
        if rules.memory == "value":
            admitted = self._answers[answer[:2]]
        else:
            names = self._registry.shares_periods(rules)
            admitted = sum(self._first_answers[name] for name in names)
        used_up = admitted >= rules.max_answers
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
        self._add_row(LedgerRow(answer, 1, rules.epsilon_report, rules.price, changed))

    def row(self, answer: AnswerKey) -> LedgerRow:
        """Return an answer's row for storage."""
        return self._rows[answer]

    def count(self, metric: str, version: int) -> int:
        """Return how many answers of a metric's version were admitted."""
        return self._answers[metric, version]

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

    def _add_row(self, row: LedgerRow) -> None:
        self._rows[row.answer] = row
        self._answers[row.answer[:2]] += 1
        if row.changed:
            self._changed += row.price
        else:
            self._first_answers[row.answer.metric] += 1
            self._first += row.price
