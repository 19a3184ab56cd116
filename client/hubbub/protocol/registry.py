"""The metrics of an application as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file, and refuse every entry that they don't know.
Invariant: what a metric's reports mean never changes under the same version, because reports drawn
in different ways can't be told apart afterwards; `check_compatible` is the guard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol import checks as check
from hubbub.protocol.errors import MetricError, ParameterError, UnknownMetricError
from hubbub.protocol.metric_types import MetricType, types_for
from hubbub.protocol.metrics import MAX_PERIODS, MAX_VALUES, Memory, Metric
from hubbub.protocol.params import RapporParams

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = ("application", "lifetime_epsilon", "metrics")
_MODES = ("longitudinal", "one-time")
_REQUIRED = ("version", "type", "description", "owner", "expires")
_OPTIONAL = ("mode", "memory")
_MEMORIES: tuple[Memory, ...] = ("value", "period")
_OF_MEMORY = {"value": ("max_values",), "period": ("period_days", "max_periods")}
_MOST_DAYS = 3650
_NOISE = ("f", "p", "q")
MOST_VERSION = 2**31 - 1


class Registry(Mapping[str, Metric]):
    """The metrics of one application, by name; read-only.

    Parameters
    ----------
    application : str
    metrics : mapping of str to Metric
    lifetime_epsilon : float, optional
        What a client may spend in its life, over all metrics; None: no bound but `max_values`.
    """

    __slots__ = ("_metrics", "application", "lifetime_epsilon")

    def __init__(
        self,
        application: str,
        metrics: Mapping[str, Metric],
        lifetime_epsilon: float | None = None,
    ) -> None:
        self.application = application
        self.lifetime_epsilon = lifetime_epsilon
        self._metrics = dict(metrics)

    @classmethod
    def load(cls, path: str | Path) -> Registry:
        """Read metrics.toml.

        Raises
        ------
        MetricError
            If the file can't be read, isn't TOML, or an entry is wrong (the message says where).
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MetricError(f"{path}: can't be read as UTF-8 text: {error}") from error
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read a registry from the text of a metrics.toml (raises as `load`)."""
        import tomllib

        try:
            document = tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, or of an integer with thousands of digits
            raise MetricError(f"metrics.toml: not valid TOML: {error}") from error
        check.refuse_unknown("metrics.toml", document, _KEYS)
        application = check.text("application", document.get("application"))
        tables = document.get("metrics")
        if not isinstance(tables, dict) or not tables:
            raise MetricError("metrics: must be at least one table [metrics.NAME]")
        metrics = {name: _metric(application, name, table) for name, table in tables.items()}
        budget = document.get("lifetime_epsilon")
        if budget is not None:
            budget = check.positive("lifetime_epsilon", budget)
        return cls(application, metrics, budget)

    def __getitem__(self, name: str) -> Metric:
        try:
            return self._metrics[name]
        except KeyError:
            known = ", ".join(sorted(self._metrics))
            raise UnknownMetricError(f"metric {name!r}: must be one of: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


def check_compatible(old: Registry, new: Registry) -> None:
    """Refuse a registry that changes what an existing version means.

    Raises
    ------
    MetricError
        If the application differs, a version goes down, a definition changed without a new one,
        or `lifetime_epsilon` leaves less for changed answers than before (what clients spent on
        these already would then decide whether they answer new questions).
    """
    if old.application != new.application:
        raise MetricError(
            f"application = {new.application!r}: must stay {old.application!r}, because every "
            "client's permanent responses depend on it"
        )
    if old.lifetime_epsilon is not None and new.lifetime_epsilon is not None:
        still = {(metric.name, metric.version) for metric in new.values()}
        gone = [m.reserve for m in old.values() if (m.name, m.version) not in still]
        needed = math.fsum([*gone, *(m.reserve for m in new.values()), old.lifetime_epsilon])
        needed -= math.fsum(m.reserve for m in old.values())
        if new.lifetime_epsilon < needed * (1 - 1e-9):
            raise MetricError(
                f"lifetime_epsilon = {new.lifetime_epsilon}: must be at least {needed:.6g}, which "
                "adds the price of each new metric and version, so that clients' silence doesn't "
                "depend on how often their answers changed"
            )
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if after.version < before.version:
            raise MetricError(
                f"metrics.{name}.version = {after.version}: must be at least {before.version}; "
                f"what version {after.version} was can come back as version {before.version + 1}"
            )
        if after.version == before.version and after.definition != before.definition:
            raise MetricError(
                f"metrics.{name}: changed from {before.definition} to {after.definition}; "
                f"version must be greater than {before.version}"
            )


def _metric(application: str, name: str, table: Any) -> Metric:
    where = f"metrics.{name}"
    check.metric_name(where, name)
    if not isinstance(table, dict):
        raise MetricError(f"{where} = {table!r}: must be a table")
    check.require(where, table, _REQUIRED)
    types = types_for(table["type"])
    a_type = types[check.choice(f"{where}.type", table["type"], types)]
    memory = check.choice(f"{where}.memory", table.get("memory", _MEMORIES[0]), _MEMORIES)
    of_type = a_type.keys + a_type.optional_keys
    known = _REQUIRED + _OPTIONAL + _OF_MEMORY[memory] + of_type + _NOISE
    check.refuse_unknown(where, table, known)
    one_time = check.choice(f"{where}.mode", table.get("mode", _MODES[0]), _MODES) == _MODES[1]
    if memory == "period" and one_time:
        raise MetricError(f'{where}.memory = "period": must be left out, or mode "longitudinal"')
    check.require(where, table, (*a_type.keys, *(("f",) if one_time else _NOISE)))
    metric_type = a_type.from_table(where, table)
    return Metric(
        application=application,
        name=name,
        version=check.integer(f"{where}.version", table["version"], 1, MOST_VERSION),
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
        return {"max_values": check.integer(f"{where}.max_values", values, 1, MOST_VERSION)}
    check.require(where, table, ("period_days",))
    periods = table.get("max_periods", MAX_PERIODS)
    return {
        "period_days": check.integer(f"{where}.period_days", table["period_days"], 1, _MOST_DAYS),
        "max_periods": check.integer(f"{where}.max_periods", periods, 1, MOST_VERSION),
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
    usual = MetricType.epsilon_permanent, MetricType.epsilon_report
    own = type(metric_type).epsilon_permanent, type(metric_type).epsilon_report
    if metric_type.true_bits(params)[-1] > params.h and not set(own).isdisjoint(usual):
        raise MetricError(
            f"{where}.type = {metric_type.name!r}: values with more than {params.h} bits must have "
            "epsilons of their own, which the type's class doesn't state"
        )
    missing = None
    if params.f == 0:
        missing = "f = 0.0"
    elif (params.p, params.q) == (0.0, 1.0):
        missing = "p = 0.0, q = 1.0"
    if missing and not one_time:
        raise MetricError(
            f'{where}.{missing}: needs mode = "one-time", which sends a single report'
        )
    if one_time and not missing:
        raise MetricError(
            f'{where}.mode = "one-time": must leave out one response: f = 0, or neither p nor q'
        )
    return params
