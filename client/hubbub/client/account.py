"""Which answer a recording reports: its own, the period's, the last admitted one, or none.

The caller's thread asks it of what is in memory, and the writer asks it again of what is stored, in
a transaction; so of several processes that answer at once, the one whose answer is stored first
wins, and the others' reports are drawn anew. Invariant: what is decided depends on a value only
through the answer that is reported, never through whether there is a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hubbub.client.encoder import PermanentResponse
from hubbub.client.ledger import AnswerKey, Ledger, Verdict
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Registry

PERIOD_OVER = "recorded in a period that is over"
CHANGED_DEFINITION = "definition changed without a new version"
_NUMBER_BYTES = 4


class Memo(NamedTuple):
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


class Decision(NamedTuple):
    """What becomes of a recording.

    Attributes
    ----------
    verdict : Verdict
    memo : Memo
        The answer to report, unless it is refused.
    refusal : str
        Why not, if so.
    """

    verdict: Verdict
    memo: Memo
    refusal: str


def recall(memo: Memo | None, metric: Metric, now: float) -> Memo | None:
    """Return the period's answer as it is in use at this moment; None if another must be drawn.

    While the clock is in an earlier period than the answer's, that stays in use, but only for the
    length of a period: a clock that was wrong once must not keep it for years. An answer that was
    deleted is returned for its own period and the one before, so that nothing that was recorded
    then, and comes late, is answered once more.
    """
    if memo is None or memo.period is None:
        return None
    period = metric.period(now)
    if memo.forgotten:
        return memo if memo.period - 1 <= period <= memo.period else None
    if period == memo.period:
        return memo if memo.behind_since is None else memo._replace(behind_since=None)
    if period > memo.period:
        return None
    if memo.behind_since is None or now < memo.behind_since:
        return memo._replace(behind_since=now)
    return memo if now - memo.behind_since < metric.period_days * SECONDS_A_DAY else None


def period_memo(metric: Metric, response: PermanentResponse, now: float) -> Memo:
    """Return a new answer for the period of this moment."""
    key = AnswerKey(metric.name, metric.version, b"")  # numbered when it is admitted
    return Memo(key, response, metric.period(now))


class Account:
    """A client's ledger, and of each metric the answer that was admitted last.

    Parameters
    ----------
    registry : Registry
    ledger : Ledger, optional
    memory : mapping of str to Memo
        By metric.
    unusable : frozenset of str
        Metrics whose definition changed under the same version.
    """

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger | None = None,
        memory: Mapping[str, Memo] | None = None,
        unusable: frozenset[str] = frozenset(),
    ) -> None:
        self._registry = registry
        self.ledger = ledger or Ledger(registry)
        self.memory = dict(memory or {})
        self.unusable = unusable

    def decide(self, memo: Memo, recorded_at: float) -> Decision:
        """Return what becomes of a recording at a moment, whose own answer would be `memo`."""
        name = memo.answer.metric
        if name in self.unusable:
            return Decision(Verdict.REFUSED, memo, CHANGED_DEFINITION)
        last = self.memory.get(name)
        if memo.period is not None:
            in_use = recall(last, self._registry[name], recorded_at)
            if in_use is None and last is not None and memo.period == last.period:
                in_use = last  # as it seemed to be, and nothing else was drawn
            if in_use is not None and in_use.forgotten:  # recorded before the period was over
                return Decision(Verdict.REFUSED, memo, PERIOD_OVER)
            if in_use is not None:
                return Decision(Verdict.AGAIN, in_use, "")
            memo = memo._replace(answer=self._next_number(memo.answer))
        verdict, refusal = self.ledger.judge(memo.answer, answered=last is not None)
        if verdict is Verdict.STALE and last is not None:
            return Decision(verdict, last, "")
        return Decision(verdict, memo, refusal)

    def enter(self, decision: Decision, reports: int = 1) -> None:
        """Count reports of a decision's answer, and remember that.

        Not of a one-time metric: it is never reported again, and where f = 0 it is the true bits.
        """
        memo = decision.memo
        name = memo.answer.metric
        last = self.memory.get(name)
        self.ledger.add(memo.answer, reports, answered=last is not None)
        if self._registry[name].one_time:
            return
        if last is None or decision.verdict is Verdict.NEW or memo.period is not None:
            self.memory[name] = memo

    def _next_number(self, answer: AnswerKey) -> AnswerKey:
        number = self.ledger.count(answer.metric, answer.version) + 1
        return answer._replace(key=number.to_bytes(_NUMBER_BYTES, "big"))
