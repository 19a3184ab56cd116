"""Entries and registries of which an account's histories are made."""

from __future__ import annotations

from typing import Any

from evaluation.reference.account import Json, prices
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
ENUM_PRICE, BOOLEAN_PRICE = prices(ENUM)[0], prices(BOOLEAN)[0]


def metric(of_type: Json, version: int = 1, **own: Any) -> Json:
    return {"version": version, **EXPECTED, **of_type, **own}


def periods(of_type: Json, days: int, most: int | None = None, version: int = 1) -> Json:
    cap = {} if most is None else {"max_periods": most}
    return metric(of_type, version, memory="period", period_days=days, **cap)


def registry(lifetime_epsilon: float | None = None, **metrics: Json) -> Json:
    budget = {} if lifetime_epsilon is None else {"lifetime_epsilon": lifetime_epsilon}
    return {"application": "com.example.vectors", **budget, "metrics": metrics}
