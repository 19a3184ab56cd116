"""Metrics as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file. A metric's parameters may never change under the
same version, because reports drawn with different parameters can't be told apart afterwards;
`check_compatible` is the guard.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from hubbub.client.errors import MetricError, ParameterError, UnknownMetricError
from hubbub.client.params import RapporParams

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NAME_RULE = "must be 1 to 64 of a-z, 0-9, _ and -, a letter first"
_PARAMETERS = ("k", "h", "m", "f", "p", "q")
_DESCRIPTIVE = ("version", "type", "description", "owner", "expires")
_MAX_VERSION = 2**31 - 1


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
    params : RapporParams
    description, owner : str
        What is asked and why, and who answers for it.
    expires : datetime.date
        Last day (UTC) on which clients report.
    """

    application: str
    name: str
    version: int
    params: RapporParams
    description: str
    owner: str
    expires: dt.date


@dataclass(frozen=True, slots=True)
class Registry(Mapping[str, Metric]):
    """The metrics of one application, by name."""

    application: str
    _metrics: Mapping[str, Metric] = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> Registry:
        """Read metrics.toml.

        Raises
        ------
        MetricError
            If the file can't be read, isn't TOML, or an entry is wrong (the message says where).
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MetricError(f"{path}: can't be read as UTF-8 text: {error}") from error
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read a registry from the text of a metrics.toml (raises as `load`)."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise MetricError(f"metrics.toml: not valid TOML: {error}") from error
        _refuse_unknown("metrics.toml", document, ("application", "metrics"))
        application = _text("application", document.get("application"))
        tables = document.get("metrics")
        if not isinstance(tables, dict) or not tables:
            raise MetricError("metrics: must be at least one table [metrics.NAME]")
        metrics = {name: _metric(application, name, table) for name, table in tables.items()}
        return cls(application, MappingProxyType(metrics))

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
        If the application differs, a version goes down, or parameters changed without a new one.
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
        if after.version == before.version and after.params != before.params:
            raise MetricError(
                f"metrics.{name}: parameters changed from {before.params} to {after.params}; "
                f"version must be greater than {before.version}"
            )


def _metric(application: str, name: str, table: object) -> Metric:
    where = f"metrics.{name}"
    if not _NAME.fullmatch(name):
        raise MetricError(f"{where}: the name {_NAME_RULE}")
    if not isinstance(table, dict):
        raise MetricError(f"{where} = {table!r}: must be a table")
    _refuse_unknown(where, table, _DESCRIPTIVE + _PARAMETERS)
    for key in _DESCRIPTIVE + _PARAMETERS:
        if key not in table:
            raise MetricError(f"{where}.{key}: is missing")
    if table["type"] != "string":
        raise MetricError(f'{where}.type = {table["type"]!r}: must be "string"')
    try:
        params = RapporParams(**{key: table[key] for key in _PARAMETERS})
    except ParameterError as error:
        raise MetricError(f"{where}.{error}") from error
    return Metric(
        application=application,
        name=name,
        version=_version(where, table["version"]),
        params=params,
        description=_text(f"{where}.description", table["description"]),
        owner=_text(f"{where}.owner", table["owner"]),
        expires=_date(f"{where}.expires", table["expires"]),
    )


def _refuse_unknown(where: str, table: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise MetricError(f"{where}: unknown key {key!r}; must be one of: {', '.join(known)}")


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        found = "is missing" if value is None else f"= {value!r}"
        raise MetricError(f"{where} {found}: must be a text that isn't blank")
    return value


def _version(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_VERSION:
        raise MetricError(
            f"{where}.version = {value!r}: must be an integer between 1 and {_MAX_VERSION}"
        )
    return value


def _date(where: str, value: object) -> dt.date:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise MetricError(f"{where} = {value!r}: must be a date like 2027-12-31, without quotes")
    return value
