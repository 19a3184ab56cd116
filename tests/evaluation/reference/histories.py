"""Recordings that pin down every rule of the account, and what becomes of them.

Values of one metric never share all true bits, so that different values are different answers.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from evaluation.reference.account import Account, Json, prices
from evaluation.reference.schedule import DAY

HOUR = 3600
START = 20_000 * DAY  # a multiple of 1, 2, 5 and 10 days
NOISE = {"f": 0.5, "p": 0.25, "q": 0.75}
EXPECTED = {
    "description": "What the vectors ask",
    "owner": "privacy@example.com",
    "expires": "2199-12-31",
}
COLOURS = ["red", "green", "blue", "white"]
ENUM = {"type": "enum", "categories": COLOURS, **NOISE}
BOOLEAN = {"type": "boolean", **NOISE}
STRING = {"type": "string", "k": 1024, "h": 2, "m": 4, **NOISE}
HOSTS = ["example.com", "example.org", "example.net"]
ENUM_PRICE, BOOLEAN_PRICE = prices(ENUM)[0], prices(BOOLEAN)[0]


class Recording(NamedTuple):
    """What an app records."""

    time: int
    metric: str
    value: Any


def metric(of_type: Json, version: int = 1, **own: Any) -> Json:
    return {"version": version, **EXPECTED, **of_type, **own}


def periods(of_type: Json, days: int, most: int | None = None, version: int = 1) -> Json:
    cap = {} if most is None else {"max_periods": most}
    return metric(of_type, version, memory="period", period_days=days, **cap)


def registry(lifetime_epsilon: float | None = None, **metrics: Json) -> Json:
    budget = {} if lifetime_epsilon is None else {"lifetime_epsilon": lifetime_epsilon}
    return {"application": "com.example.vectors", **budget, "metrics": metrics}


def daily(name: str, *values: Any, first_day: int = 0) -> list[Recording]:
    return [Recording(START + (first_day + i) * DAY, name, v) for i, v in enumerate(values)]


def at(name: str, value: Any, *seconds: int) -> list[Recording]:
    """Return recordings of one value, so long after (or before) the start."""
    return [Recording(START + offset, name, value) for offset in seconds]


def turns(*of_metrics: list[Recording]) -> list[Recording]:
    return [recording for turn in zip(*of_metrics, strict=True) for recording in turn]


class History(NamedTuple):
    """Recordings under registries that follow one another, as an app is updated."""

    name: str
    steps: list[tuple[Json, list[Recording]]]


def play(history: History) -> tuple[list[list[Json]], Account]:
    """Return each step's recordings with what becomes of them, and the account at the end."""
    account = Account(history.steps[0][0])
    rows: list[list[Json]] = []
    for rules, recordings in history.steps:
        account.registry = rules
        rows.append([])
        for recording in recordings:
            result, answer = account.record(*recording)
            rows[-1].append(recording._asdict() | {"result": result, "answer": answer})
    return rows, account


def _history(name: str, rules: Json, *recordings: list[Recording]) -> History:
    return History(name, [(rules, list(itertools.chain(*recordings)))])


def _values() -> list[History]:
    theme = registry(theme=metric(ENUM))
    return [
        _history(
            "each distinct value is an answer, and is paid for once",
            theme,
            daily("theme", "red", "green", "red", "blue", "green", "red", "red"),
        ),
        _history(
            "boolean, max_values = 1: the first value is reported for ever",
            registry(dark=metric(BOOLEAN, max_values=1)),
            daily("dark", True, False, False, True, False),
        ),
        _history(
            "enum, max_values = 2: in place of a third value stands the one admitted last, which "
            "isn't always the one reported last",
            registry(theme=metric(ENUM, max_values=2)),
            daily("theme", "red", "green", "blue", "red", "white", "green", "blue"),
        ),
        _history(
            "string, max_values = 2",
            registry(homepage=metric(STRING, max_values=2)),
            daily("homepage", HOSTS[0], HOSTS[0], HOSTS[1], HOSTS[2], HOSTS[0]),
        ),
        _history(
            "values have no clock: days that go back change nothing",
            registry(theme=metric(ENUM, max_values=2)),
            at("theme", "red", 0, -HOUR, -DAY),
            at("theme", "green", -400 * DAY, 0),
            at("theme", "blue", 5000 * DAY, -4000 * DAY),
        ),
        _history(
            "one-time metrics without a second and without a first response are reported once",
            registry(
                tabs=metric({**ENUM, "f": 0.0}, mode="one-time"),
                crashed=metric({"type": "boolean", "f": 0.25}, mode="one-time"),
                homepage=metric({**STRING, "p": 0.0, "q": 1.0}, mode="one-time"),
            ),
            turns(
                daily("tabs", "red", "red", "blue"),
                daily("crashed", False, True, False),
                daily("homepage", HOSTS[0], HOSTS[1], HOSTS[0]),
            ),
        ),
    ]


def _clocks() -> list[History]:
    mood = registry(mood=periods(ENUM, 10))
    length = 10 * DAY
    return [
        _history(
            "a period has one answer, from its first second to its last",
            mood,
            at("mood", "red", length - 1, length, length + 1, 2 * length - 1),
            at("mood", "green", 2 * length, 2 * length + DAY),
            at("mood", "red", 5 * length, 6 * length - 1),
        ),
        _history(
            "max_periods answers, however long the pauses",
            registry(mood=periods(BOOLEAN, 1, most=3)),
            at("mood", True, 0, HOUR, 7 * DAY),
            at("mood", False, 8 * DAY - 1, 400 * DAY),
            at("mood", True, 400 * DAY + 1, 401 * DAY, 402 * DAY, 4000 * DAY),
        ),
        _history(
            "a clock that goes back by an hour, within a period and over its beginning",
            mood,
            at("mood", "red", 2 * HOUR, HOUR),
            at("mood", "blue", -HOUR // 2, HOUR // 2, length + HOUR // 2, length - HOUR // 2),
            at("mood", "red", length + HOUR, 2 * length),
        ),
        _history(
            "a clock that is a day behind, where a period is a day: the answer stays until it has "
            "caught up",
            registry(mood=periods(ENUM, 1, most=4)),
            at("mood", "red", 0, -DAY, -HOUR, -1),
            at("mood", "blue", 0, HOUR),
            at("mood", "red", -DAY + HOUR, HOUR - 1, HOUR),
            at("mood", "green", DAY, 0, 12 * HOUR, DAY - 1),
        ),
        _history(
            "a clock that is several periods behind: less than a period's length after the first "
            "reading the answer stays, then the clock's period is answered",
            mood,
            at("mood", "red", 0),
            at("mood", "green", -35 * DAY, -30 * DAY, -25 * DAY - 1, -25 * DAY, -21 * DAY),
            at("mood", "blue", -20 * DAY, -10 * DAY, 0, length),
        ),
        _history(
            "a clock that is years ahead once",
            mood,
            at("mood", "red", 0, 3000 * DAY, HOUR, 9 * DAY, length, length + HOUR - 1),
            at("mood", "green", length + HOUR, 2 * length, 3000 * DAY, 2 * length),
        ),
        _history(
            "a clock that is years behind, then right again",
            mood,
            at("mood", "red", 0, -5000 * DAY, -4995 * DAY, 9 * DAY),
            at("mood", "green", -5000 * DAY, -4990 * DAY - 1, -4990 * DAY, 0, HOUR),
        ),
        _history(
            "a reading in the answer's period forgets that the clock was behind",
            mood,
            at("mood", "red", 0, -15 * DAY, -6 * DAY, HOUR),
            at("mood", "blue", -5 * DAY, -1, 2 * HOUR, -9 * DAY, -1),
        ),
        _history(
            "the earliest reading counts if the clock goes back further",
            mood,
            at("mood", "red", 0),
            at("mood", "blue", -15 * DAY, *[-400 * DAY] * 2, *[-390 * DAY] * 2),
            at("mood", "blue", -15 * DAY, -5 * DAY - 1),
            at("mood", "green", -5 * DAY, -1),
        ),
        _history(
            "answers that a wrong clock costs count against max_periods",
            registry(mood=periods(BOOLEAN, 10, most=3)),
            at("mood", True, 0, -35 * DAY, -26 * DAY, -25 * DAY, -20 * DAY, -10 * DAY, 0, 10 * DAY),
        ),
        _history(
            "each metric has periods of its own",
            registry(mood=periods(ENUM, 10), page=periods(STRING, 5), dark=periods(BOOLEAN, 1)),
            turns(
                at("mood", "red", 0, 3 * DAY, 5 * DAY, 10 * DAY),
                at("page", HOSTS[0], 0, 3 * DAY, 5 * DAY, 10 * DAY),
                at("dark", True, 0, 3 * DAY, 5 * DAY, 10 * DAY),
            ),
        ),
    ]


def _budgets() -> list[History]:
    two = {"dark": metric(BOOLEAN), "theme": metric(ENUM)}
    firsts = BOOLEAN_PRICE + ENUM_PRICE

    def theme_then_dark(name: str, budget: float) -> History:
        return _history(
            name,
            registry(budget, **two),
            daily("theme", "red", "green", "blue", "red", "green"),
            daily("dark", True, False, True, first_day=5),
        )

    return [
        theme_then_dark("room for first values only: changes are stale, each first fits", firsts),
        theme_then_dark("room for one change", firsts + ENUM_PRICE),
        theme_then_dark(
            "room for one change of the cheaper metric, after one of the dearer was stale",
            firsts + BOOLEAN_PRICE,
        ),
        theme_then_dark("room for a change of each", 2 * firsts),
        theme_then_dark("below the bound by 1e-10 of it is on it", firsts * (1 - 1e-10)),
        theme_then_dark("below the bound by 1e-8 of it is below", firsts * (1 - 1e-8)),
        _history(
            "a first value that isn't admitted is never reported, a cheaper metric's still fits",
            registry(
                ENUM_PRICE * 1.75, theme=metric(ENUM), accent=metric(ENUM), dark=metric(BOOLEAN)
            ),
            daily("theme", "red", "green"),
            daily("accent", "red", "blue", first_day=2),
            daily("dark", True, False, first_day=4),
            daily("accent", "red", first_day=6),
            daily("theme", "blue", "red", first_day=7),
        ),
        _history(
            "the reserve is larger than the budget: changes are stale from the start, periods are "
            "answered until it is used up",
            registry(ENUM_PRICE * 3.5, theme=metric(ENUM), mood=periods(ENUM, 1, most=10)),
            turns(
                daily("theme", "red", "green", "red", "blue"),
                daily("mood", "red", "green", "red", "blue"),
            ),
        ),
        _history(
            "all of max_periods are reserved, so changes before them cost no period",
            registry(
                3 * ENUM_PRICE + BOOLEAN_PRICE * 4, theme=metric(ENUM), mood=periods(BOOLEAN, 1, 4)
            ),
            daily("theme", "red", "green", "blue", "white", "red", "green"),
            daily("mood", True, False, True, False, True),
        ),
        _history(
            "the default of max_periods is 100, of which each is reserved",
            registry(101 * BOOLEAN_PRICE, dark=metric(BOOLEAN), mood=periods(BOOLEAN, 1)),
            daily("dark", True, False),
            daily("mood", True, False),
        ),
        _history(
            "a one-time report is reserved, at the price of a report",
            registry(
                ENUM_PRICE * 2 + prices({"type": "boolean", "f": 0.25})[1],
                theme=metric(ENUM),
                crashed=metric({"type": "boolean", "f": 0.25}, mode="one-time"),
            ),
            daily("theme", "red", "green", "blue"),
            daily("crashed", True, True, first_day=3),
        ),
    ]


HISTORIES = _values() + _clocks() + _budgets()


def _updates() -> list[History]:
    short = registry(mood=periods(ENUM, 10))
    cheap = {**ENUM, "f": 0.9}
    return [
        History(
            "a new version begins anew, and what the old one cost still counts",
            [
                (
                    registry(theme=metric(ENUM, max_values=2)),
                    daily("theme", "red", "green", "blue"),
                ),
                (
                    registry(theme=metric(ENUM, 2, max_values=2)),
                    daily("theme", "blue", "red", "white", first_day=3),
                ),
            ],
        ),
        History(
            "a one-time metric's new version is reported once more",
            [
                (
                    registry(tabs=metric({**ENUM, "f": 0.0}, version, mode="one-time")),
                    daily("tabs", "red", "blue"),
                )
                for version in (1, 2)
            ],
        ),
        History(
            "what was admitted first for a metric that is no longer registered is reserved; what "
            "was admitted for its changes isn't, but stays admitted",
            [
                (
                    registry(ENUM_PRICE * 5, theme=metric(ENUM)),
                    daily("theme", "red", "green", "blue"),
                ),
                (
                    registry(ENUM_PRICE * 5, accent=metric(ENUM)),
                    daily("accent", "red", "green", "blue", first_day=3),
                ),
            ],
        ),
        History(
            "beside what was admitted first for a metric that is no longer registered, the first "
            "value of each that is still has room",
            [
                (registry(ENUM_PRICE, theme=metric(ENUM)), daily("theme", "red")),
                (
                    registry(ENUM_PRICE * 3, accent=metric(ENUM), border=metric(ENUM)),
                    [
                        *daily("accent", "red", "green", first_day=1),
                        *daily("border", "red", "green", first_day=3),
                    ],
                ),
            ],
        ),
        History(
            "a first value needs room beside all that older versions cost",
            [
                (
                    registry(ENUM_PRICE * 2.5, theme=metric(ENUM, version)),
                    daily("theme", "red", "green"),
                )
                for version in (1, 2, 3)
            ],
        ),
        History(
            "a definition that changed under its version isn't reported until it is again what it "
            "was, at the price that was paid",
            [
                (registry(theme=metric(of_type)), daily("theme", "red", "green", first_day=day))
                for day, of_type in ((0, ENUM), (2, cheap), (4, ENUM))
            ],
        ),
        History(
            "a metric whose definition changed under its version counts as not registered",
            [
                (
                    registry(ENUM_PRICE * 3, theme=metric(ENUM), dark=metric(BOOLEAN)),
                    daily("theme", "red"),
                ),
                (
                    registry(ENUM_PRICE * 3, theme=metric(cheap), dark=metric(BOOLEAN)),
                    turns(daily("theme", "red", "blue"), daily("dark", True, False)),
                ),
            ],
        ),
        History(
            "other periods under the same version aren't reported",
            [
                (short, daily("mood", "red", "green")),
                (registry(mood=periods(ENUM, 5)), daily("mood", "red")),
                (registry(mood=metric(ENUM)), daily("mood", "red")),
                (registry(mood=periods(ENUM, 10, most=1)), daily("mood", "red")),
            ],
        ),
        History(
            "a new version doesn't answer once more in a period that was answered, nor does the "
            "old one after it",
            [
                (short, daily("mood", "red")),
                (
                    registry(mood=periods(ENUM, 10, version=2)),
                    at("mood", "red", DAY, 10 * DAY - 1, 10 * DAY),
                ),
                (short, at("mood", "blue", 11 * DAY, 20 * DAY)),
            ],
        ),
        History(
            "max_periods holds for all versions together",
            [
                (
                    registry(mood=periods(BOOLEAN, 1, most=2, version=version)),
                    daily("mood", True, False, first_day=2 * version),
                )
                for version in (1, 2, 3)
            ],
        ),
        History(
            "first values of versions without periods count against max_periods, changes don't",
            [
                (
                    registry(mood=metric(ENUM)),
                    daily("mood", "red", "green", "blue"),
                ),
                (
                    registry(mood=periods(ENUM, 1, most=2, version=2)),
                    daily("mood", "red", "red", "red", first_day=3),
                ),
                (
                    registry(mood=metric(ENUM, 3)),
                    daily("mood", "red", "green", first_day=6),
                ),
            ],
        ),
        History(
            "a version with longer periods answers none that shares a day with an answered one",
            [
                (registry(mood=periods(ENUM, 5)), at("mood", "red", 6 * DAY)),
                (
                    registry(mood=periods(ENUM, 20, version=2)),
                    at("mood", "red", 9 * DAY, 10 * DAY, 19 * DAY, 20 * DAY),
                ),
            ],
        ),
        History(
            "a version with shorter periods waits until the longer one is over",
            [
                (registry(mood=periods(ENUM, 20)), at("mood", "red", 0)),
                (
                    registry(mood=periods(ENUM, 5, version=2)),
                    at("mood", "red", 5 * DAY, 20 * DAY - 1, 20 * DAY, 24 * DAY, 25 * DAY),
                ),
            ],
        ),
        History(
            "caps and budgets may change under a version, and hold from then on",
            [
                (registry(theme=metric(ENUM, max_values=1)), daily("theme", "red", "green")),
                (registry(theme=metric(ENUM, max_values=3)), daily("theme", "blue", "green")),
                (
                    registry(ENUM_PRICE * 3, theme=metric(ENUM)),
                    daily("theme", "white", "red"),
                ),
                (
                    registry(ENUM_PRICE, theme=metric(ENUM), dark=metric(BOOLEAN)),
                    [*daily("theme", "white", "red"), *daily("dark", True)],
                ),
            ],
        ),
    ]


UPDATES = _updates()
