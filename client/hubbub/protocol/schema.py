"""The JSON Schema of metrics.toml, from the reader's own table of keys: `python -m` this module.

Editors complete and check by it. It says what a JSON Schema can: which keys there are on which
condition, and what each may hold; not what compares numbers, such as p with q. Invariant: what the
reader accepts, the schema accepts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from hubbub.protocol.checks import NAME_PATTERN
from hubbub.protocol.keys import (
    FILE,
    GROUP,
    METRIC,
    OPTIONAL,
    REQUIRED,
    Clause,
    Condition,
    Key,
    Schema,
    clauses,
)

ADDRESS = (
    "https://raw.githubusercontent.com/hubbub-telemetry/hubbub/main/docs/protocol/"
    "metrics.schema.json"
)
"""Where it is published."""


def json_schema() -> Schema:
    """Return the schema of metrics.toml (draft 7, which editors know)."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": ADDRESS,
        "title": "Metrics that an application reports by hubbub",
        "type": "object",
        "properties": {
            **_properties(FILE),
            "metrics": {**_tables("metric"), "minProperties": 1},
            "groups": _tables("group"),
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


def _tables(of: str) -> Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": f"^{NAME_PATTERN}$"},
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
    print(json.dumps(json_schema(), indent=1))  # noqa: T201
