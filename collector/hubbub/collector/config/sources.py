"""Read `Settings` from flags, environment and one TOML file, and write them as TOML again.

A flag wins over the environment, that over the file, that over the default; tables of keys are
merged entry by entry. Every value keeps the name of the source it came from, for errors and for
`--print-config`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from hubbub.collector.config.settings import ConfigError, ContradictionError, Settings
from hubbub.storage.errors import mask

CONFIG_VARIABLE = "HUBBUB_COLLECTOR_CONFIG"
_PREFIX = "HUBBUB_COLLECTOR_"
_NESTING = "__"
_LONGEST_VALUE = 80  # characters: a message stays on two lines of a terminal
_Path = tuple[str | int, ...]

_UNKNOWN = "unknown setting"
_EXPECTED = {
    "missing": "missing",
    "extra_forbidden": _UNKNOWN,
    "[key]": "must be a name of lower-case letters, digits, - and single _ (64 at most)",
    "sha256": "must be 64 lower-case hex digits, as `hubbub-collector token` prints them",
}


class SettingsSource(NamedTuple):
    """Where some of the values come from."""

    values: Mapping[str, Any]  # as `Settings` takes them
    type: str  # "flag", "environment" or the file's name

    def name(self, path: _Path) -> str:
        """Return what a person would look for to change the value at a path."""
        if self.type == "flag":
            return "--" + str(path[0]).replace("_", "-")
        if self.type == "environment":
            return _variable(path)
        return f"{self.type}: {'.'.join(map(str, path))}"

    def has(self, path: _Path) -> bool:
        """Return whether there is a value at a path."""
        value: object = self.values
        for part in path:
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return bool(path)


class Configuration(NamedTuple):
    """The effective settings, and where they come from."""

    settings: Settings
    sources: tuple[SettingsSource, ...]  # the strongest first

    def origin(self, path: _Path) -> str:
        """Return the name of the source of a value, or "default"."""
        for source in self.sources:
            if source.has(path):
                is_file = source.type not in {"flag", "environment"}
                return source.type if is_file else source.name(path)
        return "default"


def load(
    flags: Mapping[str, Any], file: Path | None = None, only: Collection[str] | None = None
) -> Configuration:
    """Return the configuration of flags, environment and file.

    `flags`: values by the names of the settings; None: not given. `file`: by default what
    HUBBUB_COLLECTOR_CONFIG names, if anything. `only`: the settings that matter. The others may be
    missing or wrong, but not unknown: a misspelt name must not let a default stand in for what was
    meant. Raises `ConfigError` with all faults at once.
    """
    if file is None and (named := os.environ.get(CONFIG_VARIABLE)):
        file = Path(named)
    sources = (
        SettingsSource({n: value for n, value in flags.items() if value is not None}, "flag"),
        SettingsSource(_environment(), "environment"),
        SettingsSource(_read(file) if file else {}, str(file)),
    )
    merged: dict[str, Any] = {}
    for source in reversed(sources):
        merged = _merged(merged, source.values)
    if only is not None:
        for name in Settings.model_fields.keys() - set(only):
            merged.pop(name, None)
        if "metrics" not in only:
            merged["metrics"] = ""
    faults = list(_unknown_variables())
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        faults += _describe(error, sources)
    if faults:
        raise ConfigError(tuple(map(mask, faults)))
    return Configuration(settings, sources)


def _environment() -> Mapping[str, Any]:
    """Return the values of the variables HUBBUB_COLLECTOR_...; an empty one counts as unset."""
    if not any(name.upper().startswith(_PREFIX) for name in os.environ):
        return {}
    # Only now, because most collectors are configured by a file, and it takes its time.
    from pydantic_settings import BaseSettings, EnvSettingsSource  # noqa: PLC0415

    class Environment(EnvSettingsSource):
        def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
            """Return a table or list from JSON; what isn't is left to the checks of the field."""
            try:
                return super().decode_complex_value(field_name, field, value)
            except ValueError:
                return value

    return Environment(
        cast("type[BaseSettings]", Settings),  # of which it needs the fields
        env_prefix=_PREFIX,
        env_nested_delimiter=_NESTING,
        env_ignore_empty=True,
    )()


# Not pydantic-settings' TomlConfigSettingsSource, which takes a missing file for an empty one and
# doesn't name the file in its errors; decision 12 says more.
def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
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
    known = {CONFIG_VARIABLE, *(_variable((field,)) for field in Settings.model_fields)}
    for name in sorted(os.environ):
        head = _PREFIX + name[len(_PREFIX) :].split(_NESTING)[0]
        if name.upper().startswith(_PREFIX) and head.upper() not in known:
            yield f"{name}: {_UNKNOWN}"


def _describe(error: ValidationError, sources: tuple[SettingsSource, ...]) -> Iterator[str]:
    """Yield each fault: the name of the value in its source, the value, and what was expected."""

    def name(path: _Path) -> str:
        for part in (path, path[:-1]):  # what is missing has no source, but its table has
            for source in sources:
                if source.has(part):
                    return source.name(path)
        return ".".join(map(str, path))

    for fault in error.errors(include_url=False):
        kind, location, value = fault["type"], fault["loc"], fault["input"]
        reason = fault.get("ctx", {}).get("error")
        if isinstance(reason, ContradictionError):
            for field, text in reason.faults:
                yield f"{name(tuple(field.split('.')))}: {text}"
            continue
        if kind == "default_factory_not_called":  # only follows from another fault
            continue
        expected = _EXPECTED.get(kind) or _EXPECTED.get(str(location[-1]))
        if expected is None:
            expected = re.sub(r"^\w+ should ", "must ", fault["msg"])
        if location == ("metrics",) and kind == "missing":
            ways = f"--metrics, {_variable(location)} or metrics in the file of --config"
            expected += f"; give {ways}"
        path = tuple(part for part in location if part != "[key]")
        yield f"{name(path)}{_shown(kind, location, value)}: {expected}"


def _shown(kind: str, location: _Path, value: object) -> str:
    is_secret = kind == "extra_forbidden" or location[-1] in {"sha256", "[key]"}
    if kind == "missing" or is_secret or not isinstance(value, (str, int, float)):
        return ""
    text = mask(repr(value))
    return f" = {text[:_LONGEST_VALUE]}{'...' * (len(text) > _LONGEST_VALUE)}"


def _variable(path: _Path) -> str:
    names = [
        _PREFIX + _NESTING.join(map(str, path[:length])).upper()
        for length in range(len(path), 0, -1)
    ]
    present = {name.upper() for name in os.environ}
    return next((name for name in names if name in present), names[0])


def to_toml(configuration: Configuration) -> str:
    """Return the effective configuration as TOML, with the source of each value as a comment.

    Passwords in the store's address are masked, hashes of secrets are not.
    """

    def lines(table: tuple[str, ...], values: Mapping[str, Any]) -> Iterator[str]:
        for name, value in values.items():
            if value is None:
                yield f"# {name} is not set"
            elif not isinstance(value, Mapping):
                origin = configuration.origin((*table, name))
                yield f"{name} = {mask(toml_value(value))}  # {origin}"

    values = configuration.settings.model_dump()
    text = list(lines((), values))
    for field, entries in values.items():
        if isinstance(entries, Mapping):
            for name, entry in entries.items():
                text += ["", f"[{field}.{name}]", *lines((field, name), entry)]
    return "\n".join(text) + "\n"


def toml_value(value: object) -> str:
    """Return a string, number, boolean, date, path or collection of strings as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str() | Path():
            # JSON's escapes are TOML's, except that TOML wants DEL escaped too.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
        case dt.date():
            return value.isoformat()
        case frozenset() | tuple():
            return f"[{', '.join(sorted(map(toml_value, value)))}]"
        case _:
            return repr(value)


def describe_default(field: FieldInfo) -> str:
    """Return a field's default as TOML, "unset" or "required"."""
    if field.is_required():
        return "required"
    default: Any = field.default
    if field.default_factory is not None or default is None or default == {}:
        return "unset"
    return toml_value(default)
