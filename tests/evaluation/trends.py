"""How often trends mark a change that isn't there, find one that is, and hold the truth.

`python -m evaluation.trends RUNS` prints the table of docs/trends.md.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

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
FILTERS: BoolArray = np.zeros((len(VALUES), PARAMS.m, PARAMS.k), dtype=np.bool_)
np.put_along_axis(FILTERS, bit_positions(VALUES, PARAMS).astype(np.int64), values=True, axis=2)


@dataclass
class People:
    """Clients with what stays the same for life: cohort, value, permanent response."""

    held: IntArray
    cohorts: IntArray
    permanent: BoolArray


def people(n: int, shares: FloatArray, rng: np.random.Generator) -> People:
    held = rng.choice(len(shares), size=n, p=shares)
    cohorts = rng.integers(PARAMS.m, size=n)
    true = FILTERS[held, cohorts]
    coins = rng.random(true.shape)
    half = PARAMS.f / 2
    return People(held, cohorts, np.where(true, coins < 1 - half, coins < half))


def reports(of: People, rng: np.random.Generator) -> bytes:
    """Return a day's records."""
    chance = np.where(of.permanent, PARAMS.q, PARAMS.p)
    bits = rng.random(chance.shape, dtype=np.float32) < chance
    return as_records(of.cohorts, np.packbits(bits, axis=1, bitorder="little"))


def sizes(n: int, rng: np.random.Generator) -> IntArray:
    """Return unequal days: weekends have half as many reports, and all vary."""
    week = np.where(np.arange(N_DAYS) % 7 < 5, 1.0, 0.5)
    return np.asarray((n * week * rng.uniform(0.8, 1.2, N_DAYS)).astype(np.int64))


Day = Callable[[np.random.Generator], list[bytes]]


def new_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    return [reports(people(int(size), SHARES, rng), rng) for size in sizes(n, rng)]


def same_clients_every_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    everybody = people(n, SHARES, rng)
    return [reports(everybody, rng) for _ in range(N_DAYS)]


def half_the_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[bytes]:
    everybody = people(2 * n, SHARES, rng)
    days = []
    for size in sizes(n, rng):
        who = rng.permutation(2 * n)[:size]
        there = People(everybody.held[who], everybody.cohorts[who], everybody.permanent[who])
        days.append(reports(there, rng))
    return days


def other_clients_half_way(n_days: int, n: int = 10_000) -> Day:
    """Return days of which the first and the second half have clients of their own."""

    def draw(rng: np.random.Generator) -> list[bytes]:
        halves = [people(n, SHARES, rng), people(n, SHARES, rng)]
        return [reports(halves[2 * day // n_days], rng) for day in range(n_days)]

    return draw


def one_step(by: float, giver: int = 0, taker: int = 4, n: int = 10_000) -> Day:
    """Return days on the last five of which one string has given so much to another."""
    moved = SHARES.copy()
    moved[[giver, taker]] += np.array([-by, by])

    def draw(rng: np.random.Generator) -> list[bytes]:
        shares = [SHARES] * 9 + [moved] * 5
        drawn = zip(sizes(n, rng), shares, strict=True)
        return [reports(people(int(size), each, rng), rng) for size, each in drawn]

    return draw


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


@dataclass
class Scenario:
    """What happens, which strings are listed, and whose shares change on day 10."""

    name: str
    draw: Day
    candidates: tuple[str, ...] = ALL_LISTED
    changed: tuple[str, ...] = ()


SCENARIOS = (
    Scenario("other clients every day", new_clients_each_day),
    Scenario("other clients every day, a third of the strings not listed", new_clients_each_day,
          TWO_THIRDS_LISTED),
    Scenario("the same clients every day", same_clients_every_day),
    Scenario("half of the clients, drawn each day", half_the_clients_each_day),
    Scenario("other clients from day 8 on", other_clients_half_way(14)),
    Scenario("28 days, other clients from day 15 on", other_clients_half_way(28)),
    Scenario("2 points between unlisted strings on day 10", one_step(0.02, 12, 17),
          TWO_THIRDS_LISTED),
    *(Scenario(f"{100 * by:g} points between two strings on day 10", one_step(by),
            changed=(VALUES[0], VALUES[4])) for by in (0.02, 0.04, 0.06)),
)  # fmt: skip


def run(scenario: Scenario, seed: int, *, whole: bool = False) -> list[float]:
    """Return any false alarm, share of false ones, coverage, found, right day, further marks."""
    days = scenario.draw(np.random.default_rng([7, seed]))
    trends = trends_of(days, scenario.candidates, whole=whole)
    names = ("", *trends.followed)
    cuts = {name: each for name, each in zip(names, trends.changes, strict=True) if each}
    false = [name for name in cuts if name not in scenario.changed]
    steady = [i for i, name in enumerate(names) if name in VALUES and name not in scenario.changed]
    truth = [SHARES[VALUES.index(names[column])] for column in steady]
    inside = (trends.low[:, steady] <= truth) & (truth <= trends.high[:, steady])
    found = [name in cuts for name in scenario.changed]
    near = [abs(cuts[name][0].day - 9) <= 1 for name in scenario.changed if name in cuts]
    return [
        float(bool(false)),
        len(false) / max(len(cuts), 1),
        float(inside.mean()),
        float(np.mean(found)) if found else np.nan,
        float(np.mean(near)) if near else np.nan,
        sum(len(each) - 1 for name, each in cuts.items() if name in scenario.changed),
    ]


ENUM = make_metric(
    metric_type=EnumType(tuple("abcdef")), params=make_params(8, 1, 1, f=0.5, p=0.25, q=0.75)
)
BOOLEAN = make_metric(metric_type=BooleanType(), params=ENUM.params)
ENUM_SHARES = np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])
BOOLEAN_SHARES = np.array([0.7, 0.3])


def category_days(
    metric: Metric, shares: FloatArray, rng: np.random.Generator, who: str, step: float, n: int
) -> dict[dt.date, CohortCounts]:
    """Return two weeks of counts; `step` goes from the first to the second value on day 10.

    Parameters
    ----------
    who : "new", "same" or "others"
        Other clients every day, the same ones always, or the same but for others from day 8 on.
    """
    params, width = metric.params, metric.type.width or 0
    by_day = {}
    permanent: BoolArray = np.zeros(0, dtype=np.bool_)
    for day, size in enumerate(sizes(n, rng)):
        if who == "new" or day == 0 or (who == "others" and day == 7):
            count = int(size) if who == "new" else n
            today = shares + step * (day >= 9) * np.eye(len(shares))[1]
            today = today - step * (day >= 9) * np.eye(len(shares))[0]
            held = rng.choice(len(shares), size=count, p=today)
            true = np.zeros((count, params.k), dtype=np.bool_)
            if width == 1:
                true[:, 0] = held == 1
            else:
                true[np.arange(count), held] = True
            coins, half = rng.random(true.shape), params.f / 2
            permanent = np.where(true, coins < 1 - half, coins < half)
        chance = np.where(permanent, params.q, params.p)
        ones = (rng.random(chance.shape) < chance).sum(axis=0)
        by_day[FIRST + dt.timedelta(days=day)] = CohortCounts(
            np.array([len(permanent)]), ones[None, :]
        )
    return by_day


class CategoryScenario(NamedTuple):
    """Whose values change on day 10: those of the first two, if `step` isn't 0."""

    name: str
    metric: Metric
    shares: FloatArray
    who: str = "new"
    step: float = 0.0


_NEW, _STEP_4, _STEP_6 = (
    ("other clients every day", "new", 0.0),
    ("4 points between two values on day 10", "new", 0.04),
    ("6 points between two values on day 10", "new", 0.06),
)
CATEGORY_SCENARIOS = tuple(
    CategoryScenario(f"{metric.type.name}, {what}", metric, shares, who, step)
    for metric, shares in ((ENUM, ENUM_SHARES), (BOOLEAN, BOOLEAN_SHARES))
    for what, who, step in (
        _NEW,
        ("the same clients every day", "same", 0.0),
        ("other clients from day 8 on", "others", 0.0),
        _STEP_4,
        _STEP_6,
    )
)
ONE_TIME_SCENARIOS = tuple(
    CategoryScenario(
        f"one-time {metric.type.name}, {what}", metric._replace(one_time=True), shares, who, step
    )
    for metric, shares in ((ENUM, ENUM_SHARES), (BOOLEAN, BOOLEAN_SHARES))
    for what, who, step in (_NEW, _STEP_4, _STEP_6)
)


def run_categories(scenario: CategoryScenario, seed: int, n: int = 10_000) -> list[float]:
    """Return the figures of `run`."""
    _, metric, shares, who, step = scenario
    by_day = category_days(metric, shares, np.random.default_rng([8, seed]), who, step, n)
    trends = decode_category_days(by_day, metric)
    moved = {0, 1} if step else set()
    cuts = {column: each for column, each in enumerate(trends.changes) if each}
    steady = [column for column in range(len(shares)) if column not in moved]
    false = [column for column in cuts if column not in moved]
    inside = (trends.low[:, steady] <= shares[steady]) & (shares[steady] <= trends.high[:, steady])
    near = [abs(cuts[column][0].day - 9) <= 1 for column in moved & cuts.keys()]
    return [
        float(bool(false)),
        len(false) / max(len(cuts), 1),
        float(inside.mean()) if steady else np.nan,
        float(np.mean([column in cuts for column in moved])) if moved else np.nan,
        float(np.mean(near)) if near else np.nan,
        sum(len(cuts[column]) - 1 for column in moved & cuts.keys()),
    ]


def main(runs: int) -> None:
    """Print a row a scenario: means and standard errors over runs."""
    figures = {each.name: [run(each, seed) for seed in range(runs)] for each in SCENARIOS}
    for each in (*SCENARIOS[:2], SCENARIOS[4], SCENARIOS[-1]):
        rows = [run(each, seed, whole=True) for seed in range(min(runs, 16))]  # 6 seconds each
        figures[f"whole reports, {each.name}"] = rows
    for other in (*CATEGORY_SCENARIOS, *ONE_TIME_SCENARIOS):
        figures[other.name] = [run_categories(other, seed) for seed in range(runs)]
    for name, rows in figures.items():
        cells = []
        for values in np.array(rows).T:
            known = values[~np.isnan(values)]
            error = known.std() / np.sqrt(len(known)) if len(known) else 0.0
            cells.append(f"{known.mean():.3f} ± {error:.3f}" if len(known) else "")
        print("|", " | ".join([name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
