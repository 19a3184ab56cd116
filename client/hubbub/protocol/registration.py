"""The text of a metrics.toml -> checked entries; imported when a registry is read, not before."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from hubbub.protocol import checks as check
from hubbub.protocol.errors import MetricError, ParameterError
from hubbub.protocol.metric_types import METRIC_TYPES
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metrics import MAX_PERIODS, MAX_VALUES, Memory, Metric
from hubbub.protocol.params import RapporParams

_MODES = ("longitudinal", "one-time")
_REQUIRED = ("version", "type", "description", "owner", "expires")
_OPTIONAL = ("mode", "memory")
_MEMORIES: tuple[Memory, ...] = ("value", "period")
_OF_MEMORY = {"value": ("max_values",), "period": ("period_days", "max_periods")}
_MOST_DAYS = 3650
_NOISE = ("f", "p", "q")
_MAX_VERSION = 2**31 - 1


def read_registry(text: str) -> tuple[str, dict[str, Metric], float | None]:
    """Return the application, the metrics by name, and the lifetime budget.

    Raises
    ------
    MetricError
        If the text isn't TOML, or an entry is wrong (the message says where).
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MetricError(f"metrics.toml: not valid TOML: {error}") from error
    check.refuse_unknown("metrics.toml", document, ("application", "lifetime_epsilon", "metrics"))
    application = check.text("application", document.get("application"))
    budget = document.get("lifetime_epsilon")
    tables = document.get("metrics")
    if not isinstance(tables, dict) or not tables:
        raise MetricError("metrics: must be at least one table [metrics.NAME]")
    metrics = {name: _metric(application, name, table) for name, table in tables.items()}
    if budget is not None:
        budget = check.positive("lifetime_epsilon", budget)
    return application, metrics, budget


def _metric(application: str, name: str, table: Any) -> Metric:
    where = f"metrics.{name}"
    check.metric_name(where, name)
    if not isinstance(table, dict):
        raise MetricError(f"{where} = {table!r}: must be a table")
    check.require(where, table, _REQUIRED)
    a_type = METRIC_TYPES[check.choice(f"{where}.type", table["type"], METRIC_TYPES)]
    memory = check.choice(f"{where}.memory", table.get("memory", _MEMORIES[0]), _MEMORIES)
    known = _REQUIRED + _OPTIONAL + _OF_MEMORY[memory] + a_type.keys + _NOISE
    check.refuse_unknown(where, table, known)
    one_time = check.choice(f"{where}.mode", table.get("mode", _MODES[0]), _MODES) == _MODES[1]
    if memory == "period" and one_time:
        raise MetricError(f'{where}.memory = "period": must be left out, or mode "longitudinal"')
    check.require(where, table, (*a_type.keys, *(("f",) if one_time else _NOISE)))
    metric_type = a_type.from_table(where, table)
    return Metric(
        application=application,
        name=name,
        version=check.integer(f"{where}.version", table["version"], 1, _MAX_VERSION),
        type=metric_type,
        params=_params(where, metric_type, one_time, table),
        description=check.text(f"{where}.description", table["description"]),
        owner=check.text(f"{where}.owner", table["owner"]),
        expires=check.date(f"{where}.expires", table["expires"]),
        one_time=one_time,
        memory=memory,
        **_caps(where, memory, table),
    )


def _caps(where: str, memory: Memory, table: Mapping[str, Any]) -> dict[str, int]:
    """Return how many answers a client gives, and for how long."""
    if memory == "value":
        values = table.get("max_values", MAX_VALUES)
        return {"max_values": check.integer(f"{where}.max_values", values, 1, _MAX_VERSION)}
    check.require(where, table, ("period_days",))
    periods = table.get("max_periods", MAX_PERIODS)
    return {
        "period_days": check.integer(f"{where}.period_days", table["period_days"], 1, _MOST_DAYS),
        "max_periods": check.integer(f"{where}.max_periods", periods, 1, _MAX_VERSION),
    }


def _params(
    where: str, metric_type: MetricType, one_time: bool, table: Mapping[str, Any]
) -> RapporParams:
    """Return the parameters; without p and q there is no second response."""
    noise = {"f": table["f"], "p": table.get("p", 0.0), "q": table.get("q", 1.0)}
    if (noise["p"], noise["q"]) == (1, 0):
        raise MetricError(f"{where}.p = 1, q = 0: must be left out, which means p = 0 and q = 1")
    try:
        params = RapporParams(**metric_type.filter_size(table), **noise)
    except ParameterError as error:
        raise MetricError(f"{where}.{error}") from error
    missing = _missing_response(params)
    if missing and not one_time:
        raise MetricError(
            f'{where}.{missing}: needs mode = "one-time", which sends a single report'
        )
    if one_time and not missing:
        raise MetricError(
            f'{where}.mode = "one-time": must leave out one response: f = 0, or neither p nor q'
        )
    return params


def _missing_response(params: RapporParams) -> str | None:
    if params.f == 0:
        return "f = 0.0"
    if (params.p, params.q) == (0.0, 1.0):
        return "p = 0.0, q = 1.0"
    return None
