"""How often trends mark a change that isn't there, find one that is, and hold the truth.

Two weeks (four in one case) of strings and of categories, whose clients are others every day, the
same, or others from some day on, and whose shares change or don't (docs/trends.md).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import NamedTuple, TypeVar

import numpy as np

from evaluation.studies.study import Study, means
from factories import make_metric, make_params
from hubbub.decoder import CohortCounts, Decoding, count_records, decode
from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.candidates import bit_positions, hashed
from hubbub.inference.likelihood.decoding import decode_reports
from hubbub.inference.packed import pack
from hubbub.inference.trends.categories import decode_category_days
from hubbub.inference.trends.decoding import Trends, decode_days
from hubbub.inference.trends.whole_reports import decode_whole_days
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.simulations.simulated_clients.clients import as_records

PARAMS = make_params(k=32, h=2, m=8, f=0.5, p=0.25, q=0.75)
VALUES = tuple(f"value {i}" for i in range(18))
ABSENT = tuple(f"absent {i}" for i in range(20))
ALL_LISTED = (*VALUES, *ABSENT)
TWO_THIRDS_LISTED = (*VALUES[:12], *ABSENT)
SHARES = np.array([0.16, 0.12, 0.1, 0.08, *[0.06] * 4, *[0.04] * 4, *[0.024] * 6])
SHARES = SHARES / SHARES.sum()
FIRST = dt.date(2026, 11, 1)
N_DAYS = 14
CHANGED = 9
"""The day from which on shares are others, counted from 0."""
FILTERS: BoolArray = np.zeros((len(VALUES), PARAMS.m, PARAMS.k), dtype=np.bool_)
np.put_along_axis(FILTERS, bit_positions(VALUES, PARAMS).astype(np.int64), values=True, axis=2)


class MarkedChanges(NamedTuple):
    """What one trial's trends said; nan where there is nothing to find.

    Attributes
    ----------
    any_false : float
        Whether a steady series was marked.
    false_share : float
        Of the marked series.
    coverage : float
        Of the days' 95% intervals of what stays the same.
    found, about_the_day : float
        Share of the changed ones that were marked, and of these, first within a day.
    more : float
        Further marks on them.
    """

    any_false: float
    false_share: float
    coverage: float
    found: float
    about_the_day: float
    more: float


Series = TypeVar("Series", str, int)


def judge_changes(
    changes: Mapping[Series, Sequence[int]], moved: AbstractSet[Series], inside: BoolArray
) -> MarkedChanges:
    """Compare marks with the truth.

    Parameters
    ----------
    changes : mapping
        The days of each series' marks, if it has any.
    moved : set
        Series that did change, on day `CHANGED`.
    inside : bool array
        Which intervals of the others hold the truth.
    """
    false = changes.keys() - moved
    found = [series in changes for series in moved]
    near = [abs(changes[series][0] - CHANGED) <= 1 for series in moved & changes.keys()]
    return MarkedChanges(
        any_false=float(bool(false)),
        false_share=len(false) / max(len(changes), 1),
        coverage=float(inside.mean()) if inside.size else np.nan,
        found=float(np.mean(found)) if found else np.nan,
        about_the_day=float(np.mean(near)) if near else np.nan,
        more=sum(len(changes[series]) - 1 for series in moved & changes.keys()),
    )


def permanent_bits(true: BoolArray, params: RapporParams, rng: np.random.Generator) -> BoolArray:
    """Draw the permanent responses to true bits."""
    coins, half = rng.random(true.shape), params.f / 2
    return np.where(true, coins < 1 - half, coins < half)


def sizes(n: int, rng: np.random.Generator) -> IntArray:
    """Return unequal days: weekends have half as many reports, and all vary."""
    week = np.where(np.arange(N_DAYS) % 7 < 5, 1.0, 0.5)
    return np.asarray((n * week * rng.uniform(0.8, 1.2, N_DAYS)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class People:
    """Clients with what stays the same for life: cohort, value, permanent response."""

    held: IntArray
    cohorts: IntArray
    permanent: BoolArray

    @classmethod
    def drawn(cls, n: int, shares: FloatArray, rng: np.random.Generator) -> People:
        """Draw so many."""
        held = rng.choice(len(shares), size=n, p=shares)
        cohorts = rng.integers(PARAMS.m, size=n)
        return cls(held, cohorts, permanent_bits(FILTERS[held, cohorts], PARAMS, rng))

    def some(self, which: IntArray) -> People:
        """Return some of them."""
        return People(self.held[which], self.cohorts[which], self.permanent[which])

    def report(self, rng: np.random.Generator) -> bytes:
        """Return a day's records."""
        chance = np.where(self.permanent, PARAMS.q, PARAMS.p)
        bits = rng.random(chance.shape, dtype=np.float32) < chance
        return as_records(self.cohorts, np.packbits(bits, axis=1, bitorder="little"))


Day = Callable[[np.random.Generator], list[bytes]]
"""Draws the records of each day."""


def new_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    return [People.drawn(int(size), SHARES, rng).report(rng) for size in sizes(n, rng)]


def same_clients_every_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    everybody = People.drawn(n, SHARES, rng)
    return [everybody.report(rng) for _ in range(N_DAYS)]


def half_the_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    everybody = People.drawn(2 * n, SHARES, rng)
    return [everybody.some(rng.permutation(2 * n)[:size]).report(rng) for size in sizes(n, rng)]


def other_clients_half_way(rng: np.random.Generator, n_days: int, n: int = 10_000) -> list[bytes]:
    """Draw days of which the first and the second half have clients of their own."""
    halves = [People.drawn(n, SHARES, rng), People.drawn(n, SHARES, rng)]
    return [halves[2 * day // n_days].report(rng) for day in range(n_days)]


def one_step(
    rng: np.random.Generator, by: float, giver: int = 0, taker: int = 4, n: int = 10_000
) -> list[bytes]:
    """Draw days on the last five of which one string has given so much to another."""
    moved = SHARES.copy()
    moved[[giver, taker]] += np.array([-by, by])
    shares = [SHARES] * CHANGED + [moved] * (N_DAYS - CHANGED)
    drawn = zip(sizes(n, rng), shares, strict=True)
    return [People.drawn(int(size), each, rng).report(rng) for size, each in drawn]


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
    """What happens, which strings are listed, and whose shares change."""

    name: str
    draw: Day
    candidates: tuple[str, ...] = ALL_LISTED
    changed: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def work(self) -> float:
        """About how long a trial takes, in seconds."""
        return 6.0 if self.whole else 0.3

    def run(self, number: int) -> MarkedChanges:
        """Draw the days of a trial, and judge what is marked."""
        days = self.draw(np.random.default_rng([7, number]))
        trends = trends_of(days, self.candidates, whole=self.whole)
        names = ("", *trends.followed)
        marked = zip(names, trends.changes, strict=True)
        steady = [i for i, name in enumerate(names) if name in VALUES and name not in self.changed]
        truth = [SHARES[VALUES.index(names[column])] for column in steady]
        inside = (trends.low[:, steady] <= truth) & (truth <= trends.high[:, steady])
        changes = {name: [each.day for each in cuts] for name, cuts in marked if cuts}
        return judge_changes(changes, self.changed, inside)


SCENARIOS = (
    StringTrends("other clients every day", new_clients_each_day),
    StringTrends("other clients every day, a third of the strings not listed",
                 new_clients_each_day, TWO_THIRDS_LISTED),
    StringTrends("the same clients every day", same_clients_every_day),
    StringTrends("half of the clients, drawn each day", half_the_clients_each_day),
    StringTrends("other clients from day 8 on", partial(other_clients_half_way, n_days=14)),
    StringTrends("28 days, other clients from day 15 on",
                 partial(other_clients_half_way, n_days=28)),
    StringTrends("2 points between unlisted strings on day 10",
                 partial(one_step, by=0.02, giver=12, taker=17), TWO_THIRDS_LISTED),
    *(StringTrends(f"{100 * by:g} points between two strings on day 10", partial(one_step, by=by),
                   changed=frozenset({VALUES[0], VALUES[4]})) for by in (0.02, 0.04, 0.06)),
)  # fmt: skip
WHOLE_SCENARIOS = tuple(
    replace(each, name=f"whole reports, {each.name}", whole=True)
    for each in (*SCENARIOS[:2], SCENARIOS[4], SCENARIOS[-1])
)


@dataclass(frozen=True, slots=True)
class CategoryTrends:
    """Two weeks of counts; `step` goes from the first to the second value on day 10.

    Attributes
    ----------
    clients : "new", "same" or "others"
        Other clients every day, the same ones always, or the same but for others from day 8 on.
    """

    name: str
    metric: Metric
    shares: FloatArray
    clients: str = "new"
    step: float = 0.0
    n: int = 10_000
    work = 0.1

    def draw(self, rng: np.random.Generator) -> dict[dt.date, CohortCounts]:
        """Draw the counts of each day."""
        params, n_values = self.metric.params, len(self.shares)
        by_day = {}
        permanent: BoolArray = np.zeros(0, dtype=np.bool_)
        for day, size in enumerate(sizes(self.n, rng)):
            is_other = self.clients == "others" and day == N_DAYS // 2
            if self.clients == "new" or day == 0 or is_other:
                count = int(size) if self.clients == "new" else self.n
                step = self.step * (day >= CHANGED)
                today = self.shares + step * (np.eye(n_values)[1] - np.eye(n_values)[0])
                held = rng.choice(n_values, size=count, p=today)
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
        """Draw the days of a trial, and judge what is marked."""
        by_day = self.draw(np.random.default_rng([8, number]))
        trends = decode_category_days(by_day, self.metric)
        moved = frozenset({0, 1} if self.step else ())
        steady = [column for column in range(len(self.shares)) if column not in moved]
        truth = self.shares[steady]
        inside = (trends.low[:, steady] <= truth) & (truth <= trends.high[:, steady])
        marked = enumerate(trends.changes)
        changes = {column: [each.day for each in cuts] for column, cuts in marked if cuts}
        return judge_changes(changes, moved, inside)


ENUM = make_metric(
    metric_type=EnumType(tuple("abcdef")), params=make_params(8, 1, 1, f=0.5, p=0.25, q=0.75)
)
BOOLEAN = make_metric(metric_type=BooleanType(), params=ENUM.params)
_OF_BOTH = (
    (ENUM, np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])),
    (BOOLEAN, np.array([0.7, 0.3])),
)
_NEW, _STEP_4, _STEP_6 = (
    ("other clients every day", "new", 0.0),
    ("4 points between two values on day 10", "new", 0.04),
    ("6 points between two values on day 10", "new", 0.06),
)
CATEGORY_SCENARIOS = tuple(
    CategoryTrends(f"{metric.type.name}, {what}", metric, shares, clients, step)
    for metric, shares in _OF_BOTH
    for what, clients, step in (
        _NEW,
        ("the same clients every day", "same", 0.0),
        ("other clients from day 8 on", "others", 0.0),
        _STEP_4,
        _STEP_6,
    )
)
ONE_TIME_SCENARIOS = tuple(
    replace(each, name=f"one-time {each.name}", metric=each.metric._replace(mode="one-time"))
    for each in CATEGORY_SCENARIOS
    if each.clients == "new"
)
_COLUMNS = {"what happens": lambda case, _: case.name, **means(*MarkedChanges._fields)}
STUDY = Study(
    "Trends: false marks, coverage, and changes that are found",
    "How often trends mark a change that isn't there, find one that is, and hold the truth.",
    lambda: (*SCENARIOS, *CATEGORY_SCENARIOS, *ONE_TIME_SCENARIOS),
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
