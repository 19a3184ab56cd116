"""The published JSON Schema of metrics.toml: it and the reader accept and refuse alike."""

import datetime as dt
import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from hubbub.client import MetricError, Registry
from hubbub.protocol import METRIC_TYPES, keys
from parameters import examples

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "protocol" / "metrics.schema.json"
SCHEMA = json.loads(PUBLISHED.read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)

_COMMON: dict[str, object] = {
    "version": 1,
    "description": "What",
    "owner": "who@example.com",
    "expires": dt.date(2099, 12, 31),
}
_TWO: dict[str, object] = {"f": 0.5, "p": 0.25, "q": 0.75}
_ONCE: dict[str, object] = {"mode": "once", "period_days": 30, "p": 0.25, "q": 0.75}
_FIELDS = [{"name": "a", "type": "boolean"}, {"name": "b", "type": "boolean"}]
_TYPES: list[dict[str, object]] = [
    {"type": "string", "k": 32, "h": 2, "m": 8},
    {"type": "enum", "categories": ["a", "b", "c"], "other": True},
    {"type": "boolean"},
    {"type": "ordinal", "edges": [1, 2.5]},
    {"type": "open-string", "steps": [2, 4], "k": 32, "m": 8},
    {"type": "joint", "fields": _FIELDS},
]
_NUMBER: dict[str, object] = {
    "type": "number",
    "low": 0,
    "high": 9.5,
    "cells": 16,
    "window": 4,
    "q": 0.75,
}
BASES = [
    *(_COMMON | of_type | noise for of_type in _TYPES for noise in (_TWO, _ONCE)),
    _COMMON | _NUMBER | {"mode": "one-time", "variance": False},
    _COMMON | _NUMBER | {"mode": "once", "period_days": 7, "max_periods": 5},
    _COMMON | _TYPES[1] | {"mode": "one-time", "response": "subset", "size": 1, "q": 0.75},
    _COMMON | _TYPES[0] | _TWO | {"memory": "period", "period_days": 7, "reports_per_day": 1},
    _COMMON | _TYPES[0] | {"f0": 0.1, "f1": 0.2, "p": 0.25, "q": 0.75, "max_values": 3},
]
# No float that is whole where integers belong, no list out of order, no date where a text belongs:
# no schema can tell these.
_ODD = (
    [
        "", " ", "x", "a.b", "once", "period", "subset", "boolean", "number", "value", "life",
        True, False, -1, 0, 1, 2, 3, 12, 16, 2**31, 0.25, 0.75, 1.5, -0.5,
        [], ["a"], ["a", "b"], ["a", "a"], [1, 2], [0.5, "a"], [True], {}, [{}, {}], _FIELDS,
    ]
)  # fmt: skip
_PROPERTIES = SCHEMA["definitions"]["metric"]["properties"]
_KEYS = st.sampled_from([*_PROPERTIES, *keys.GROUP, *keys.FILE, "verison"])
_ODD_NAMES = st.sampled_from(["theme", "a", "B", "_c", "d e", "é", "x" * 64, "x" * 65])


def _changed(table, changes):
    dropped, put = changes
    return {key: value for key, value in table.items() if key not in dropped} | put


_CHANGES: st.SearchStrategy[tuple[set[str], dict[str, object]]] = st.tuples(
    st.sets(_KEYS, max_size=1), st.dictionaries(_KEYS, st.sampled_from(_ODD), max_size=2)
) | st.just((set(), {}))
_TABLES = st.builds(_changed, st.sampled_from(BASES), _CHANGES)
_GROUPS = st.builds(_changed, st.just({"metrics": ["theme", "host"]}), _CHANGES)
_DOCUMENTS = st.builds(
    _changed,
    st.fixed_dictionaries(
        {
            "application": st.just("com.example.app"),
            "metrics": st.dictionaries(_ODD_NAMES, _TABLES, max_size=2)
            | st.fixed_dictionaries({"theme": _TABLES, "host": st.sampled_from(BASES)}),
        },
        optional={"groups": st.dictionaries(_ODD_NAMES, _GROUPS, max_size=1)},
    ),
    _CHANGES,
)


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, dt.date) else json.dumps(value)


def read(document):
    """Return whether the reader accepts a registry."""
    try:
        Registry.parse("\n".join(f"{json.dumps(k)} = {toml(v)}" for k, v in document.items()))
    except MetricError:
        return False
    return True


def keys_are_right(document):
    """Return whether the reader finds nothing wrong with keys by themselves."""
    try:
        keys.check_file(document, "metrics.toml")
        for name, table in document["metrics"].items():
            keys.check_metric(name, table)
        for name, table in document.get("groups", {}).items():
            keys.check_group(name, table)
    except MetricError:
        return False
    return True


def valid(document):
    """Return whether the schema accepts it; dates are texts in JSON, as editors have them."""
    return VALIDATOR.is_valid(json.loads(json.dumps(document, default=str)))


def check_alike(document):
    """Hold that reader and schema agree, as far as a schema can say."""
    accepted = valid(document)
    if read(document):
        assert accepted
    if accepted:  # what the reader refuses then is what several values make wrong
        assert keys_are_right(document)


@examples(100)
@given(_DOCUMENTS)
def test_reader_and_schema_accept_and_refuse_alike(document):
    check_alike(document)


@pytest.mark.parametrize("base", BASES, ids=lambda it: it["type"])
def test_they_do_after_any_change_of_one_key(base):
    document = {"application": "a", "metrics": {"theme": base, "host": BASES[0]}}
    assert read(document)
    assert valid(document)
    for key in base:
        check_alike(document | {"metrics": {"theme": _changed(base, ({key}, {}))}})
        for odd in _ODD:
            check_alike(document | {"metrics": {"theme": base | {key: odd}}})


def test_they_do_after_any_change_of_a_group_or_of_the_files_keys():
    group = {"metrics": ["theme", "host"], "choice": "life"}
    document = {
        "application": "a",
        "lifetime_epsilon": 9.0,
        "metrics": {"theme": BASES[0], "host": BASES[0]},
        "groups": {"both": group},
    }
    assert read(document)
    assert valid(document)
    for odd in _ODD:
        for key in document:
            check_alike(document | {key: odd})
        for key in group:
            check_alike(document | {"groups": {"both": group | {key: odd}}})


def test_schema_has_the_keys_of_every_type_and_its_own_address():
    of_types = {key for each in METRIC_TYPES.values() for key in each.keys + each.optional_keys}
    assert _PROPERTIES.keys() == keys.METRIC.keys() | of_types
    assert SCHEMA["$id"] == keys.ADDRESS
    assert keys.ADDRESS.endswith(PUBLISHED.relative_to(ROOT).as_posix())
