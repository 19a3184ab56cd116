"""The configuration as TOML that can be read back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from hubbub.collector.config.masking import mask
from hubbub.collector.config.sources import Configuration


def to_toml(configuration: Configuration) -> str:
    """Return the effective configuration as TOML, with the source of each value as a comment.

    Passwords in the store's address are masked, hashes of secrets are not.
    """
    values = configuration.settings.model_dump()
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    lines = list(_lines(configuration, (), values))
    for field, entries in tables.items():
        for name, entry in entries.items():
            lines += ["", f"[{field}.{name}]", *_lines(configuration, (field, name), entry)]
    return "\n".join(lines) + "\n"


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


def _lines(
    configuration: Configuration, table: tuple[str, ...], values: Mapping[str, Any]
) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            continue
        if value is None:
            yield f"# {name} is not set"
        else:
            text = mask(toml_value(value))
            yield f"{name} = {text}  # {configuration.origin((*table, name))}"
