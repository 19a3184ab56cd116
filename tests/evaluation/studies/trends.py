"""How often trends mark a change that isn't there, find one that is, and hold the truth.

Two to eight weeks of strings and of categories, whose clients are others every day, the same, or
others from some day on, and whose shares change, for a while or for good, go with the weekdays, or
do nothing of it (docs/measured/estimates.md).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from evaluation.studies.study import Study, means
from factories import make_metric, make_params
from hubbub.decoder import CohortCounts, Decoding, count_records, decode
from hubbub.inference import (
    BoolArray,
    FloatArray,
    IntArray,
    Trends,
    bit_positions,
    decode_category_days,
    decode_days,
    decode_reports,
    decode_whole_days,
    hashed,
    pack,
)
from hubbub.protocol import BooleanType, EnumType, Metric, RapporParams
from hubbub.simulations import as_records

PARAMS = make_params(k=32, h=2, m=8, f=0.5, p=0.25, q=0.75)
VALUES = tuple(f"value {i}" for i in range(18))
ABSENT = tuple(f"absent {i}" for i in range(20))
ALL_LISTED = (*VALUES, *ABSENT)
TWO_THIRDS_LISTED = (*VALUES[:12], *ABSENT)
SHARES = np.array([0.16, 0.12, 0.1, 0.08, *[0.06] * 4, *[0.04] * 4, *[0.024] * 6])
SHARES = SHARES / SHARES.sum()
FIRST = dt.date(2026, 11, 1)
N_DAYS = 14
EIGHT_WEEKS = 56
DAILY_ERROR = 0.017
"""Of one day's share, about, at 10,000 reports a day."""
FILTERS: BoolArray = np.zeros((len(VALUES), PARAMS.m, PARAMS.k), dtype=np.bool_)
np.put_along_axis(FILTERS, bit_positions(VALUES, PARAMS).astype(np.int64), values=True, axis=2)


class MarkedChanges(NamedTuple):
    """What one trial's trends said; nan where there is nothing to find."""

    # whether a series was marked that is steady, or steady but for its weekly pattern, or was said
    # to have a pattern that it hasn't
    any_false: float
    false_share: float  # of the marked series
    coverage: float  # of the days' 95% intervals of what stays the same
    # found, about_the_day, right_form: Share of the changed ones that were marked, and of these,
    # the most conspicuous mark within a day, and as a shift or not as it is
    found: float
    about_the_day: float
    right_form: float
    more: float  # further marks on them
    pattern: float  # share of those with a weekly pattern that were said to have one


@dataclass(frozen=True, slots=True)
class Happening:
    """What shares do: one value gives to another."""

    by: float = 0.0  # how much changes hands from day `since` on, counted from 0, until day `last`
    since: int = 9
    last: int | None = None
    weekend: float = 0.0  # how much more of its share the taker has at weekends
    giver: int = 0
    taker: int = 4
    n_days: int = 14

    @property
    def series(self) -> AbstractSet[int]:
        """The values that something happens to."""
        return {self.giver, self.taker}

    def of_each_day(self, shares: FloatArray) -> FloatArray:
        """Return shares day by day, of shape (d, n)."""
        days = np.arange(self.n_days)
        given = np.where(days >= self.since, self.by, 0.0)
        if self.last is not None:
            given[days > self.last] = 0.0
        given += np.where(days % 7 >= 5, self.weekend * shares[self.taker], 0.0)
        moved = np.tile(shares, (self.n_days, 1))
        moved[:, self.giver] -= given
        moved[:, self.taker] += given
        return moved


STEADY = Happening()


def judge_changes(
    trends: Trends[Any], names: Sequence[int | None], shares: FloatArray, what: Happening
) -> MarkedChanges:
    """Compare marks with the truth.

    names: The value that each series is of; None: another one, whose marks are false and whose
    intervals aren't asked.
    shares: shape (n,): Of values as long as nothing happens.
    """
    happened = what.series & set(names)
    changed = happened if what.by else set()
    patterned = happened if what.weekend else set()
    marks = {name: each for name, each in zip(names, trends.found.changes, strict=True) if each}
    weekly = trends.found.weekly_q_value <= trends.pooled.summary.alpha
    patterns = {name for name, found in zip(names, weekly.tolist(), strict=True) if found}
    truths = {
        i: shares[name]
        for i, name in enumerate(names)
        if name is not None and name not in changed | patterned
    }
    steady, truth = list(truths), np.array(list(truths.values()))
    inside = (trends.low[:, steady] <= truth) & (truth <= trends.high[:, steady])
    first = [min(marks[each], key=lambda mark: mark.p_value) for each in changed & marks.keys()]
    false = marks.keys() - changed

    def share_of(truths: Sequence[bool] | BoolArray) -> float:
        return float(np.mean(truths)) if len(truths) else np.nan

    return MarkedChanges(
        any_false=float(bool(false | (patterns - patterned))),
        false_share=len(false) / max(len(marks), 1),
        coverage=share_of(inside.ravel()),
        found=share_of([each in marks for each in changed]),
        about_the_day=share_of([abs(each.day - what.since) <= 1 for each in first]),
        right_form=share_of([(each.last is None) == (what.last is None) for each in first]),
        more=sum(len(marks[each]) - 1 for each in changed & marks.keys()),
        pattern=share_of([each in patterns for each in patterned]),
    )


def permanent_bits(true: BoolArray, params: RapporParams, rng: np.random.Generator) -> BoolArray:
    coins, half = rng.random(true.shape), params.f / 2
    return np.where(true, coins < 1 - half, coins < half)


def sizes(n: int, rng: np.random.Generator, n_days: int = N_DAYS) -> IntArray:
    """Return unequal days: weekends have half as many reports, and all vary."""
    week = np.where(np.arange(n_days) % 7 < 5, 1.0, 0.5)
    return np.asarray((n * week * rng.uniform(0.8, 1.2, n_days)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class People:
    """Clients with what stays the same for life: cohort, value, permanent response."""

    held: IntArray
    cohorts: IntArray
    permanent: BoolArray

    @classmethod
    def drawn(cls, n: int, shares: FloatArray, rng: np.random.Generator) -> People:
        held = rng.choice(len(shares), size=n, p=shares)
        cohorts = rng.integers(PARAMS.m, size=n)
        return cls(held, cohorts, permanent_bits(FILTERS[held, cohorts], PARAMS, rng))

    def some(self, which: IntArray) -> People:
        return People(self.held[which], self.cohorts[which], self.permanent[which])

    def report(self, rng: np.random.Generator) -> bytes:
        """Return a day's records."""
        chance = np.where(self.permanent, PARAMS.q, PARAMS.p)
        bits = rng.random(chance.shape, dtype=np.float32) < chance
        return as_records(self.cohorts, np.packbits(bits, axis=1, bitorder="little"))


Day = Callable[[np.random.Generator], list[bytes]]
"""Draws the records of each day."""


def new_clients_each_day(
    rng: np.random.Generator, n: int = 10_000, what: Happening = STEADY
) -> list[bytes]:
    drawn = zip(sizes(n, rng, what.n_days), what.of_each_day(SHARES), strict=True)
    return [People.drawn(int(size), shares, rng).report(rng) for size, shares in drawn]


def same_clients_every_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    everybody = People.drawn(n, SHARES, rng)
    return [everybody.report(rng) for _ in range(N_DAYS)]


def half_the_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    everybody = People.drawn(2 * n, SHARES, rng)
    return [everybody.some(rng.permutation(2 * n)[:size]).report(rng) for size in sizes(n, rng)]


def other_clients_half_way(rng: np.random.Generator, n_days: int, n: int = 10_000) -> list[bytes]:
    halves = [People.drawn(n, SHARES, rng), People.drawn(n, SHARES, rng)]
    return [halves[2 * day // n_days].report(rng) for day in range(n_days)]


def trends_of(
    days: list[bytes], candidates: tuple[str, ...] = ALL_LISTED, *, whole: bool = False
) -> Trends[Decoding]:
    """Decode from counts, or from whole reports."""
    records = {FIRST + dt.timedelta(days=i): each for i, each in enumerate(days)}
    by_day = {day: count_records(each, PARAMS) for day, each in records.items()}
    if not whole:
        return decode_days(by_day, PARAMS, candidates)
    listed = hashed(candidates, PARAMS)
    counted = decode(reduce(add, by_day.values()), PARAMS, listed)
    pooled = decode_reports(pack(days, PARAMS), counted, listed, reason="measured")
    packed = {day: pack([each], PARAMS) for day, each in records.items()}
    trends = decode_whole_days(by_day, packed, pooled, listed)
    assert trends is not None
    return trends


@dataclass(frozen=True, slots=True)
class StringTrends:
    """Who reports, which strings are listed, and what happens to shares if others report daily."""

    name: str
    draw: Day | None = None
    candidates: tuple[str, ...] = ALL_LISTED
    what: Happening = STEADY
    whole: bool = False

    @property
    def work(self) -> float:
        """About how long a trial takes, in seconds."""
        return 6.0 if self.whole else 0.02 * self.what.n_days

    def run(self, number: int) -> MarkedChanges:
        draw = self.draw or partial(new_clients_each_day, what=self.what)
        days = draw(np.random.default_rng([7, number]))
        trends = trends_of(days, self.candidates, whole=self.whole)
        places = {value: i for i, value in enumerate(VALUES) if value in self.candidates}
        return judge_changes(trends, [places.get(name) for name in ("", *trends.followed)],
                             SHARES, self.what)  # fmt: skip


_SPIKE = Happening(8.6 * DAILY_ERROR, since=29, last=29, n_days=EIGHT_WEEKS)
_STRETCH = replace(_SPIKE, by=0.05, last=32)
_SHIFT = Happening(0.02, since=36, n_days=EIGHT_WEEKS)
_WEEKLY = Happening(weekend=0.6, taker=1, n_days=EIGHT_WEEKS)
OF_EIGHT_WEEKS = {
    "nothing": Happening(n_days=EIGHT_WEEKS),
    "8.6 daily errors more on day 30 alone": _SPIKE,
    "5 points more on days 30 to 33": _STRETCH,
    "2 points more from day 37 on": _SHIFT,
    "60% more at weekends": _WEEKLY,
    "60% more at weekends, 4 points more from day 37 on":
        replace(_WEEKLY, by=0.04, since=_SHIFT.since),
}  # fmt: skip
"""What happens between two values in eight weeks."""
SCENARIOS = (
    StringTrends("other clients every day"),
    StringTrends("other clients every day, a third of the strings not listed",
                 candidates=TWO_THIRDS_LISTED),
    StringTrends("the same clients every day", same_clients_every_day),
    StringTrends("half of the clients, drawn each day", half_the_clients_each_day),
    StringTrends("other clients from day 8 on", partial(other_clients_half_way, n_days=14)),
    StringTrends("28 days, other clients from day 15 on",
                 partial(other_clients_half_way, n_days=28)),
    StringTrends("2 points between unlisted strings on day 10", None, TWO_THIRDS_LISTED,
                 Happening(0.02, giver=12, taker=17)),
    *(StringTrends(f"{100 * by:g} points between two strings on day 10", what=Happening(by))
      for by in (0.02, 0.04, 0.06)),
)  # fmt: skip
LONG_SCENARIOS = tuple(
    StringTrends(f"strings, {words}", what=what) for words, what in OF_EIGHT_WEEKS.items()
)
WHOLE_SCENARIOS = tuple(
    replace(each, name=f"whole reports, {each.name}", whole=True)
    for each in (*SCENARIOS[:2], SCENARIOS[4], SCENARIOS[-1])
)


@dataclass(frozen=True, slots=True)
class CategoryTrends:
    """Counts of days; what happens is between the first and the second value."""

    name: str
    metric: Metric
    shares: FloatArray
    # other clients every day, the same ones always, or the same but for others from day 8 on
    clients: str = "new"
    what: Happening = Happening(taker=1)
    n: int = 10_000
    work = 0.1

    def draw(self, rng: np.random.Generator) -> dict[dt.date, CohortCounts]:
        """Draw the counts of each day."""
        params, n_values = self.metric.params, len(self.shares)
        by_day, shares = {}, self.what.of_each_day(self.shares)
        permanent: BoolArray = np.zeros(0, dtype=np.bool_)
        for day, size in enumerate(sizes(self.n, rng, self.what.n_days)):
            is_other = self.clients == "others" and day == N_DAYS // 2
            if self.clients == "new" or day == 0 or is_other:
                count = int(size) if self.clients == "new" else self.n
                held = rng.choice(n_values, size=count, p=shares[day])
                true = np.zeros((count, params.k), dtype=np.bool_)
                if self.metric.type.width == 1:
                    true[:, 0] = held == 1
                else:
                    true[np.arange(count), held] = True
                permanent = permanent_bits(true, params, rng)
            chance = np.where(permanent, params.q, params.p)
            ones = (rng.random(chance.shape) < chance).sum(axis=0)
            counts = CohortCounts(np.array([len(permanent)]), ones[None, :])
            by_day[FIRST + dt.timedelta(days=day)] = counts
        return by_day

    def run(self, number: int) -> MarkedChanges:
        by_day = self.draw(np.random.default_rng([8, number]))
        trends = decode_category_days(by_day, self.metric)
        return judge_changes(trends, range(len(self.shares)), self.shares, self.what)


ENUM = make_metric(
    metric_type=EnumType(tuple("abcdef")), params=make_params(8, 1, 1, f=0.5, p=0.25, q=0.75)
)
BOOLEAN = make_metric(metric_type=BooleanType(), params=ENUM.params)
_OF_BOTH = (
    (ENUM, np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])),
    (BOOLEAN, np.array([0.7, 0.3])),
)
CATEGORY_SCENARIOS = tuple(
    CategoryTrends(f"{metric.type.name}, {words}", metric, shares, clients, Happening(by, taker=1))
    for metric, shares in _OF_BOTH
    for words, clients, by in (
        ("other clients every day", "new", 0.0),
        ("the same clients every day", "same", 0.0),
        ("other clients from day 8 on", "others", 0.0),
        ("4 points between two values on day 10", "new", 0.04),
        ("6 points between two values on day 10", "new", 0.06),
    )
)
ONE_TIME_SCENARIOS = tuple(
    replace(each, name=f"one-time {each.name}", metric=each.metric._replace(mode="one-time"))
    for each in CATEGORY_SCENARIOS
    if each.clients == "new"
)
LONG_ONE_TIME_SCENARIOS = tuple(
    CategoryTrends(f"one-time enum, {words}", ENUM._replace(mode="one-time"),
                   _OF_BOTH[0][1], what=replace(what, taker=1))
    for words, what in OF_EIGHT_WEEKS.items()
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Month:
    """Four weeks of a yes-or-no question whose share doesn't change, but for weekends or one day.

    A mark is false unless it is a spike or stretch that holds the spike's day. What a standing
    report announces has a p-value below half of alpha over both series and 30 results.
    """

    name: str
    weekend: float = 0.0  # how much more of the share there is at weekends
    spike: float = 0.0  # added to the share of day 17
    n: int = 2_500
    work = 0.05

    def run(self, number: int) -> MonthMarks:
        rng, params = np.random.default_rng([9, number]), ONCE.params
        by_day = {}
        for day, size in enumerate(sizes(self.n, rng, 28)):
            share = 0.04 * (1 + self.weekend * (day % 7 >= 5)) + self.spike * (day == 16)
            true = rng.binomial(size, share)
            ones = np.zeros((1, params.k), dtype=np.int64)
            ones[0] = rng.binomial(size, params.p, params.k)
            ones[0, 0] = rng.binomial(true, params.q) + rng.binomial(size - true, params.p)
            by_day[FIRST + dt.timedelta(days=day)] = CohortCounts(np.array([size]), ones)
        changes = decode_category_days(by_day, ONCE).found.changes[1]
        false = [
            each
            for each in changes
            if not (self.spike and each.last is not None and each.day <= 16 <= each.last)
        ]
        announced = 0.05 / (2 * 2 * 30)
        return MonthMarks(
            false_mark=float(bool(false)),
            false_announced=float(any(each.p_value <= announced for each in false)),
            spike_found=float(len(false) < len(changes)) if self.spike else np.nan,
        )


class MonthMarks(NamedTuple):
    """What one month's trends marked, each 0 or 1; nan where there is no spike."""

    false_mark: float
    false_announced: float
    spike_found: float


ONCE = make_metric(
    metric_type=BooleanType(), params=make_params(8, 1, 1, f=0.0, p=0.25, q=0.75)
)._replace(mode="once", period_days=1)
MONTHS = Study(
    "Constant months: false marks, and those that would be announced",
    "Months of a yes-or-no question with a week's rhythm, and with a spike of one day.",
    lambda: (
        Month("nothing"),
        Month("60% more at weekends", weekend=0.6),
        Month("60% more at weekends, 15 points more on day 17", weekend=0.6, spike=0.15),
    ),
    {"what happens": lambda case, _: case.name, **means(*MonthMarks._fields)},
    runs=200,
)
_COLUMNS = {"what happens": lambda case, _: case.name, **means(*MarkedChanges._fields)}
STUDY = Study(
    "Trends: false marks, coverage, and changes that are found",
    "How often trends mark a change that isn't there, find one that is, and hold the truth.",
    lambda: (*SCENARIOS, *CATEGORY_SCENARIOS, *ONE_TIME_SCENARIOS),
    _COLUMNS,
    runs=100,
)
EIGHT = Study(
    "Trends of eight weeks: spikes, stretches, shifts and weekly patterns",
    "As `trends`, over eight weeks; a trial takes one second.",
    lambda: (*LONG_SCENARIOS, *LONG_ONE_TIME_SCENARIOS),
    _COLUMNS,
    runs=100,
)
WHOLE = Study(
    "Trends from whole reports",
    "As `trends`, from whole reports; a trial takes six seconds.",
    lambda: WHOLE_SCENARIOS,
    _COLUMNS,
    runs=16,
)
