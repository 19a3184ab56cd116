"""Tables of the site that are made from the code, so that they can't differ from it."""

import posixpath
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hubbub.collector.config.settings import AdminToken, IngestKey, SealedTo, Settings
from hubbub.collector.config.sources import describe_default
from hubbub.collector.ingest.openapi import openapi_document
from hubbub.collector.operations.metrics import FAMILIES, FamilyType
from hubbub.protocol import registry
from hubbub.protocol.metric_types import types_for
from hubbub.protocol.registry import Registry

ROOT = Path(__file__).parents[2]

OF_ALL_TYPES = {
    "version": "A whole number. A change of what reports depend on needs the next one.",
    "type": "One of the types below.",
    "description": "What is asked and why, in words for users; `explain()` shows them.",
    "owner": "Whom to ask about the metric.",
    "expires": "Last day on which clients report it.",
    "mode": '`"once"` (one report each period, recommended), `"one-time"` (one in a life) or '
    '`"longitudinal"` (the default: as many as the app records).',
    "memory": 'Longitudinal only. `"value"`: each value keeps its permanent response for life. '
    '`"period"`: one response per period.',
    "response": '`"unary"` (the default: noise on each bit) or `"subset"` (a set of categories).',
    "size": 'Categories in a set, with `response = "subset"`.',
    "period_days": "Length of a period.",
    "max_periods": "Periods that a client answers in its life.",
    "max_values": 'Different values that a client reports in its life, with `memory = "value"`.',
    "f": "Noise of the permanent response: chance that a bit is replaced by a fair coin.",
    "f0": "Instead of f: chance that a 0 becomes 1.",
    "f1": "Instead of f: chance that a 1 becomes 0.",
    "p": "Chance that a bit that is 0 is reported as 1.",
    "q": "Chance that a bit that is 1 is reported as 1; of a subset or a number, that the answer "
    "is among what is named.",
    "reports_per_day": "How many reports a client may make in a day; more are dropped.",
}
OF_A_TYPE = {
    "k": "Bits of the Bloom filter: a multiple of 8 from 8 to 1024.",
    "h": "Hashes, that is bits that a value sets. 1 is nearly always best.",
    "m": "Cohorts; of an open string, of each step.",
    "categories": "List of texts.",
    "other": 'Whether any other text counts as "other" instead of being refused.',
    "edges": "Rising numbers; a value falls between two of them.",
    "low": "Least number; lower ones are clipped.",
    "high": "Largest number; higher ones are clipped.",
    "cells": "Parts into which the range is cut.",
    "window": "Cells around the value's own that are reported more often.",
    "variance": "Whether the variance is estimated, too.",
    "fields": "Two or three tables with `name`, `type` and what the type needs.",
    "steps": "Lengths of the prefixes in bytes, rising.",
}


def settings() -> str:
    """Return all settings of the collector."""
    models: tuple[tuple[str, type[BaseModel]], ...] = (
        ("", Settings),
        ("ingest_keys.NAME.", IngestKey),
        ("sealing_keys.NAME.", SealedTo),
        ("admin_tokens.NAME.", AdminToken),
    )
    rows = []
    for prefix, model in models:
        for name, field in model.model_fields.items():
            default = describe_default(field)
            shown = default if default in {"required", "unset"} else f"`{default}`"
            rows.append((f"`{prefix}{name}`", shown, field.description or ""))
    return _table(("setting", "default", "what it is"), rows)


def numbers() -> str:
    """Return what the collector publishes for Prometheus."""
    rows = []
    for family in FAMILIES.values():
        name = family.exposed + ("_total" if family.type is FamilyType.COUNTER else "")
        rows.append((f"`{name}`", ", ".join(family.labels), family.help))
    return _table(("name", "labels", "meaning"), rows)


def registry_keys() -> str:
    """Return the keys of an entry in metrics.toml, for all types and for each."""
    required = set(registry._REQUIRED)
    rows = [
        (f"`{key}`", "yes" if key in required else "", text) for key, text in OF_ALL_TYPES.items()
    ]
    return _table(("key", "required", "what it is"), rows)


def type_keys() -> str:
    """Return the keys that each type has of its own."""
    rows = []
    for name, a_type in sorted(types_for("string").items()):
        for key in a_type.keys + a_type.optional_keys:
            needed = "yes" if key in a_type.keys else ""
            rows.append((f"`{name}`", f"`{key}`", needed, OF_A_TYPE.get(key) or OF_ALL_TYPES[key]))
    return _table(("type", "key", "required", "what it is"), rows)


def http() -> str:
    """Return the public interface as the collector's own OpenAPI document has it."""
    example = Registry.parse((ROOT / "docs" / "examples" / "metrics.toml").read_text())
    document = openapi_document(Settings(metrics=Path("metrics.toml")), example)
    parts = []
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            rows = [
                (status, _one_line(_resolved(document, answer).get("description", "")))
                for status, answer in operation["responses"].items()
            ]
            about = operation.get("description") or operation.get("summary") or ""
            parts.append(
                f"### `{verb.upper()} {path}`\n\n{about}\n\n" + _table(("status", "meaning"), rows)
            )
    return "\n".join(parts)


def javascript() -> str:
    """Return the JavaScript client's own README without its title, links as from docs/reference."""
    folder = "client/javascript"
    text = (ROOT / folder / "README.md").read_text().split("\n", 1)[1]
    return re.sub(
        r"\]\((?!https?:|#)([^)\s]+)\)",
        lambda match: f"]({posixpath.relpath(posixpath.join(folder, match[1]), 'docs/reference')})",
        text,
    )


def _resolved(document: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, or the one that it refers to."""
    reference = answer.get("$ref")
    if reference is None:
        return answer
    found: dict[str, Any] = document["components"]["responses"][reference.rsplit("/", 1)[1]]
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    head = tuple(head)
    lines = [head, ("---",) * len(head), *(tuple(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "numbers": numbers,
    "registry_keys": registry_keys,
    "type_keys": type_keys,
    "http": http,
    "javascript": javascript,
}
