"""Vectors of first days and choices, and histories of clients that report once a period."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from evaluation.reference import schedule
from evaluation.reference.account import Account, Json, prices
from evaluation.reference.histories import (
    BOOLEAN,
    COLOURS,
    ENUM,
    HOUR,
    START,
    History,
    Recording,
    at,
    daily,
    metric,
    periods,
    registry,
    turns,
)
from evaluation.reference.response_vectors import SECRETS, nine
from evaluation.reference.schedule import DAY

Rows = list[dict[str, Any]]

APPLICATION = "com.example.vectors"
NAMES = ("metric:homepage", "metric:crash", "group:crash")
UNARY = {"type": "enum", "categories": COLOURS, "p": 0.125, "q": 0.5}
SET = {"type": "enum", "categories": COLOURS, "response": "subset", "size": 1, "q": 0.75}
MEAN = {"type": "number", "low": 0, "high": 10, "cells": 8, "window": 4, "q": 0.7}
WORD = {"type": "string", "k": 32, "h": 1, "m": 64, "p": 0.125, "q": 0.5}
PERMANENT = {"type": "boolean", "f": 0.25}
UNARY_PRICE, SET_PRICE, MEAN_PRICE = (prices({**e, "mode": "once"})[0] for e in (UNARY, SET, MEAN))


def first_days() -> Rows:
    return [
        {
            "secret": secret.hex(),
            "application": APPLICATION,
            "name": name,
            "period_days": days,
            "period": number,
            "message": schedule.day_message(secret, APPLICATION, name, number).hex(),
            "first_day": schedule.first_day(secret, APPLICATION, name, days, number),
        }
        for secret in SECRETS
        for name in NAMES
        for days in (1, 2, 7, 30, 365, 3650)
        for number in (0, 666, 667)
    ]


def choices() -> Rows:
    rows: Rows = []
    for secret in SECRETS:
        for names in (
            ["crash", "homepage"],
            ["homepage", "crash", "tabs"],
            ["b", "a", "ab", "a-b"],
        ):
            for choice, number in (("life", 0), ("period", 0), ("period", 666), ("period", 2**33)):
                group = {"metrics": names, "choice": choice}
                rows.append(
                    {
                        "secret": secret.hex(),
                        "application": APPLICATION,
                        "group": "mood",
                        **group,
                        "period": number,
                        "chosen": schedule.choice(secret, APPLICATION, "mood", group, number),
                    }
                )
    return rows


def once_metric(of_type: Json, days: int = 10, version: int = 1, **own: Any) -> Json:
    return metric(of_type, version, mode="once", period_days=days, **own)


def first(secret: bytes, i: int = 0, name: str = "metric:crash", days: int = 10) -> int:
    """Return when a client's period i of those after the start begins, in seconds after it."""
    number = START // DAY // days + i
    return schedule.first_day(secret, APPLICATION, name, days, number) * DAY - START


def client_with(name: str, day: int, days: int = 10, **wanted: Any) -> bytes:
    """Return the first numbered client that begins on a day, and has a choice if one is wanted."""
    secrets = (hashlib.sha256(f"client {i}".encode()).digest() for i in itertools.count())
    return next(
        secret
        for secret in secrets
        if first(secret, 0, name, days) == day * DAY and _chooses(secret, **wanted)
    )


def _chooses(secret: bytes, group: str = "", metrics: Json | None = None, own: str = "") -> bool:
    return not group or schedule.choice(secret, APPLICATION, group, metrics or {}, 0) == own


def grouped(rules: Json, **groups: Json) -> Json:
    return {**rules, "groups": groups}


def of_client(
    name: str, secret: bytes, rules: Json, *recordings: list[Recording]
) -> tuple[bytes, History]:
    return secret, History(name, [(rules, list(itertools.chain(*recordings)))])


CRASH, MOOD = "metric:crash", "group:mood"
PAIR = {"metrics": ["crash", "page"]}
BY_PERIOD = {**PAIR, "choice": "period"}


def _periods() -> list[tuple[bytes, History]]:
    once = registry(crash=once_metric(UNARY))
    at_once, waits = client_with(CRASH, 0), client_with(CRASH, 3)
    second, third, fourth = (first(at_once, i) for i in (1, 2, 3))
    begin, later = first(waits), first(waits, 1)
    return [
        of_client(
            "a client that comes on the first day of a period reports at once, and once a period",
            at_once,
            once,
            at("crash", "red", 0, HOUR, DAY, second - 1),
            at("crash", "blue", second, third - 1, third + HOUR, fourth - 1),
            at("crash", "red", *(first(at_once, i) + shift for i in (7, 9) for shift in (-1, 0))),
        ),
        of_client(
            "a client that comes in the last second of that day reports at once, too",
            at_once,
            once,
            at("crash", "red", DAY - 1, DAY),
        ),
        of_client(
            "a client that comes a second after that day waits for the next period",
            at_once,
            once,
            at("crash", "red", DAY, 2 * DAY, second - 1, second),
        ),
        of_client(
            "each client has first days of its own: this one begins three days later",
            waits,
            once,
            at("crash", "red", 0, begin - 1, begin, later - 1, later),
        ),
        of_client(
            "a client that waited reports whenever the next recording comes",
            waits,
            once,
            at("crash", "red", DAY, begin + 2 * DAY, later - 1, later + DAY),
        ),
        of_client(
            "a period of a day never waits, and max_periods ends it",
            SECRETS[0],
            registry(crash=once_metric(SET, 1, max_periods=3)),
            daily("crash", "red", "red", "green", "blue", "red"),
            at("crash", "red", 9 * DAY),
        ),
        of_client(
            "each metric has first days of its own, and each response one report a period",
            SECRETS[1],
            registry(
                crash=once_metric(SET, 3),
                wait=once_metric(MEAN, 3),
                page=once_metric(WORD, 3),
                dark=once_metric(PERMANENT, 3),
            ),
            turns(
                daily("crash", *["red"] * 9),
                daily("wait", *[2.5] * 9),
                daily("page", *["example.com"] * 9),
                daily("dark", *[True] * 9),
            ),
        ),
        of_client(
            "a clock that goes back by an hour over the beginning of a period",
            waits,
            once,
            at("crash", "red", begin - HOUR, begin + HOUR, begin - HOUR, begin, later + HOUR),
        ),
        of_client(
            "a clock that begins years ago at every start costs no report",
            at_once,
            once,
            at("crash", "red", 0, -5000 * DAY, HOUR, -5000 * DAY + HOUR, DAY, second),
        ),
        of_client(
            "a clock that stays behind is gone by after the length of a period",
            at_once,
            once,
            at("crash", "red", 0, -40 * DAY, -35 * DAY, -30 * DAY - 1, -30 * DAY, -21 * DAY),
            at("crash", "red", -20 * DAY, 0),
        ),
        of_client(
            "a reading in the reported period forgets that the clock was behind",
            at_once,
            once,
            at("crash", "red", 0, -15 * DAY, HOUR, -5 * DAY, -6 * DAY, second),
        ),
        of_client(
            "a clock that goes back while a client waits",
            waits,
            once,
            at("crash", "red", 0, -25 * DAY, -16 * DAY, -15 * DAY, begin),
        ),
        of_client(
            "all periods are reserved, and the budget ends them",
            SECRETS[0],
            registry(UNARY_PRICE * 2.5, crash=once_metric(UNARY, 1, max_periods=9)),
            daily("crash", "red", "green", "red", "red"),
        ),
        of_client(
            "changes of another metric have what the periods leave",
            SECRETS[0],
            registry(
                3 * SET_PRICE + 2 * prices(ENUM)[0],
                crash=once_metric(SET, 1, max_periods=3),
                theme=metric(ENUM),
            ),
            daily("theme", "red", "green", "blue"),
            daily("crash", "red", "green", "red", "blue"),
        ),
    ]


def _groups() -> list[tuple[bytes, History]]:
    of_life = registry(crash=once_metric(SET, 1), page=once_metric(MEAN, 1))
    crash = client_with(MOOD, 0, 1, group="mood", metrics=PAIR, own="crash")
    page = client_with(MOOD, 0, 1, group="mood", metrics=PAIR, own="page")
    both = turns(daily("crash", "red", "blue", "red"), daily("page", 1, 2, 3))
    weekly = registry(crash=once_metric(SET, 2), page=once_metric(MEAN, 2))
    short = registry(
        crash=once_metric(SET, 2, max_periods=3), page=once_metric(MEAN, 2, max_periods=3)
    )
    lasting = registry(theme=metric(ENUM), dark=metric(BOOLEAN), tabs=metric(ENUM))
    three = {"metrics": ["theme", "dark", "tabs"]}
    theme = client_with(MOOD, 0, 1, group="mood", metrics=three, own="theme")
    return [
        of_client("a client has one metric of a group", crash, grouped(of_life, mood=PAIR), both),
        of_client("and another one the other", page, grouped(of_life, mood=PAIR), both),
        of_client(
            "a group has one first day, and may choose for each period",
            client_with(MOOD, 0, 2),
            grouped(weekly, mood=BY_PERIOD),
            turns(daily("crash", *["red"] * 30), daily("page", *[5] * 30)),
        ),
        of_client(
            "metrics of a group that chooses for each period share max_periods",
            client_with(MOOD, 0, 2),
            grouped(short, mood=BY_PERIOD),
            turns(daily("crash", *["red"] * 30), daily("page", *[5] * 30)),
        ),
        of_client(
            "a clock that goes back to periods in which a client has another choice finds the "
            "group answered",
            client_with(MOOD, 0, 2),
            grouped(weekly, mood=BY_PERIOD),
            turns(daily("crash", *["red"] * 8), daily("page", *[5] * 8)),
            turns(
                at("crash", "red", *(day * DAY for day in (-8, -7, -6, -5, 0, 2, 9, 10))),
                at("page", 5, *(day * DAY for day in (-8, -7, -6, -5, 0, 2, 9, 10))),
            ),
        ),
        of_client(
            "waiting with one metric of a group is waiting with all, if it chooses for periods",
            client_with(MOOD, 1, 2),
            grouped(weekly, mood=BY_PERIOD),
            turns(daily("crash", *["red"] * 12), daily("page", *[5] * 12)),
        ),
        of_client(
            "metrics with permanent responses may be a group, too",
            theme,
            grouped(lasting, mood=three),
            turns(
                daily("theme", "red", "red", "blue"),
                daily("dark", True, False, True),
                daily("tabs", "red", "green", "blue"),
            ),
        ),
        of_client(
            "a group reserves what its dearest metric costs",
            theme,
            grouped({**lasting, "lifetime_epsilon": prices(ENUM)[0] * 2}, mood=three),
            daily("theme", "red", "green", "blue", "red"),
        ),
    ]


def _updates() -> list[tuple[bytes, History]]:
    waits = client_with(CRASH, 3)
    begin, second, third = (first(waits, i) for i in range(3))
    single = registry(crash=once_metric(SET, 1), page=once_metric(MEAN, 1))
    crash = client_with(MOOD, 0, 1, group="mood", metrics=PAIR, own="crash")
    page = client_with(MOOD, 0, 1, group="mood", metrics=PAIR, own="page")
    day = [*at("crash", "red", 0), *at("page", 1, 0)]
    later = [*at("crash", "red", DAY), *at("page", 1, DAY)]
    return [
        (
            waits,
            History(
                "a new version doesn't report again in a period; the next begins on the same day",
                [
                    (registry(crash=once_metric(SET)), at("crash", "red", begin, begin + HOUR)),
                    (
                        registry(crash=once_metric(SET, version=2)),
                        at("crash", "red", begin + DAY, second - 1, second, third - 1, third),
                    ),
                ],
            ),
        ),
        (
            waits,
            History(
                "a version that moves to mode once waits until the calendar's period is over",
                [
                    (registry(crash=periods(BOOLEAN, 10)), at("crash", True, begin)),
                    (
                        registry(crash=once_metric(SET, version=2)),
                        at("crash", "red", begin + DAY, 10 * DAY, second - 1, second),
                    ),
                    (
                        registry(crash=periods(BOOLEAN, 10, version=3)),
                        at("crash", True, second + DAY, 20 * DAY, third - 1, third, 30 * DAY),
                    ),
                ],
            ),
        ),
        (
            waits,
            History(
                "another length of the period is another calendar, and max_periods is one",
                [
                    (
                        registry(crash=once_metric(SET, max_periods=3)),
                        at("crash", "red", begin, begin + HOUR),
                    ),
                    (
                        registry(crash=once_metric(SET, 1, 2, max_periods=3)),
                        daily("crash", *["red"] * 12, first_day=4),
                    ),
                    (
                        registry(crash=once_metric(SET, 3, 3, max_periods=4)),
                        daily("crash", *["red"] * 12, first_day=16),
                    ),
                ],
            ),
        ),
        (
            waits,
            History(
                "a metric that joins a group brings along the period that it answered",
                [
                    (registry(crash=once_metric(SET)), at("crash", "red", begin)),
                    (
                        grouped(
                            registry(crash=once_metric(SET, version=2), page=once_metric(MEAN)),
                            mood=BY_PERIOD,
                        ),
                        turns(
                            daily("crash", *["red"] * 30, first_day=3),
                            daily("page", *[5] * 30, first_day=3),
                        ),
                    ),
                ],
            ),
        ),
        (
            waits,
            History(
                "a metric that changed before its first report isn't refused",
                [
                    (registry(crash=once_metric(SET)), at("crash", "red", 0)),
                    (registry(crash=once_metric({**SET, "q": 0.5})), at("crash", "red", begin)),
                    (registry(crash=once_metric(SET)), at("crash", "red", second)),
                ],
            ),
        ),
        (
            page,
            History(
                "a client that answered one metric answers no other of the group that it joins",
                [
                    (single, at("crash", "red", 0)),
                    (grouped(single, mood=PAIR), later),
                ],
            ),
        ),
        (
            crash,
            History(
                "a client that answered the metric of its choice goes on",
                [
                    (single, at("crash", "red", 0)),
                    (grouped(single, mood=PAIR), later),
                ],
            ),
        ),
        (
            crash,
            History(
                "a client that answered both before they were a group answers none of them",
                [(single, day), (grouped(single, mood=PAIR), later)],
            ),
        ),
        (
            crash,
            History(
                "what a group's former metric was paid for is still owed",
                [
                    (grouped({**single, "lifetime_epsilon": 200 * SET_PRICE}, mood=PAIR), day),
                    (
                        registry(SET_PRICE + 1.5 * prices(ENUM)[0], theme=metric(ENUM)),
                        daily("theme", "red", "green", first_day=1),
                    ),
                ],
            ),
        ),
    ]


def once() -> Rows:
    """Give recordings of clients with given secrets, and what becomes of each."""
    rows: Rows = []
    for secret, history in (*_periods(), *_groups(), *_updates()):
        account = Account(history.steps[0][0], secret)
        steps = []
        for rules, recordings in history.steps:
            account.registry = rules
            played = []
            for recording in recordings:
                result, answer = account.record(*recording)
                played.append(recording._asdict() | {"result": result, "answer": answer})
            steps.append({"registry": rules, "recordings": played})
        rows.append(
            {
                "name": history.name,
                "secret": secret.hex(),
                "steps": steps,
                "committed": nine(account.committed),
                "spent": nine(account.spent),
            }
        )
    return rows
