"""Arms that are looked at every day: how often a look alarms, and how soon a difference is found.

Each day brings as many reports; a look sees all of them so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.laboratory import Case, Figure, seed_of
from evaluation.studies.arms import Arms, CategoryArms, NumberArms, StringArms, draw_arms
from evaluation.studies.categories import PAPER
from evaluation.studies.study import Study, means
from factories import make_params
from hubbub.inference import BoolArray, Comparison, FixedSample, Groups, ReportGroup, log_q_values

LOOKS = 30


class Watched(NamedTuple):
    """One trial's looks."""

    # every_look, one_look: Whether any row was said to differ at any look, by always-valid q-values
    # and by plain ones
    every_look: float
    one_look: float
    last_look: float  # whether any was at the last look, by plain ones
    # rows, missed: Rows at the last look, and those whose always-valid interval ever missed the
    # truth
    rows: int
    missed: int
    widening: float  # what the last look says of it
    # products, squares: Sums over rows of what differences came out as: on the tenth day times the
    # last, and the last squared, in squares of the last one's standard error
    products: float
    squares: float


@dataclass(frozen=True, slots=True)
class WatchedArms:
    """Two arms, and how many reports a day each of them has."""

    arms: Arms  # what they are of
    daily: tuple[int, int]  # the control's reports, and the treatment's
    more: float = 0.0  # what the treatment's target has more
    looks: int = LOOKS  # one a day

    @property
    def name(self) -> str:
        return f"{self.arms.name}, {f'{self.more:.2%} more' if self.more else 'equal arms'}"

    @property
    def work(self) -> float:
        return 100.0 if isinstance(self.arms, StringArms) else 1.0

    def run(self, number: int) -> Watched:
        rng = np.random.default_rng(seed_of(f"{self}", number))
        so_far, missed = None, set[str]()
        every_look = one_look = at_once = False
        early: dict[str, float] = {}
        for look in range(self.looks):
            day = draw_arms(self.arms, self.more, self.daily, rng, number)
            so_far = day if so_far is None else _with(so_far, day)
            every = self.arms.compare(so_far, number, sequential=True)
            at_once = _alarms_at_once(every)
            every_look |= bool(every.differs.any())
            one_look |= at_once
            if not self.more:
                missed |= {every.names[row] for row in np.flatnonzero(~_holds_zero(every))}
            if look == self.looks // 3 - 1:
                early = dict(zip(every.names, every.difference.value.tolist(), strict=True))
        rows = [row for row, name in enumerate(every.names) if name in early]
        last, error = (each[rows] for each in every.difference)
        first = np.array([early[every.names[row]] for row in rows])
        return Watched(
            every_look, one_look, at_once, len(every.names), len(missed),
            every.widening or np.nan,
            float(first @ (last / error**2)), float(last @ (last / error**2)),
        )  # fmt: skip


def _with(so_far: Groups, day: Groups) -> Groups:
    return Groups(*(ReportGroup(a.counts + b.counts) for a, b in zip(so_far, day, strict=True)))


def _alarms_at_once(found: Comparison[Any]) -> bool:
    value, std_error = found.difference
    log_p = np.nan_to_num(FixedSample().log_p(value / std_error, std_error))
    return bool((log_q_values(log_p, found.correction) <= np.log(found.alpha)).any())


def _holds_zero(found: Comparison[Any]) -> BoolArray:
    return np.asarray((found.low <= 0) & (found.high >= 0))


STRINGS = StringArms(make_params(64, 2, 8, f=0.0, p=0.25, q=0.75), strings=60)
ENUM, NUMBERS = CategoryArms(20, PAPER), NumberArms(2.0)
CASES: tuple[Case[Watched], ...] = (
    WatchedArms(STRINGS, (3_000, 3_000)),
    WatchedArms(ENUM, (3_000, 3_000)),
    WatchedArms(ENUM, (100_000, 100_000)),
    WatchedArms(ENUM, (1_000, 10_000)),
    WatchedArms(NUMBERS, (3_000, 3_000)),
    WatchedArms(NumberArms(2.0, variance=True), (300, 300)),
)


def _missed(_case: object, trials: Sequence[Watched]) -> Figure:
    rows = np.array([trial.rows for trial in trials], dtype=np.float64)
    missed = np.array([trial.missed for trial in trials])
    return Figure.of_ratio((missed / np.maximum(rows, 1)).tolist(), rows)


def _increments(_case: object, trials: Sequence[Watched]) -> Figure:
    products, squares = np.array([(trial.products, trial.squares) for trial in trials]).T
    ratio, n = products.sum() / squares.sum(), len(trials)
    deviations = products - ratio * squares
    error = np.sqrt(deviations @ deviations * n / max(n - 1, 1)) / squares.sum()
    return Figure(float(ratio), float(error), n)


STUDY = Study(
    "Arms that are looked at on 30 days: false alarms",
    """Equal arms: how often any row is said to differ at any of 30 daily looks, by always-valid
    q-values (at most .05 is promised) and by those for a single look, and at the last look by the
    latter; the share of rows whose always-valid interval misses the truth at any look (at most
    .05); how many times as wide as a single look's it is on the last day; and, of differences on
    the tenth day and the last, their covariance over the last one's variance: 1 if what is added
    between is independent of what was there.""",
    lambda: CASES,
    {
        "arms": lambda case, _: case.arms.name,
        "reports a day": lambda case, _: " and ".join(f"{each:,}" for each in case.daily),
        **means("every_look", "one_look", "last_look"),
        "ever missed": _missed,
        **means("widening"),
        "increments": _increments,
    },
    runs=400,
)
