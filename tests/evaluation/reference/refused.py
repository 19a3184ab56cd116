"""Registries that clients must refuse, each for one mistake (sections 1, 10, 11 and 12)."""

from __future__ import annotations

from typing import Any

from evaluation.reference.histories import COLOURS, EXPECTED

Json = dict[str, Any]

_BASE = {"version": 1, **EXPECTED}
BOTH = {**_BASE, "type": "string", "k": 64, "h": 2, "m": 8, "f": 0.5, "p": 0.25, "q": 0.75}
ONCE = {
    **_BASE, "type": "enum", "categories": COLOURS, "mode": "once", "period_days": 7,
    "p": 0.125, "q": 0.5,
}  # fmt: skip
SUBSET = {
    **_BASE, "type": "enum", "categories": COLOURS, "mode": "once", "period_days": 7,
    "response": "subset", "size": 2, "q": 0.75,
}  # fmt: skip
NUMBER = {
    **_BASE, "type": "number", "mode": "once", "period_days": 7, "low": 0, "high": 10,
    "cells": 8, "window": 4, "q": 0.75,
}  # fmt: skip
ASYMMETRIC = {key: value for key, value in BOTH.items() if key != "f"} | {"f0": 0.125, "f1": 0.25}
HASHED = [
    {"name": "crash", "type": "enum", "categories": ["none", "oom"]},
    {"name": "driver", "type": "string"},
]
GROUP = {"metrics": ["a", "b"]}
_REMOVED = object()

# An entry, what is changed in it, and why that is wrong.
_ENTRIES: tuple[tuple[Json, Json, str], ...] = (
    (ONCE, {"mode": "twice"}, "another mode"),
    (ONCE, {"memory": "value"}, 'mode "once" with memory "value"'),
    (ONCE, {"period_days": _REMOVED}, 'mode "once" without period_days'),
    (ONCE, {"period_days": 0}, "a period of no day"),
    (ONCE, {"period_days": 3651}, "a period of more than ten years"),
    (ONCE, {"max_values": 3}, 'mode "once" with max_values'),
    (ONCE, {"max_periods": 0}, "no period"),
    (ONCE, {"f": 0.5}, 'mode "once" with both responses'),
    (ONCE, {"f": 0.0, "p": _REMOVED, "q": _REMOVED}, 'mode "once" without a response'),
    (ONCE, {"p": _REMOVED, "q": _REMOVED}, 'mode "once" without f, p and q'),
    (ONCE, {"p": _REMOVED}, 'mode "once" with q, without p'),
    (ONCE, {"p": 0.0}, "a reported 1 reveals a true 1"),
    (ONCE, {"f": 0.25, "p": 1, "q": 0}, "p = 1 and q = 0, beside f"),
    (BOTH, {"f": 0.0}, "a longitudinal metric without a permanent response"),
    (BOTH, {"mode": "one-time", "f": _REMOVED, "p": _REMOVED, "q": _REMOVED}, "one-time, no noise"),
    (BOTH, {"mode": "one-time", "f": _REMOVED, "p": _REMOVED}, "one-time with q, without p"),
    (BOTH, {"reports_per_day": 2}, "two reports a day"),
    (BOTH, {"reports_per_day": 0}, "no report a day"),
    (BOTH, {"reports_per_day": True}, "reports_per_day as a truth value"),
    (ONCE, {"reports_per_day": 1}, 'mode "once" with reports_per_day'),
    (BOTH, {"p": 0, "q": 1}, "a longitudinal metric without an instantaneous response"),
    (ASYMMETRIC, {"f": 0.5}, "f beside f0 and f1"),
    (ASYMMETRIC, {"f1": _REMOVED}, "f0 without f1"),
    (ASYMMETRIC, {"f0": _REMOVED}, "f1 without f0"),
    (ASYMMETRIC, {"f0": 0.75}, "f0 and f1 that add up to 1"),
    (ASYMMETRIC, {"f0": -0.125}, "a negative f0"),
    (ASYMMETRIC, {"f1": "0.25"}, "f1 as a text"),
    (ASYMMETRIC, {"f0": 0.0}, "a longitudinal metric whose permanent 1 reveals a true 1"),
    (ASYMMETRIC, {"f1": 0.0}, "a longitudinal metric whose permanent 0 reveals a true 0"),
    (ASYMMETRIC, {"f0": 0.0, "f1": 0.0}, "no permanent response, as f0 and f1"),
    (SUBSET, {"response": "window"}, "another response"),
    (SUBSET, {"response": "unary"}, "a size without a set"),
    (SUBSET, {"mode": _REMOVED, "period_days": _REMOVED}, "a longitudinal set"),
    (SUBSET, {"f": 0.0}, "f beside a set"),
    (SUBSET, {"f0": 0.0, "f1": 0.0}, "f0 and f1 beside a set"),
    (SUBSET, {"p": 0.5}, "p beside a set"),
    (SUBSET, {"q": _REMOVED}, "a set without q"),
    (SUBSET, {"size": _REMOVED}, "a set without a size"),
    (SUBSET, {"size": 0}, "an empty set"),
    (SUBSET, {"size": 4}, "a set of all categories"),
    (SUBSET, {"q": 0.5}, "a set that says nothing: q = size / categories"),
    (SUBSET, {"q": 0.25}, "a set that avoids one's own category"),
    (SUBSET, {"q": 1}, "a set that always has one's own category"),
    (
        SUBSET,
        {"type": "string", "categories": _REMOVED, "k": 64, "h": 1, "m": 1},
        "a set of a string's bits",
    ),
    (
        SUBSET,
        {"type": "joint", "categories": _REMOVED, "fields": HASHED, "k": 64, "m": 1},
        "a set of hashed bits",
    ),
    (SUBSET, {"type": "boolean", "categories": _REMOVED}, "a set of both of two values"),
    (NUMBER, {"mode": _REMOVED, "period_days": _REMOVED}, "a longitudinal number"),
    (NUMBER, {"response": "subset", "size": 1}, "a set of a number's cells"),
    (NUMBER, {"response": "unary"}, "a response of a number"),
    (NUMBER, {"f": 0.0}, "f beside a number"),
    (NUMBER, {"p": 0.25}, "p beside a number"),
    (NUMBER, {"q": _REMOVED}, "a number without q"),
    (NUMBER, {"q": 0.5}, "a number that says nothing: q = window / cells"),
    (NUMBER, {"q": 1}, "a number whose cell is always in its window"),
    (NUMBER, {"low": _REMOVED}, "a number without low"),
    (NUMBER, {"low": "0"}, "low as a text"),
    (NUMBER, {"low": True}, "low as a truth value"),
    (NUMBER, {"low": 10}, "low that isn't below high"),
    (NUMBER, {"low": -1e308, "high": 1e308}, "bounds whose distance isn't finite"),
    (NUMBER, {"cells": 1, "window": 1}, "a single cell"),
    (NUMBER, {"cells": 4097}, "more cells than bits"),
    (NUMBER, {"window": 0}, "a window of no cell"),
    (NUMBER, {"window": 8}, "a window of all cells"),
    (NUMBER, {"variance": 1}, "variance as a number"),
    (NUMBER, {"k": 8}, "k of a number"),
)
_GROUPS: tuple[tuple[Any, str], ...] = (
    (3, "groups that aren't tables"),
    ({"g": 3}, "a group that isn't a table"),
    ({"Mood": GROUP}, "a group's name with a capital letter"),
    ({"g": {}}, "a group without metrics"),
    ({"g": {"metrics": "a"}}, "a group's metrics as a text"),
    ({"g": {"metrics": ["a"]}}, "a group of one metric"),
    ({"g": {"metrics": ["a", "a"]}}, "a group with one metric twice"),
    ({"g": {"metrics": ["a", "unknown"]}}, "a group with a metric that isn't registered"),
    ({"g": GROUP, "h": {"metrics": ["b", "c"]}}, "a metric in two groups"),
    ({"g": {**GROUP, "size": 2}}, "a group with an unknown key"),
    ({"g": {**GROUP, "choice": "day"}}, "another choice"),
    ({"g": {"metrics": ["a", "c"], "choice": "period"}}, "periods of different lengths"),
    ({"g": {"metrics": ["a", "g"], "choice": "period"}}, "another max_periods"),
    ({"g": {"metrics": ["a", "d"], "choice": "period"}}, "a choice for periods without periods"),
    ({"g": {"metrics": ["e", "f"], "choice": "period"}}, "a choice for periods of the calendar"),
)
PLATFORM = {"platform": ["mac", "windows"]}
_LISTED = {name: [str(i) for i in range(3)] for name in "abc"}
# The table of dimensions, those that a metric tells, and why that is wrong.
_DIMENSIONS: tuple[tuple[Any, Any, str], ...] = (
    (3, None, "dimensions that aren't a table"),
    ({"Platform": ["mac"]}, None, "a dimension's name with a capital letter"),
    ({"plat-form": ["mac"]}, None, "a dimension's name with a hyphen"),
    ({"1st": ["mac"]}, None, "a dimension's name that begins with a digit"),
    ({"p" * 33: ["mac"]}, None, "a dimension's name of 33 characters"),
    ({"platform": "mac"}, None, "values that aren't a list"),
    ({"platform": []}, None, "no value"),
    ({"platform": ["mac", "mac"]}, None, "a value that is listed twice"),
    ({"platform": ["mac", "other"]}, None, '"other" as a value'),
    ({"platform": ["mac", ""]}, None, "an empty value"),
    ({"platform": ["mac", "a b"]}, None, "a value with a space"),
    ({"platform": ["mac", "a,b"]}, None, "a value with a comma"),
    ({"platform": ["mac", "Zürich"]}, None, "a value that isn't ASCII"),
    ({"platform": ["mac\n"]}, None, "a value with a line's end"),
    ({"platform": ["m" * 33]}, None, "a value of 33 characters"),
    ({"platform": ["mac", 5]}, None, "a value that isn't a text"),
    ({"platform": [str(i) for i in range(64)]}, None, "64 values"),
    ({"release": {}}, None, "neither values nor a pattern"),
    ({"release": {"pattern": "a", "values": ["a"]}}, None, "an unknown key beside a pattern"),
    ({"release": {"pattern": 5}}, None, "a pattern that isn't a text"),
    ({"release": {"pattern": ""}}, None, "an empty pattern"),
    ({"release": {"pattern": "(a)"}}, None, "a pattern with a group"),
    ({"release": {"pattern": "a|b"}}, None, "a pattern with alternatives"),
    ({"release": {"pattern": "a.b"}}, None, "a pattern with any character"),
    ({"release": {"pattern": "^a$"}}, None, "a pattern with the text's ends"),
    ({"release": {"pattern": "\\w"}}, None, "a pattern with another class"),
    ({"release": {"pattern": "[^a]"}}, None, "a pattern with a complement"),
    ({"release": {"pattern": "[]"}}, None, "a pattern with an empty class"),
    ({"release": {"pattern": "[a-]"}}, None, "a pattern with a range without an end"),
    ({"release": {"pattern": "[z-a]"}}, None, "a pattern with a range that descends"),
    ({"release": {"pattern": "*a"}}, None, "a pattern that repeats nothing"),
    ({"release": {"pattern": "a+?"}}, None, "a pattern that repeats a repetition"),
    ({"release": {"pattern": "a{2,}"}}, None, "a pattern without an upper bound"),
    ({"release": {"pattern": "a{3,2}"}}, None, "a pattern whose bounds descend"),
    ({"release": {"pattern": "a?b?c*d+e{1,2}"}}, None, "a pattern of five varying parts"),
    ({"release": {"pattern": "a\n"}}, None, "a pattern with a line's end"),
    (PLATFORM, [], "a metric with an empty list of dimensions"),
    (PLATFORM, "platform", "a metric's dimension that isn't in a list"),
    (PLATFORM, ["platform", "platform"], "a dimension that a metric names twice"),
    (PLATFORM, ["release"], "a dimension that isn't in the table"),
    (PLATFORM, [5], "a dimension's name that isn't a text"),
    (None, ["platform"], "a metric's dimensions without the table"),
    ({f"d{i}": ["a"] for i in range(6)}, [f"d{i}" for i in range(6)], "six dimensions"),
    ({**_LISTED, "d": ["0"]}, [*"abcd"], "128 combinations"),
    (
        {f"dim{i}" + i // 4 * "xx": {"pattern": "a"} for i in range(5)},
        [f"dim{i}" + i // 4 * "xx" for i in range(5)],
        "a slice of 191 characters",
    ),
)


def refused_registries() -> list[Json]:
    """Give registries, and why they must be refused; those without a reason must not."""
    rows = [_row({"metrics": {"a": _changed(*change)}}, why) for *change, why in _ENTRIES]
    calendar = {**BOTH, "memory": "period", "period_days": 7}
    metrics = {
        "a": ONCE, "b": SUBSET, "c": {**ONCE, "period_days": 8}, "d": BOTH, "e": calendar,
        "f": calendar, "g": {**ONCE, "max_periods": 5},
    }  # fmt: skip
    rows += [_row({"metrics": metrics, "groups": groups}, why) for groups, why in _GROUPS]
    rows += [_row(_telling(table, told), why) for table, told, why in _DIMENSIONS]
    rows += [
        _row(_telling(PLATFORM, ["platform"], {"min_reports": reports}), why)
        for reports, why in (
            (0, "no report of a slice"),
            (9, "nine reports of a slice, among which nobody hides"),
            (1.5, "one and a half reports of a slice"),
        )
    ]
    return rows + _accepted()


def _accepted() -> list[Json]:
    one_time = _changed(BOTH, {"mode": "one-time", "f": _REMOVED})
    daily = {**BOTH, "reports_per_day": 1}
    alone: tuple[Json, ...] = (ONCE, BOTH, ASYMMETRIC, SUBSET, NUMBER, one_time, daily)
    metrics = {"a": ONCE, "b": SUBSET, "c": {**ONCE, "period_days": 8}, "d": BOTH}
    by_period = {"g": {**GROUP, "choice": "period"}, "h": {"metrics": ["c", "d"]}}
    return [
        *(_row({"metrics": {"a": entry}}, None) for entry in alone),
        _row({"metrics": metrics, "groups": by_period}, None),
        *(_row(_telling(*told), None) for told in _TOLD),
    ]


_TOLD: tuple[tuple[Json, list[str] | None, Json], ...] = (
    (PLATFORM, ["platform"], {"min_reports": 10}),
    (PLATFORM, None, {"min_reports": 2**31 - 1}),
    ({}, None, {}),
    ({"p" * 32: ["m" * 32], "z_9": ["A.b-_9"]}, ["z_9", "p" * 32], {}),
    ({"platform": [str(i) for i in range(63)]}, ["platform"], {}),
    (_LISTED, [*"cab"], {}),
    ({f"d{i}": ["a"] for i in range(5)}, [f"d{i}" for i in range(5)], {}),
    ({"release": {"pattern": "[A-Z_]?a{0,9}\\d*-?[x.]\\.{2}_"}}, ["release"], {}),
    (
        {f"dim{i}" + i // 4 * "x": {"pattern": "a"} for i in range(5)},
        [f"dim{i}" + i // 4 * "x" for i in range(5)],
        {},
    ),
)


def _telling(table: Any, told: Any, more: Json | None = None) -> Json:
    of_metric = {} if told is None else {"dimensions": told}
    metrics = {"a": {**ONCE, **of_metric, **(more or {})}}
    return {"metrics": metrics} if table is None else {"dimensions": table, "metrics": metrics}


def _changed(entry: Json, change: Json) -> Json:
    return {key: value for key, value in (entry | change).items() if value is not _REMOVED}


def _row(registry: Json, why: str | None) -> Json:
    return {"why": why, "registry": {"application": "com.example.vectors", **registry}}
