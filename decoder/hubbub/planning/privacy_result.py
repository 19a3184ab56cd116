"""Privacy figures as a result: tables with their theorems, and a row a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from hubbub.planning.privacy import Figure, Situation
from hubbub.protocol.registry import Registry
from hubbub.reporting.result import (
    Block,
    Columns,
    Heading,
    Line,
    Result,
    Table,
    Types,
    columns_of,
)

_EVERYBODY = 1e10  # more than there are people
_TYPES: dict[str, type] = {"metric": str, "figure": str, "value": float, "theorem": str}
_REGISTRY = ""
_REPORTS = {
    "epsilon_report": "a report",
    "epsilon_permanent": "permanent",
    "reports_known_0.5": "known after (0.5)",
    "reports_known_0.99": "known after (0.99)",
}
_LIFE = {
    "epsilon_days": "one value",
    "epsilon_days_exact": "one value, exact",
    "epsilon_values": "{values}, same times",
    "epsilon_any_history": "any history",
}
_HOUSEHOLD = {
    "epsilon_household": "household of {household:,}, same times",
    "epsilon_household_any_history": "household of {household:,}, any history",
}
_SHUFFLED = {
    "central_closed_form": "closed form",
    "central_clones": "clones",
    "central_blanket": "blanket",
    "central_epsilon": "least",
    "central_epsilon_days": "{days} days, one value",
    "central_epsilon_days_any_history": "{days} days, any history",
}
_LINKING = {
    "linking_information": "nats, 2 days",
    "linking_information_known": "nats, many",
    "linked_clients": "clients, 2 days",
    "linked_clients_known": "clients, many",
}
_LINKED = {"linked_share": "right, 2 days", "linked_share_known": "right, many"}
_SENSES = {
    "epsilon_registry": "histories that change at the same times",
    "epsilon_registry_any_history": "any history",
}


@dataclass(frozen=True, slots=True, repr=False)
class PrivacyResult(Result):
    """All figures of a registry."""

    registry: Registry
    situation: Situation
    metrics: Mapping[str, tuple[Figure, ...]]
    together: tuple[Figure, ...]

    @property
    def types(self) -> Types:
        """The columns; of values inf says that nothing bounds them, nan that they don't apply."""
        return _TYPES

    def parts(self) -> Iterator[Columns]:
        """Yield a row a figure, those of the registry last, without a metric's name."""
        rows = [
            dict(zip(_TYPES, (name, figure.key, figure.value, figure.theorem), strict=True))
            for name, figures in [*self.metrics.items(), (_REGISTRY, self.together)]
            for figure in figures
        ]
        yield columns_of(_TYPES, rows)

    def document(self) -> Mapping[str, object]:
        """Return the figures by metric and key; null stands for a bound that doesn't exist."""
        return {
            "application": self.registry.application,
            "situation": asdict(self.situation),
            "metrics": {name: _object(figures) for name, figures in self.metrics.items()},
            "registry": _object(self.together),
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the tables, then what each column rests on."""
        situation = self.situation
        over_time = _LIFE | (_HOUSEHOLD if situation.household > 1 else {})
        days = f"What {situation.days:,} days reveal to whoever links a client's reports (epsilon)"
        linked, linking = (
            "How well a client's shuffled reports are linked by their content",
            _LINKING,
        )
        if situation.reports is not None:
            linked, linking = (
                f"{linked}; right: among {situation.reports:,} clients",
                linking | _LINKED,
            )
        tables = [
            ("What a client reveals (epsilon)", _REPORTS),
            (days, over_time),
            (linked, linking),
        ]
        if situation.reports is not None:
            size = f"{situation.reports:,} reports (epsilon at delta {situation.delta:g})"
            tables.append((f"After shuffling {size}", _SHUFFLED))
        for title, headings in tables:
            rows = []
            for name, figures in self.metrics.items():
                metric = self.registry[name]
                memory: str = "one-time" if metric.one_time else metric.memory
                if memory == "period":
                    memory = "1 day" if metric.period_days == 1 else f"{metric.period_days:,} days"
                by_key = {figure.key: figure for figure in figures}
                rows.append((name, memory, *(_number(by_key[key]) for key in headings)))
            columns = [_filled(heading, situation) for heading in headings.values()]
            heads = (Heading("metric", "left"), Heading("memory", "left"), *map(Heading, columns))
            yield Table(title, heads, tuple(rows))
            yield Line("")
        for text in _together(self):
            yield Line(text, wraps=False)
        yield Line("")
        everything = [figure for figures in self.metrics.values() for figure in figures]
        for _, headings in tables:
            for key, heading in headings.items():
                # Metrics of different types may differ.
                theorems = dict.fromkeys(each.theorem for each in everything if each.key == key)
                yield Line(f"{_filled(heading, situation)}: {' / '.join(theorems)}", wraps=False)


def _together(result: PrivacyResult) -> Iterator[str]:
    """Yield a sentence for each sense of a registry's total, and for the lifetime's division."""
    situation = result.situation
    figures = {figure.key: figure for figure in result.together}
    who, part = "A client", ""
    if situation.household > 1:
        who, part = f"A household of {situation.household:,}", "_household"
    for key, sense in _SENSES.items():
        figure = figures[key.replace("registry", f"registry{part}")]
        yield (
            f"{who}, over all metrics and {situation.days:,} days, {sense}: epsilon "
            f"{_number(figure)} ({figure.theorem})."
        )
    lifetime = result.registry.lifetime_epsilon
    if lifetime is not None:
        reserve, changes = figures["lifetime_reserve"], figures["lifetime_changes"]
        yield (
            f"Of lifetime_epsilon = {lifetime:g}, what times alone decide needs {_number(reserve)} "
            f"({reserve.theorem}); {_number(changes)} is left for values that change."
        )
        if reserve.value > lifetime:
            yield (
                "That is more than lifetime_epsilon: clients report no second value of any metric, "
                "and fall silent when it is used up."
            )


def _filled(heading: str, situation: Situation) -> str:
    values = "1 value" if situation.values == 1 else f"{situation.values:,} values"
    return heading.format(days=f"{situation.days:,}", values=values, household=situation.household)


def _number(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "-"
    if figure.key.startswith("linked_clients"):
        return f"{figure.value:,.0f}" if figure.value < _EVERYBODY else "everybody"
    if figure.key.startswith("linked_share"):
        return f"{100 * figure.value:.3g}%"
    if math.isinf(figure.value):
        return "never" if figure.key.startswith("reports") else "not bounded"
    return f"{figure.value:,.0f}" if figure.key.startswith("reports") else f"{figure.value:.4g}"


def _object(figures: tuple[Figure, ...]) -> dict[str, object]:
    return {f.key: {"value": f.value, "theorem": f.theorem} for f in figures}
