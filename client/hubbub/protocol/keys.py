"""The keys of metrics.toml: which may stand in a table, and what each may hold by itself.

The reader refuses by this table, and editors complete by its JSON Schema, which `python -m` this
module prints. Invariants: what the reader accepts, the schema accepts; and nothing here compares
one value with another, so that all faults can be reported together: what only several keys make
wrong, `hubbub.protocol.registry` refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from hubbub.protocol import checks as check, dimensions
from hubbub.protocol.errors import MetricError
from hubbub.protocol.metric_types import METRIC_TYPES, types_for
from hubbub.protocol.metric_types.joint import FEWEST_FIELDS, MOST_FIELDS
from hubbub.protocol.metric_types.strings import LONGEST_STEP, MOST_STEPS
from hubbub.protocol.params import MOST_BITS, MOST_COHORTS

Schema = dict[str, Any]
"""A JSON Schema, or a part of one."""

MODES = ("longitudinal", "one-time", "once")
MEMORIES = ("value", "period")
RESPONSES = ("unary", "subset")
CHOICES = ("life", "period")
NOISE = ("f", "f0", "f1", "p", "q")
MOST_VERSION = 2**31 - 1  # fits a signed 32-bit integer, as databases have
MOST_DIMENSIONS = 5  # 2^6 combinations are `dimensions.MOST_SLICES`, and one is left for others
MOST_DAYS = 3650  # ten years, longer than an installation of an app lives

ADDRESS = (
    "https://raw.githubusercontent.com/hubbub-telemetry/hubbub/main/docs/protocol/"
    "metrics.schema.json"
)
"""Where it is published."""


class Key(NamedTuple):
    """The values that a key may hold."""

    # Takes where the key is and its value, and refuses that with a `MetricError`.
    check: Callable[[str, Any], object]
    schema: Schema  # as far as a JSON Schema can express it
    words: str  # what the key means, for editors


class Condition(NamedTuple):
    """A clause holds if one of the keys has its value, or (`otherwise`) if none has."""

    cases: tuple[tuple[str, str], ...]
    otherwise: bool = False

    def holds(self, table: Mapping[str, object]) -> bool:
        """Return whether it holds of a metric's table."""
        return any(table.get(key) == value for key, value in self.cases) != self.otherwise


class Clause(NamedTuple):
    """Keys that a metric's table must have, or may have, on a condition."""

    when: Condition
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def _integer(low: int, high: int, words: str) -> Key:
    limits = {"type": "integer", "minimum": low, "maximum": high}
    return Key(partial(check.integer, low=low, high=high), limits, words)


def _choice(choices: tuple[str, ...], words: str) -> Key:
    return Key(partial(check.choice, choices=choices), {"enum": list(choices)}, words)


def _list(check_: Callable[..., object], items: Schema, low: int, high: int, words: str) -> Key:
    schema = {"type": "array", "items": items, "minItems": low, "maxItems": high}
    # Those of numbers are in order, which a schema can't express.
    return Key(check_, schema | ({"uniqueItems": True} if items == _WORDS else {}), words)


def _type(where: str, value: object) -> None:
    check.choice(where, value, types_for(value))


def _by_type(where: str, value: object) -> None:
    """Leave a value to the metric's type, whose bounds depend on more than the key."""


def _tables(where: str, value: object, low: int, high: int) -> None:
    if (
        not isinstance(value, list)
        or not low <= len(value) <= high
        or not all(isinstance(table, dict) for table in value)
    ):
        raise MetricError.of(where, value, f"{low} or {high} tables, one a field")


_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_NUMBER: Schema = {"type": "number"}
_WORDS: Schema = {"type": "string"}

_VALUES: Schema = {
    "type": "array",
    "items": {"type": "string", "pattern": f"^{dimensions.VALUE}$"},
    "minItems": 1,
    "maxItems": dimensions.MOST_SLICES - 1,
    "uniqueItems": True,
}
_PATTERN: Schema = {
    "type": "object",
    "properties": {"pattern": {"type": "string"}},
    "required": ["pattern"],
    "additionalProperties": False,
}

FILE: Mapping[str, Key] = {
    "application": Key(
        check.text, _TEXT, "The app, as a reversed domain; permanent responses depend on it."
    ),
    "lifetime_epsilon": Key(
        check.positive,
        {"type": "number", "exclusiveMinimum": 0},
        "What a client may spend in its life, over all metrics.",
    ),
    "dimensions": Key(
        dimensions.read_dimensions,
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{dimensions.NAME}$"},
            "additionalProperties": {"anyOf": [_VALUES, _PATTERN]},
        },
        "Facts about the app that travel in the clear: lists of values, or a pattern.",
    ),
}
"""The file's own keys, besides the tables `metrics` and `groups`."""

GROUP: Mapping[str, Key] = {
    "metrics": _list(
        partial(check.different_texts, low=2, high=MOST_VERSION),
        _WORDS, 2, MOST_VERSION, "The metrics of which each client answers one.",
    ),
    "choice": _choice(CHOICES, "Whether a client's metric is chosen for life, or each period."),
}  # fmt: skip

METRIC: Mapping[str, Key] = {
    "version": _integer(1, MOST_VERSION, "A change of what reports depend on needs the next one."),
    "type": Key(_type, {"enum": list(METRIC_TYPES)}, "What is recorded."),
    "description": Key(
        check.text, _TEXT,
        "What is asked and why, in words for users; `explain()` shows them.",
    ),
    "owner": Key(check.text, _TEXT, "Who is responsible for the metric."),
    "expires": Key(
        check.date,
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "Last day (UTC) on which clients report, without quotes.",
    ),
    "mode": _choice(
        MODES,
        "`once` a period (recommended), `one-time` for each version, or `longitudinal`, the "
        "default: as often as the app records.",
    ),
    "memory": _choice(
        MEMORIES,
        "Longitudinal only: what has a permanent response, each `value` for life or each "
        "`period`.",
    ),
    "response": _choice(
        RESPONSES,
        "`unary`, the default: noise on each bit; or `subset`: a random set of categories.",
    ),
    "reports_per_day": _integer(1, 1, "1: only the newest of a day's reports is sent."),
    "max_values": _integer(
        1, MOST_VERSION,
        'Different values of a version that a client reports, with `memory = "value"`.',
    ),
    "period_days": _integer(
        1, MOST_DAYS,
        "Days of a period; a client answers once more in each.",
    ),
    "max_periods": _integer(1, MOST_VERSION, "Periods that a client answers, over all versions."),
    "size": _integer(1, MOST_BITS - 1, 'Categories in a report, with `response = "subset"`.'),
    "f": Key(
        check.share, _SHARE,
        "Noise of the permanent response: the chance that a fair coin replaces a bit.",
    ),
    "f0": Key(check.share, _SHARE, "In place of f: the chance that a permanent 0 becomes 1."),
    "f1": Key(check.share, _SHARE, "In place of f: the chance that a permanent 1 becomes 0."),
    "p": Key(check.share, _SHARE, "Chance that a bit that is 0 is reported as 1."),
    "q": Key(
        check.share, _SHARE,
        "Chance that a bit that is 1 is reported as 1; of a subset or a number, that what "
        "holds is among what is named.",
    ),
    "k": Key(
        check.bits,
        {"type": "integer", "minimum": 8, "maximum": MOST_BITS, "multipleOf": 8},
        "Bits of a report: a multiple of 8.",
    ),
    "h": _integer(
        1, 8,
        "Hashes, that is bits that a value sets; 1 is nearly always best.",
    )._replace(check=_by_type),
    "m": _integer(
        1, MOST_COHORTS,
        "Cohorts, which hash differently; of an open string, of each step.",
    )._replace(check=_by_type),
    "categories": _list(
        _by_type, _WORDS, 1, MOST_BITS, "The texts that are counted."
    ),
    "other": Key(
        check.boolean, {"type": "boolean"},
        "Whether all other texts are a category, instead of being refused.",
    ),
    "edges": _list(
        partial(check.ascending_numbers, low=1, high=MOST_BITS - 1),
        _NUMBER, 1, MOST_BITS - 1, "Ascending numbers, each of which opens a bucket.",
    ),
    "steps": _list(
        partial(check.ascending_integers, most=MOST_STEPS, low=1, high=LONGEST_STEP),
        {"type": "integer", "minimum": 1, "maximum": LONGEST_STEP}, 1, MOST_STEPS,
        "Lengths of the beginnings that are asked, in bytes, ascending.",
    ),
    "low": Key(check.finite, _NUMBER, "The least number; what is below counts as this."),
    "high": Key(check.finite, _NUMBER, "The greatest number; what is above counts as this."),
    "cells": _integer(2, MOST_BITS, "Parts into which the range is cut."),
    "window": _integer(
        1, MOST_BITS - 1,
        "Cells around the value's own that are reported more often.",
    ),
    "variance": Key(check.boolean, {"type": "boolean"}, "Whether the variance is estimated, too."),
    "fields": _list(
        partial(_tables, low=FEWEST_FIELDS, high=MOST_FIELDS),
        {"type": "object"}, FEWEST_FIELDS, MOST_FIELDS,
        "Tables with a name, a type, and the type's categories or edges.",
    ),
    "dimensions": _list(
        partial(check.different_texts, low=1, high=MOST_DIMENSIONS),
        _WORDS, 1, MOST_DIMENSIONS,
        "The file's dimensions that its reports state, the most important first.",
    ),
    "min_reports": _integer(
        dimensions.LEAST_MIN_REPORTS, MOST_VERSION,
        "Fewer reports of a combination of dimensions in a day are counted as other.",
    ),
}  # fmt: skip
"""All keys of metrics; a type that an installed package brings may have others."""

READ_TOGETHER = METRIC.keys() - {"version", "description", "owner", "expires"}
"""Keys of which one can be wrong because of another."""
REQUIRED = ("version", "type", "description", "owner", "expires")
OPTIONAL = ("mode", "memory", "response", "dimensions", "min_reports", *NOISE)
_PERIODS = (("mode", "once"), ("memory", "period"))


def clauses() -> Iterator[Clause]:
    """Yield when further keys are needed or allowed, those of all types that are known by now."""
    reports_once = (("mode", "one-time"), ("mode", "once"))
    yield Clause(Condition(reports_once, otherwise=True), (), ("reports_per_day",))
    yield Clause(Condition(_PERIODS, otherwise=True), (), ("max_values",))
    yield Clause(Condition(_PERIODS), ("period_days",), ("max_periods",))
    for name, metric_type in METRIC_TYPES.items():
        when = Condition((("type", name),))
        yield Clause(when, metric_type.keys, metric_type.optional_keys)
    yield Clause(Condition((("response", "subset"),)), ("size",))


def check_file(document: Mapping[str, Any], file: str) -> None:
    """Refuse what is wrong with the file's own keys (MetricError)."""
    faults = check.Faults()
    with faults.collected():
        check.refuse_unknown(file, document, (*FILE, "metrics", "groups"), is_file=True)
    for key, rule in FILE.items():
        if key in document or key == "application":
            with faults.collected():
                rule.check(key, document.get(key))
    if not isinstance(document.get("metrics"), dict) or not document["metrics"]:
        message = "metrics: must be at least one table [metrics.NAME]"
        faults.found.append(MetricError.about("metrics", message))
    if not isinstance(groups := document.get("groups", {}), dict):
        message = f"groups = {groups!r}: must be tables [groups.NAME]"
        faults.found.append(MetricError.about("groups", message))
    faults.raise_found()


def check_metric(name: str, table: Any) -> None:
    """Refuse what is wrong with the name and the keys of a metric (MetricError)."""
    where, faults = f"metrics.{name}", check.Faults()
    named = table.get("type") if isinstance(table, dict) else None
    # First: whether an installed package has the type decides which keys there are.
    metric_type = types_for(named).get(named) if isinstance(named, str) else None
    held = [each for each in clauses() if isinstance(table, dict) and each.when.holds(table)]
    required = [*REQUIRED, *(key for clause in held for key in clause.required)]
    optional = [*OPTIONAL, *(key for clause in held for key in clause.optional)]
    known = [*required, *optional]
    # An unknown type, or mode, has no known keys: all may be right.
    if not (metric_type and _choices_are_known(table)):
        known += METRIC
    with faults.collected():
        _check_table(where, name, table, METRIC, required, known)
    faults.raise_found()


def _choices_are_known(table: Mapping[str, Any]) -> bool:
    chosen = {key: table[key] for key in ("mode", "memory", "response") if key in table}
    return all(value in METRIC[key].schema["enum"] for key, value in chosen.items())


def check_group(name: str, table: Any) -> None:
    """Refuse what is wrong with the name and the keys of a group (MetricError)."""
    _check_table(f"groups.{name}", name, table, GROUP, ["metrics"], list(GROUP))


def _check_table(
    where: str,
    name: str,
    table: Any,
    rules: Mapping[str, Key],
    required: list[str],
    known: list[str],
) -> None:
    check.metric_name(where, name)
    if not isinstance(table, dict):
        raise MetricError.of(where, table, "a table")
    faults = check.Faults()
    with faults.collected():
        check.refuse_unknown(where, table, list(dict.fromkeys(known)))
    with faults.collected():
        check.require(where, table, dict.fromkeys(required))
    for key, value in table.items():
        if key in known and key in rules:
            with faults.collected():
                rules[key].check(f"{where}.{key}", value)
    faults.raise_found()


def json_schema() -> Schema:
    """Return the schema of metrics.toml (draft 7, which editors know)."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": ADDRESS,
        "title": "Metrics that an application reports by hubbub",
        "type": "object",
        "properties": {
            **_properties(FILE),
            "metrics": {**_table_schema("metric"), "minProperties": 1},
            "groups": _table_schema("group"),
        },
        "required": ["application", "metrics"],
        "additionalProperties": False,
        "definitions": {
            "metric": {
                "type": "object",
                "properties": _properties(METRIC),
                "required": list(REQUIRED),
                "additionalProperties": False,
                "allOf": list(_conditions(list(clauses()))),
            },
            "group": {
                "type": "object",
                "properties": _properties(GROUP),
                "required": ["metrics"],
                "additionalProperties": False,
            },
        },
    }


def _properties(keys: Mapping[str, Key]) -> Schema:
    return {name: {"description": key.words, **key.schema} for name, key in keys.items()}


def _table_schema(of: str) -> Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": f"^{check.NAME_PATTERN}$"},
        "additionalProperties": {"$ref": f"#/definitions/{of}"},
    }


def _conditions(clauses_: Iterable[Clause]) -> Iterator[Schema]:
    """Yield which keys a condition demands, and on which of several conditions a key may be."""
    allowed: dict[str, list[Condition]] = {}
    for clause in clauses_:
        for key in (*clause.required, *clause.optional):
            allowed.setdefault(key, []).append(clause.when)
        if clause.required:
            yield {"if": _as_schema(clause.when), "then": {"required": list(clause.required)}}
    for key, conditions in allowed.items():
        if key not in OPTIONAL:
            yield {
                "if": {"required": [key]},
                "then": {"anyOf": [_as_schema(condition) for condition in conditions]},
            }


def _as_schema(condition: Condition) -> Schema:
    any_of = {
        "anyOf": [
            {"properties": {key: {"const": value}}, "required": [key]}
            for key, value in condition.cases
        ]
    }
    return {"not": any_of} if condition.otherwise else any_of


if __name__ == "__main__":
    import json

    print(json.dumps(json_schema(), indent=1))  # noqa: T201
