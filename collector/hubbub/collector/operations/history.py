"""Rates of events over the last minutes, from totals that only grow.

A ring buffer of totals, one every ten seconds; a rate is the difference of two by their distance.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hubbub.collector.operations.metric_families import MetricValues

STEP_SECONDS = 10.0
SPAN_SECONDS = 900.0
_RATE_SECONDS = 300.0


class Totals(NamedTuple):
    """Numbers of events up to a moment."""

    requests: float = 0.0
    reports: float = 0.0
    duplicates: float = 0.0
    shed: float = 0.0
    faults: float = 0.0

    @classmethod
    def of(cls, values: MetricValues) -> Totals:
        """Read them from the counters."""
        answers = values.by("requests")
        return cls(
            requests=sum(n for _, n in answers),
            reports=values.total("reports"),
            duplicates=values.total("duplicates"),
            shed=values.total("shed"),
            faults=sum(n for (status, _), n in answers if status.startswith("5")),
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Events a second.

    Attributes
    ----------
    seconds : float
        Over how long they were taken: five minutes, or less soon after the start.
    requests, reports, duplicates, shed, faults : float
        Duplicates are batches; faults are requests that were answered 5xx.
    recent_reports : tuple of float
        Reports a second in steps of ten seconds over the last 15 minutes, the latest last.
    """

    seconds: float
    requests: float
    reports: float
    duplicates: float
    shed: float
    faults: float
    recent_reports: tuple[float, ...]


class History:
    """The totals of the last 15 minutes; the clock is the caller's."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, Totals]] = deque(maxlen=round(SPAN_SECONDS / STEP_SECONDS))

    def add(self, now: float, totals: Totals) -> None:
        """Remember the totals of a moment; to be called every ten seconds."""
        self._steps.append((now, totals))

    def rates(self, now: float, totals: Totals) -> Rates:
        """Return the rates up to now; all zero as long as nothing has been remembered."""
        steps = [*self._steps, (now, totals)]
        since, base = next(step for step in steps if step[0] >= now - _RATE_SECONDS)
        seconds = now - since
        change = (after - before for after, before in zip(totals, base, strict=True))
        rates = Totals(*(n / seconds if seconds else 0.0 for n in change))
        recent = [
            (later.reports - earlier.reports) / (end - start)
            for (start, earlier), (end, later) in pairwise(steps)
            if end - start >= STEP_SECONDS / 2
        ]
        return Rates(seconds, *rates, tuple(recent))
