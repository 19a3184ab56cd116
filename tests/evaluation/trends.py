"""How often trends mark a change that isn't there, find one that is, and hold the truth.

`python -m evaluation.trends RUNS` prints the table of docs/trends.md.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from factories import make_params
from hubbub.decoder import CohortCounts
from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.decoder.candidates.listing import bit_positions
from hubbub.decoder.trends.decoding import Trends, decode_days

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


def reports(of: People, rng: np.random.Generator) -> CohortCounts:
    chance = np.where(of.permanent, PARAMS.q, PARAMS.p)
    bits = rng.random(chance.shape, dtype=np.float32) < chance
    counts = np.zeros((PARAMS.m, PARAMS.k), dtype=np.int64)
    for cohort in range(PARAMS.m):
        counts[cohort] = bits[of.cohorts == cohort].sum(axis=0)
    return CohortCounts(np.bincount(of.cohorts, minlength=PARAMS.m), counts)


def sizes(n: int, rng: np.random.Generator) -> IntArray:
    """Return unequal days: weekends have half as many reports, and all vary."""
    week = np.where(np.arange(N_DAYS) % 7 < 5, 1.0, 0.5)
    return np.asarray((n * week * rng.uniform(0.8, 1.2, N_DAYS)).astype(np.int64))


Day = Callable[[np.random.Generator], list[CohortCounts]]


def new_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[CohortCounts]:
    return [reports(people(int(size), SHARES, rng), rng) for size in sizes(n, rng)]


def same_clients_every_day(rng: np.random.Generator, n: int = 10_000) -> list[CohortCounts]:
    everybody = people(n, SHARES, rng)
    return [reports(everybody, rng) for _ in range(N_DAYS)]


def half_the_clients_each_day(rng: np.random.Generator, n: int = 10_000) -> list[CohortCounts]:
    everybody = people(2 * n, SHARES, rng)
    days = []
    for size in sizes(n, rng):
        who = rng.permutation(2 * n)[:size]
        there = People(everybody.held[who], everybody.cohorts[who], everybody.permanent[who])
        days.append(reports(there, rng))
    return days


def other_clients_half_way(n_days: int, n: int = 10_000) -> Day:
    """Return days of which the first and the second half have clients of their own."""

    def draw(rng: np.random.Generator) -> list[CohortCounts]:
        halves = [people(n, SHARES, rng), people(n, SHARES, rng)]
        return [reports(halves[2 * day // n_days], rng) for day in range(n_days)]

    return draw


def one_step(by: float, giver: int = 0, taker: int = 4, n: int = 10_000) -> Day:
    """Return days on the last five of which one string has given so much to another."""
    moved = SHARES.copy()
    moved[[giver, taker]] += np.array([-by, by])

    def draw(rng: np.random.Generator) -> list[CohortCounts]:
        shares = [SHARES] * 9 + [moved] * 5
        drawn = zip(sizes(n, rng), shares, strict=True)
        return [reports(people(int(size), each, rng), rng) for size, each in drawn]

    return draw


def trends_of(days: list[CohortCounts], candidates: tuple[str, ...] = ALL_LISTED) -> Trends:
    by_day = {FIRST + dt.timedelta(days=i): counts for i, counts in enumerate(days)}
    return decode_days(by_day, PARAMS, candidates)


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


def run(scenario: Scenario, seed: int) -> list[float]:
    """Return any alarm, any false one, share of false ones, coverage, found, right day."""
    trends = trends_of(scenario.draw(np.random.default_rng([7, seed])), scenario.candidates)
    names = ("", *trends.strings)
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


def main(runs: int) -> None:
    """Print a row a scenario: means and standard errors over runs."""
    for scenario in SCENARIOS:
        figures = np.array([run(scenario, seed) for seed in range(runs)])
        cells = []
        for values in figures.T:
            known = values[~np.isnan(values)]
            error = known.std() / np.sqrt(len(known)) if len(known) else 0.0
            cells.append(f"{known.mean():.3f} ± {error:.3f}" if len(known) else "")
        print("|", " | ".join([scenario.name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
