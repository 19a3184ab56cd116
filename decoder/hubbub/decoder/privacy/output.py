"""Privacy figures as people and programs want them: tables with their theorems, CSV, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from hubbub.client.metrics import Registry
from hubbub.decoder.output.cells import cell, csv_line, finite
from hubbub.decoder.output.files import Rendering, utf8
from hubbub.decoder.privacy.figures import Figure, Situation

_REGISTRY = ""
_HEADINGS = {
    "epsilon_report": "a report",
    "epsilon_permanent": "permanent",
    "epsilon_days": "{days:,} days",
    "epsilon_days_exact": "{days:,} days, exact",
    "epsilon_values": "{values:,} values",
    "epsilon_household": "household of {household:,}",
    "reports_known_0.5": "known after (0.5)",
    "reports_known_0.99": "known after (0.99)",
    "central_closed_form": "closed form",
    "central_clones": "clones",
    "central_blanket": "blanket",
    "central_epsilon": "least",
}


@dataclass(frozen=True, slots=True)
class Account:
    """All figures of a registry.

    Attributes
    ----------
    registry : Registry
    situation : Situation
    metrics : mapping of str to tuple of Figure
    together : tuple of Figure
    """

    registry: Registry
    situation: Situation
    metrics: Mapping[str, tuple[Figure, ...]]
    together: tuple[Figure, ...]


def renderings(account: Account) -> dict[str, Rendering]:
    """Return the ways to write an account, by suffix."""
    return {".csv": utf8(lambda: _csv(account)), ".json": utf8(lambda: [_json(account)])}


def show(account: Account, console: Console) -> None:
    """Print the tables, then what each column rests on."""
    situation = account.situation
    table = _table(account, "What a client reveals (epsilon)", ("epsilon", "reports"))
    console.print(Group(table, Text()))
    if situation.reports is not None:
        title = f"After shuffling {situation.reports:,} reports (epsilon at delta "
        console.print(Group(_table(account, f"{title}{situation.delta:g})", ("central",)), Text()))
    for figure in account.together:
        who = "A client" if situation.household == 1 else f"A household of {situation.household}"
        if ("household" in figure.key) == (situation.household > 1):
            console.print(
                f"{who}, over all metrics and {situation.days:,} days: epsilon {_number(figure)}"
                f" ({figure.theorem}).",
                soft_wrap=True,
                highlight=False,
            )
    console.print()
    for heading, theorems in _theorems(account).items():
        console.print(f"{heading}: {' / '.join(theorems)}", soft_wrap=True, highlight=False)


def _table(account: Account, title: str, prefixes: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("metric", overflow="fold")
    for key in _HEADINGS:
        if key.startswith(prefixes):
            table.add_column(_heading(key, account.situation), justify="right")
    for name, figures in account.metrics.items():
        table.add_row(name, *(_number(f) for f in figures if f.key.startswith(prefixes)))
    return table


def _theorems(account: Account) -> dict[str, list[str]]:
    """Return what each column rests on; metrics of different types may differ."""
    found: dict[str, list[str]] = {}
    for figures in account.metrics.values():
        for figure in figures:
            said = found.setdefault(_heading(figure.key, account.situation), [])
            if figure.theorem not in said:
                said.append(figure.theorem)
    return found


def _heading(key: str, situation: Situation) -> str:
    return _HEADINGS[key].format(
        days=situation.days, values=situation.values, household=situation.household
    )


def _number(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "-"
    if math.isinf(figure.value):
        return "unbounded" if figure.key.startswith("epsilon") else "never"
    return f"{figure.value:,.0f}" if figure.key.startswith("reports") else f"{figure.value:.4g}"


def _csv(account: Account) -> Iterator[str]:
    yield csv_line(["metric", "figure", "value", "theorem"])
    for name, figures in [*account.metrics.items(), (_REGISTRY, account.together)]:
        for figure in figures:
            yield csv_line([name, figure.key, cell(figure.value), figure.theorem])


def _json(account: Account) -> str:
    situation = account.situation
    document = {
        "application": account.registry.application,
        "situation": {
            "days": situation.days,
            "values": situation.values,
            "household": situation.household,
            "reports": situation.reports,
            "delta": situation.delta,
        },
        "metrics": {name: _object(figures) for name, figures in account.metrics.items()},
        "registry": _object(account.together),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _object(figures: tuple[Figure, ...]) -> dict[str, object]:
    """Return figures by key; null stands for a bound that doesn't exist or apply."""
    return {f.key: {"value": finite(f.value), "theorem": f.theorem} for f in figures}
