"""The keys of metrics.toml: which may stand in a table, and what each may hold by itself.

Nothing here compares one value with another, so that all faults of a table's keys are reported
together: what only several keys make wrong, `hubbub.protocol.registry` refuses. The keys of a
metric's type are the type's to check. Invariant: what the reader accepts, docs/protocol/
metrics.schema.json accepts, by which editors complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from hubbub.protocol import checks as check, dimensions
from hubbub.protocol.errors import MetricError
from hubbub.protocol.metric_types import METRIC_TYPES
from hubbub.protocol.params import MOST_BITS

MODES = ("longitudinal", "one-time", "once")
MEMORIES = ("value", "period")
RESPONSES = ("unary", "subset")
CHOICES = ("life", "period")
NOISE = ("f", "f0", "f1", "p", "q")
MOST_VERSION = 2**31 - 1  # fits a signed 32-bit integer, as databases have
MOST_DIMENSIONS = 5  # 2^6 combinations are `dimensions.MOST_SLICES`, and one is left for others
MOST_DAYS = 3650  # ten years, longer than an installation of an app lives

ADDRESS = (
    "https://raw.githubusercontent.com/hubbub-telemetry/hubbub/main/docs/protocol/"
    "metrics.schema.json"
)
"""Where the JSON Schema is published."""

Check = Callable[[str, Any], object]
"""Takes where a key is and its value, and refuses that with a `MetricError`."""


FILE: Mapping[str, Check] = {
    "application": check.text,
    "lifetime_epsilon": check.positive,
    "dimensions": dimensions.read_dimensions,
}
"""The file's own keys, besides the tables `metrics` and `groups`."""

GROUP: Mapping[str, Check] = {
    "metrics": partial(check.different_texts, low=2, high=MOST_VERSION),
    "choice": partial(check.choice, choices=CHOICES),
}

METRIC: Mapping[str, Check] = {
    "version": partial(check.integer, low=1, high=MOST_VERSION),
    "type": partial(check.choice, choices=tuple(METRIC_TYPES)),
    "description": check.text,
    "owner": check.text,
    "expires": check.date,
    "mode": partial(check.choice, choices=MODES),
    "memory": partial(check.choice, choices=MEMORIES),
    "response": partial(check.choice, choices=RESPONSES),
    "dimensions": partial(check.different_texts, low=1, high=MOST_DIMENSIONS),
    "min_reports": partial(check.integer, low=dimensions.LEAST_MIN_REPORTS, high=MOST_VERSION),
    **dict.fromkeys(NOISE, check.share),
    "reports_per_day": partial(check.integer, low=1, high=1),
    "max_values": partial(check.integer, low=1, high=MOST_VERSION),
    "period_days": partial(check.integer, low=1, high=MOST_DAYS),
    "max_periods": partial(check.integer, low=1, high=MOST_VERSION),
    "size": partial(check.integer, low=1, high=MOST_BITS - 1),
}
"""The keys of metrics, besides those of their types."""

REQUIRED = ("version", "type", "description", "owner", "expires")
OPTIONAL = ("mode", "memory", "response", "dimensions", "min_reports", *NOISE)


def check_file(document: Mapping[str, Any], file: str) -> None:
    """Refuse what is wrong with the file's own keys (MetricError)."""
    faults = check.Faults()
    with faults.collected():
        check.refuse_unknown(file, document, (*FILE, "metrics", "groups"), is_file=True)
    for key, rule in FILE.items():
        if key in document or key == "application":
            with faults.collected():
                rule(key, document.get(key))
    if not isinstance(document.get("metrics"), dict) or not document["metrics"]:
        message = "metrics: must be at least one table [metrics.NAME]"
        faults.found.append(MetricError.about("metrics", message))
    if not isinstance(groups := document.get("groups", {}), dict):
        message = f"groups = {groups!r}: must be tables [groups.NAME]"
        faults.found.append(MetricError.about("groups", message))
    faults.raise_found()


def check_metric(name: str, table: Any) -> None:
    """Refuse what is wrong with the name and the keys of a metric (MetricError)."""
    required, optional = [*REQUIRED], [*OPTIONAL]
    if isinstance(table, dict):
        named, mode = table.get("type"), table.get("mode")
        if mode not in ("one-time", "once"):
            optional.append("reports_per_day")
        if mode == "once" or table.get("memory") == "period":
            required.append("period_days")
            optional.append("max_periods")
        else:
            optional.append("max_values")
        if table.get("response") == "subset":
            required.append("size")
        metric_type = METRIC_TYPES.get(named) if isinstance(named, str) else None
        if metric_type:
            required += metric_type.keys
            optional += metric_type.optional_keys
        choices = {"mode": MODES, "memory": MEMORIES, "response": RESPONSES}
        are_known = all(table.get(key, of[0]) in of for key, of in choices.items())
        # A wrong type or mode has no known keys.
        if not (metric_type and are_known):
            optional += METRIC
            for each in METRIC_TYPES.values():
                optional += (*each.keys, *each.optional_keys)
    _check_table(f"metrics.{name}", name, table, METRIC, required, (*required, *optional))


def check_group(name: str, table: Any) -> None:
    """Refuse what is wrong with the name and the keys of a group (MetricError)."""
    _check_table(f"groups.{name}", name, table, GROUP, ["metrics"], GROUP)


def _check_table(
    where: str,
    name: str,
    table: Any,
    rules: Mapping[str, Check],
    required: Collection[str],
    known: Collection[str],
) -> None:
    check.metric_name(where, name)
    if not isinstance(table, dict):
        raise MetricError.of(where, table, "a table")
    faults = check.Faults()
    with faults.collected():
        check.refuse_unknown(where, table, list(dict.fromkeys(known)))
    with faults.collected():
        check.require(where, table, dict.fromkeys(required))
    for key, value in table.items():
        if key in known and key in rules:
            with faults.collected():
                rules[key](f"{where}.{key}", value)
    faults.raise_found()
