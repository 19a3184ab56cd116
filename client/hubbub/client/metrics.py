"""Metrics as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file. What a metric's reports mean may never change
under the same version, because reports drawn in different ways can't be told apart afterwards;
`check_compatible` is the guard.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hubbub.client import toml_checks as check
from hubbub.client.errors import MetricError, ParameterError, UnknownMetricError
from hubbub.client.kinds import BooleanKind, EnumKind, Kind, OrdinalKind, StringKind
from hubbub.client.params import RapporParams

if TYPE_CHECKING:
    from pathlib import Path

MAX_VALUES = 100
"""Default of `max_values`: distinct values that a client reports of a metric in its life."""

_TYPES = ("string", "enum", "boolean", "ordinal")
_MODES = ("longitudinal", "one-time")
_REQUIRED = ("version", "type", "description", "owner", "expires")
_OPTIONAL = ("mode", "max_values")
_OF_TYPE = {"string": ("k", "h", "m"), "enum": ("categories",), "ordinal": ("edges",)}
_NOISE = ("f", "p", "q")
_MAX_VERSION = 2**31 - 1
_MOST_BITS = 1024


@dataclass(frozen=True, slots=True)
class Metric:
    """One registered question to the population.

    Attributes
    ----------
    application : str
        The registry's application; with name and version, the domain that keeps this metric's
        permanent responses apart from every other's.
    name : str
    version : int
    kind : Kind
        The variable's type.
    params : RapporParams
    description, owner : str
        What is asked and why, and who answers for it.
    expires : datetime.date
        Last day (UTC) on which clients report.
    one_time : bool
        Whether a client reports once in its life; one of the two responses is then left out.
    max_values : int
        Distinct values that a client reports in its life.
    """

    application: str
    name: str
    version: int
    kind: Kind
    params: RapporParams
    description: str
    owner: str
    expires: dt.date
    one_time: bool = False
    max_values: int = MAX_VALUES

    @property
    def epsilon_permanent(self) -> float:
        """Bound on what all reports ever made of one value reveal; see `RapporParams`."""
        if isinstance(self.kind, BooleanKind):
            return self.params.epsilon_permanent_of_a_bit
        return self.params.epsilon_permanent

    @property
    def epsilon_report(self) -> float:
        """Bound on what a single report reveals; see `RapporParams`."""
        if isinstance(self.kind, BooleanKind):
            return self.params.epsilon_report_of_a_bit
        return self.params.epsilon_report

    @property
    def definition(self) -> dict[str, object]:
        """All that reports depend on, as JSON can hold it; fixed for a version."""
        return {"type": self.kind.name, **self.kind.definition(), **asdict(self.params)}


@dataclass(frozen=True, slots=True)
class Registry(Mapping[str, Metric]):
    """The metrics of one application, by name.

    Attributes
    ----------
    application : str
    lifetime_epsilon : float or None
        What a client may spend in its life, over all metrics; None: no bound but `max_values`.
    """

    application: str
    _metrics: Mapping[str, Metric] = field(repr=False)
    lifetime_epsilon: float | None = None

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
        except tomllib.TOMLDecodeError as error:
            raise MetricError(f"metrics.toml: not valid TOML: {error}") from error
        known = ("application", "lifetime_epsilon", "metrics")
        check.refuse_unknown("metrics.toml", document, known)
        application = check.text("application", document.get("application"))
        budget = document.get("lifetime_epsilon")
        tables = document.get("metrics")
        if not isinstance(tables, dict) or not tables:
            raise MetricError("metrics: must be at least one table [metrics.NAME]")
        metrics = {name: _metric(application, name, table) for name, table in tables.items()}
        return cls(
            application,
            MappingProxyType(metrics),
            None if budget is None else check.positive("lifetime_epsilon", budget),
        )

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
        If the application differs, a version goes down, or a definition changed without a new one.
    """
    if old.application != new.application:
        raise MetricError(
            f"application = {new.application!r}: must stay {old.application!r}, because every "
            "client's permanent responses depend on it"
        )
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if after.version < before.version:
            raise MetricError(
                f"metrics.{name}.version = {after.version}: must be at least {before.version}"
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
    kind_name = check.choice(f"{where}.type", table["type"], _TYPES)
    of_type = _OF_TYPE.get(kind_name, ())
    check.refuse_unknown(where, table, _REQUIRED + _OPTIONAL + of_type + _NOISE)
    one_time = check.choice(f"{where}.mode", table.get("mode", _MODES[0]), _MODES) == _MODES[1]
    check.require(where, table, (*of_type, *(("f",) if one_time else _NOISE)))
    kind = _kind(where, kind_name, table)
    return Metric(
        application=application,
        name=name,
        version=check.integer(f"{where}.version", table["version"], 1, _MAX_VERSION),
        kind=kind,
        params=_params(where, kind, one_time, table),
        description=check.text(f"{where}.description", table["description"]),
        owner=check.text(f"{where}.owner", table["owner"]),
        expires=check.date(f"{where}.expires", table["expires"]),
        one_time=one_time,
        max_values=check.integer(
            f"{where}.max_values", table.get("max_values", MAX_VALUES), 1, _MAX_VERSION
        ),
    )


def _kind(where: str, name: str, table: Mapping[str, object]) -> Kind:
    if name == "enum":
        values = table["categories"]
        return EnumKind(check.different_texts(f"{where}.categories", values, 2, _MOST_BITS))
    if name == "ordinal":
        edges = table["edges"]
        return OrdinalKind(check.ascending_numbers(f"{where}.edges", edges, 1, _MOST_BITS - 1))
    return BooleanKind() if name == "boolean" else StringKind()


def _params(where: str, kind: Kind, one_time: bool, table: Mapping[str, Any]) -> RapporParams:
    """Return the parameters; without p and q there is no second response."""
    noise = {"f": table["f"], "p": table.get("p", 0.0), "q": table.get("q", 1.0)}
    try:
        if isinstance(kind, StringKind):
            params = RapporParams(k=table["k"], h=table["h"], m=table["m"], **noise)
        else:
            params = RapporParams(k=-(-kind.width // 8) * 8, h=1, m=1, **noise)
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
    if {params.p, params.q} == {0.0, 1.0}:
        return f"p = {params.p}, q = {params.q}"
    return None
