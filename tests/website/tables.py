"""Tables of the site that are made from the code or kept as data, so that no copy can differ."""

import ast
import csv
import json
import posixpath
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hubbub.collector import FAMILIES, AdminToken, IngestKey, Settings, describe
from hubbub.protocol import METRIC_TYPES, MetricType

ROOT = Path(__file__).parents[2]
MEASURED = re.compile(r"^\[[^\]\n]+\]\(((?:\S*/)?data/[\w-]+\.csv)\)$", re.MULTILINE)
"""A link to a measured table, on a line of its own."""


def settings() -> str:
    models: tuple[tuple[str, type[BaseModel]], ...] = (
        ("", Settings),
        ("ingest_keys.NAME.", IngestKey),
        ("admin_tokens.NAME.", AdminToken),
    )
    rows = []
    for prefix, model in models:
        for name, field in model.model_fields.items():
            words, default = describe(field)
            shown = default if default in {"required", "unset"} else f"`{default}`"
            rows.append((f"`{prefix}{name}`", shown, words))
    return _table(("setting", "default", "what it is"), rows)


def numbers() -> str:
    """Return what the collector publishes for Prometheus."""
    rows = []
    for key, family in FAMILIES.items():
        name = f"hubbub_{key}{'_total' if family.type == 'counter' else ''}"
        rows.append((f"`{name}`", ", ".join(family.labels), family.help))
    return _table(("name", "labels", "meaning"), rows)


def registry_keys() -> str:
    """Return the keys of an entry in metrics.toml that all types have."""
    schema = _metric_schema()
    # A number has a q of its own, without a default.
    of_types = {key for each in METRIC_TYPES.values() for key in _own_keys(each)} - {"q"}
    rows = [
        (f"`{name}`", "yes" if name in schema["required"] else "", key["description"])
        for name, key in schema["properties"].items()
        if name not in of_types
    ]
    return _table(("key", "required", "what it is"), rows)


def type_keys() -> str:
    rows = []
    properties = _metric_schema()["properties"]
    for name, a_type in sorted(METRIC_TYPES.items()):
        for key in _own_keys(a_type):
            needed = "yes" if key in a_type.keys else ""
            rows.append((f"`{name}`", f"`{key}`", needed, properties[key]["description"]))
    return _table(("type", "key", "required", "what it is"), rows)


def _metric_schema() -> dict[str, Any]:
    schema = json.loads((ROOT / "docs/protocol/metrics.schema.json").read_bytes())
    metric: dict[str, Any] = schema["definitions"]["metric"]
    return metric


def _own_keys(a_type: type[MetricType]) -> tuple[str, ...]:
    return a_type.keys + a_type.optional_keys


def http() -> str:
    """Return the public interface as the collector's own OpenAPI document has it."""
    document = json.loads(files("hubbub.collector").joinpath("openapi.json").read_bytes())
    parts = []
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            if verb == "head":
                continue  # answers as GET does, without a body
            rows = [
                (status, _one_line(_resolved(document, answer).get("description", "")))
                for status, answer in operation["responses"].items()
            ]
            about = operation.get("description") or operation.get("summary") or ""
            parts.append(
                f"## `{verb.upper()} {path}`\n\n{about}\n\n" + _table(("status", "meaning"), rows)
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
    reference = answer.get("$ref")
    if reference is None:
        return answer
    found: dict[str, Any] = document["components"]["responses"][reference.rsplit("/", 1)[1]]
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def origins() -> dict[str, dict[str, Any]]:
    """Return, by the name of each measured table, its commands, its date and perhaps a machine."""
    return tomllib.loads((ROOT / "docs/measured/data/tables.toml").read_text(encoding="utf-8"))


def examples() -> str:
    """Return each test of tests/examples: its name and docstring as text, the rest as code."""
    source = (Path(__file__).parents[1] / "examples/test_examples.py").read_text(encoding="utf-8")
    shown = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            title = node.name.removeprefix("test_").replace("_", " ").capitalize()
            code = textwrap.dedent(
                "\n".join(source.splitlines()[node.lineno + 1 : node.end_lineno])
            )
            shown.append(f"## {title}\n\n{ast.get_docstring(node)}\n\n```python\n{code}\n```\n")
    return "\n".join(shown)


def measured(link: str, path: Path) -> str:
    """Return a measured table, below it the link to its data, and what measured it and when."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = (
            [re.sub(r"([\\`*_|<\[])", r"\\\1", cell) for cell in row] for row in csv.reader(file)
        )
    origin = origins()[path.stem]
    where = f", on {origin['machine']}" if "machine" in origin else ""
    commands = "".join(f"    {command}\n" for command in origin["commands"])
    return f"{_table(head, rows)}\n{link}, measured {origin['date']}{where}, by\n\n{commands}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
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
    "examples": examples,
}
