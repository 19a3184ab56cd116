"""Read `Settings` from flags, environment and one TOML file, or list what is wrong with them.

A flag wins over the environment, that over the file, that over the default; tables of keys are
merged entry by entry. Every value keeps the name of the source it came from, for errors and for
`--print-config`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from hubbub.collector.config.masking import mask
from hubbub.collector.config.settings import (
    ENVIRONMENT_NESTING,
    ENVIRONMENT_PREFIX,
    ConfigError,
    ContradictionError,
    Settings,
)

CONFIG_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
_LONGEST_VALUE = 80
_Path = tuple[str | int, ...]

_EXPECTED = {
    "missing": "missing",
    "extra_forbidden": "unknown setting",
    "[key]": "must be a name of lower-case letters, digits, - and single _ (64 at most)",
    "sha256": "must be 64 lower-case hex digits, as `hubbub-collector token` prints them",
}


class SettingsSource(NamedTuple):
    """Where some of the values come from.

    Attributes
    ----------
    values : mapping of str to object
        As `Settings` takes them.
    type : str
        "flag", "environment" or the file's name.
    """

    values: Mapping[str, Any]
    type: str

    def name(self, path: _Path) -> str:
        """Return what a person would look for to change the value at a path."""
        if self.type == "flag":
            return "--" + str(path[0]).replace("_", "-")
        if self.type == "environment":
            return _variable(path)
        return f"{self.type}: {_dotted(path)}"


class Configuration(NamedTuple):
    """The effective settings, and where they come from.

    Attributes
    ----------
    settings : Settings
    sources : tuple of SettingsSource
        The strongest first.
    """

    settings: Settings
    sources: tuple[SettingsSource, ...]

    def origin(self, path: _Path) -> str:
        """Return the name of the source of a value, or "default"."""
        source = _source_of(path, self.sources)
        if source is None:
            return "default"
        return source.name(path) if source.type in {"flag", "environment"} else source.type


def load(flags: Mapping[str, Any], file: Path | None = None) -> Configuration:
    """Return the configuration of flags, environment and file.

    Parameters
    ----------
    flags : mapping of str to object
        Values by the names of the settings; only those that were given.
    file : Path, optional
        By default what HUBBUB_COLLECTOR_CONFIG names, if anything.

    Raises
    ------
    ConfigError
        With all faults at once.
    """
    if file is None and (named := os.environ.get(CONFIG_VARIABLE)):
        file = Path(named)
    from_file = _read(file) if file else {}
    sources = (
        SettingsSource(flags, "flag"),
        SettingsSource(_Environment(Settings)(), "environment"),
        SettingsSource(from_file, str(file)),
    )
    merged: dict[str, Any] = {}
    for source in reversed(sources):
        merged = _merged(merged, source.values)
    faults = list(_unknown_variables())
    for name in [name for name in merged if name.startswith("_")]:  # mean something to pydantic
        faults.append(f"{_described((name,), sources)}: {_EXPECTED['extra_forbidden']}")
        del merged[name]
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        faults += _faults(error, sources)
    if faults:
        raise ConfigError(tuple(map(mask, faults)))
    return Configuration(settings, sources)


class _Environment(EnvSettingsSource):
    """The variables HUBBUB_COLLECTOR_...; an empty one counts as unset."""

    def __init__(self, settings: type[Settings]) -> None:
        super().__init__(
            settings,
            env_prefix=ENVIRONMENT_PREFIX,
            env_nested_delimiter=ENVIRONMENT_NESTING,
            env_ignore_empty=True,
        )

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return a table or list from JSON; what isn't JSON is left to the checks of the field."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError((f"{file}: can't be read: {error.strerror}",)) from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise ConfigError((f"{file}: not valid TOML: {mask(str(error))}",)) from error


def _merged(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    both = {**weak, **strong}
    for name in weak.keys() & strong.keys():
        if isinstance(weak[name], Mapping) and isinstance(strong[name], Mapping):
            both[name] = _merged(weak[name], strong[name])
    return both


def _unknown_variables() -> Iterator[str]:
    """Name the variables that look like settings and aren't: misspelt ones must not be ignored."""
    known = {CONFIG_VARIABLE, *(_variable((field,)) for field in Settings.model_fields)}
    for name in sorted(os.environ):
        head = ENVIRONMENT_PREFIX + name[len(ENVIRONMENT_PREFIX) :].split(ENVIRONMENT_NESTING)[0]
        if name.upper().startswith(ENVIRONMENT_PREFIX) and head.upper() not in known:
            yield f"{name}: {_EXPECTED['extra_forbidden']}"


def _faults(error: ValidationError, sources: tuple[SettingsSource, ...]) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        reason = fault.get("ctx", {}).get("error")
        if isinstance(reason, ContradictionError):
            for field, text in reason.faults:
                yield f"{_described(tuple(field.split('.')), sources)}: {text}"
        elif fault["type"] != "default_factory_not_called":  # only follows from another fault
            path = tuple(part for part in fault["loc"] if part != "[key]")
            shown = _shown(fault["type"], fault["loc"], fault["input"])
            yield f"{_described(path, sources)}{shown}: {_expected(fault)}"


def _described(path: _Path, sources: tuple[SettingsSource, ...]) -> str:
    """Return the name of what has to be changed: in its source, or the setting's own."""
    source = _source_of(path, sources) or _source_of(path[:-1], sources)
    return source.name(path) if source else _dotted(path)


def _shown(fault_type: str, path: _Path, value: object) -> str:
    """Return " = value", unless it is missing, or might be a secret in the wrong place."""
    if fault_type in {"missing", "extra_forbidden"} or path[-1] in {"sha256", "[key]"}:
        return ""
    if not isinstance(value, (str, int, float)):
        return ""
    text = mask(repr(value))
    return f" = {text[:_LONGEST_VALUE]}{'...' * (len(text) > _LONGEST_VALUE)}"


def _expected(fault: Mapping[str, Any]) -> str:
    path = fault["loc"]
    text = _EXPECTED.get(fault["type"]) or _EXPECTED.get(str(path[-1]))
    if text is None:
        text = re.sub(r"^\w+ should ", "must ", fault["msg"])
    if path == ("metrics",) and fault["type"] == "missing":
        text += f"; give --metrics, {_variable(path)} or metrics in the file of --config"
    return text


def _source_of(path: _Path, sources: tuple[SettingsSource, ...]) -> SettingsSource | None:
    for source in sources:
        value: object = source.values
        for part in path:
            if not isinstance(value, Mapping) or part not in value:
                break
            value = value[part]
        else:
            if path:
                return source
    return None


def _variable(path: _Path) -> str:
    """Return the variable that holds the value at a path, or the table with it."""
    names = [
        ENVIRONMENT_PREFIX + ENVIRONMENT_NESTING.join(map(str, path[:length])).upper()
        for length in range(len(path), 0, -1)
    ]
    present = {name.upper() for name in os.environ}
    return next((name for name in names if name in present), names[0])


def _dotted(path: _Path) -> str:
    return ".".join(map(str, path))
