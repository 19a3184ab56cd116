"""Privacy figures as estimates: one row for each figure, and tables with their theorems."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from hubbub.planning.histories import value_ratio
from hubbub.planning.privacy import PrivacyFigure, Situation
from hubbub.protocol.metrics import Metric
from hubbub.protocol.plurals import counted
from hubbub.protocol.registry import Registry
from hubbub.protocol.responses import UNARY
from hubbub.reporting.blocks import Block, Heading, Line, Table
from hubbub.reporting.estimates import Column, Estimates, Finding, Level, as_lines

_EVERYBODY = 1e10  # more than there are people
_REPORTS = {
    "epsilon_report": "a report",
    "epsilon_permanent": "permanent",
    "epsilon_answer": "an answer",
    "epsilon_year": "a year",
    "epsilon_life": "life",
    "reports_known_0.5": "known after (0.5)",
    "reports_known_0.99": "known after (0.99)",
}
_LIFE = {
    "epsilon_days": "one value",
    "epsilon_values": "{values}, same times",
    "epsilon_any_history": "any history",
}
_SHUFFLED = {
    "central_reports": "among",
    "central_clones": "clones",
    "central_blanket": "blanket",
    "central_epsilon": "least",
    "central_epsilon_days": "{days}, one value",
    "central_epsilon_days_any_history": "{days}, any history",
}
_LINKING = {
    "value_ratio": "by value, x",
    "linking_information": "nats, 2 days",
    "linking_information_known": "nats, many",
    "linked_clients": "clients, 2 days",
    "linked_clients_known": "clients, many",
}
_LINKED = {"linked_share": "right, 2 days or periods", "linked_share_known": "right, many"}
_SENSES = {
    "epsilon_registry": "histories that change at the same times",
    "epsilon_registry_any_history": "any history",
}
_Figures = Mapping[str, PrivacyFigure]


def privacy_estimates(
    registry: Registry,
    situation: Situation,
    metrics: Mapping[str, Sequence[PrivacyFigure]],
    together: Sequence[PrivacyFigure],
    groups: Mapping[str, Sequence[PrivacyFigure]] | None = None,
) -> Estimates:
    """Return all figures of a registry, with what they rest on.

    Columns are "metric" (empty for the registry's figures, which come last), "figure", "value" and
    "theorem". A value is infinite if nothing bounds it, and nan if the figure doesn't apply.

    `registry`: what may be reported. `situation`: how much a client reports, and who else does.
    `metrics`: each metric's figures (`privacy.metric_figures`). `together`: those of all metrics
    together (`privacy.registry_figures`). `groups`: those of the registry's groups
    (`privacy.group_figures`), which are rows "groups.NAME".
    """
    groups = groups or {}
    rows = [(name, each) for name, figures in metrics.items() for each in figures]
    rows += [(f"groups.{name}", each) for name, figures in groups.items() for each in figures]
    rows += [("", each) for each in together]
    findings = (
        *_group_findings(registry, situation, groups),
        *_findings(registry, situation, _by_key(together)),
    )
    return Estimates(
        columns={
            "metric": Column(str, [name for name, _ in rows]),
            "figure": Column(str, [each.key for _, each in rows]),
            "value": Column(float, [each.value for _, each in rows]),
            "theorem": Column(str, [each.theorem for _, each in rows]),
        },
        keys=("metric", "figure"),
        findings=findings,
        metadata={
            "application": registry.application,
            "situation": asdict(situation),
            "metrics": {name: _as_json(figures) for name, figures in metrics.items()},
            **(
                {"groups": {name: _as_json(each) for name, each in groups.items()}}
                if groups
                else {}
            ),
            "registry": _as_json(together),
        },
        view=_view(registry, situation, metrics, findings),
    )


def _view(
    registry: Registry,
    situation: Situation,
    metrics: Mapping[str, Sequence[PrivacyFigure]],
    findings: Sequence[Finding],
) -> tuple[Block, ...]:
    """Return the tables, the sentences, and what each column of a table rests on."""
    by_metric = {registry[name]: _by_key(figures) for name, figures in metrics.items()}
    tables = _tables(registry, situation)
    blocks: list[Block] = []
    for title, headings in tables.items():
        rows = tuple(
            (metric.name, _mode(metric), *(_number(figures[key]) for key in headings))
            for metric, figures in by_metric.items()
        )
        columns = [_filled(heading, situation) for heading in headings.values()]
        heads = (Heading("metric", "left"), Heading("mode", "left"), *map(Heading, columns))
        blocks += [Table(title, heads, rows), Line("")]
    blocks += [*as_lines(findings), Line("")]
    for headings in tables.values():
        for key, heading in headings.items():
            # Metrics of different types may differ.
            theorems = dict.fromkeys(each[key].theorem for each in by_metric.values())
            text = f"{_filled(heading, situation)}: {' / '.join(theorems)}"
            blocks.append(Line(text, wraps=False))
    return tuple(blocks)


def _tables(registry: Registry, situation: Situation) -> Mapping[str, Mapping[str, str]]:
    """Return which figures each table shows, under which headings, by the tables' titles."""
    days = counted(situation.days, "day")
    linkable = f"What {days} can reveal to whoever links a client's reports (epsilon)"
    tables = {
        "What a client reveals (epsilon)": _REPORTS,
        linkable: _LIFE,
    }
    linked = "How well a client's shuffled reports are linked by their content"
    if situation.reports is None:
        return {**tables, linked: _LINKING}
    shuffled = f"{situation.reports:,} reports (epsilon at delta {situation.delta:g})"
    among = f"{situation.reports:,} clients"
    if any(metric.dimensions for metric in registry.values()):
        among += ", or those of the smallest slice"
    return {
        **tables,
        f"{linked}; right: among {among}": _LINKING | _LINKED,
        f"After shuffling {shuffled}": _SHUFFLED,
    }


def _mode(metric: Metric) -> str:
    """Return when a client reports, by what it remembers, and how if not bit by bit."""
    response = "" if metric.response == UNARY else f", {metric.response.name}"
    if metric.mode == "once":
        days = "a day" if metric.period_days == 1 else f"in {metric.period_days:,} days"
        return f"once {days}{response}"
    if metric.one_time:
        return f"one-time{response}"
    if metric.memory != "period":
        return metric.memory
    return counted(metric.period_days, "day")


def _group_findings(
    registry: Registry, situation: Situation, groups: Mapping[str, Sequence[PrivacyFigure]]
) -> Iterator[Finding]:
    """Yield a sentence for each group: what it costs, and what that saves and takes."""
    for name, figures in groups.items():
        group, by_key = registry.groups[name], _by_key(figures)
        choice = "for each period anew" if group.choice == "period" else "for life"
        metrics = len(group.metrics)
        text = (
            f"Group {name}: each client answers one of {', '.join(group.metrics)}, chosen {choice}."
            f" In {counted(situation.days, 'day')} that is an epsilon of "
            f"{_number(by_key['epsilon_group'])} instead of "
            f"{_number(by_key['epsilon_ungrouped'])} for all; in return a metric has the reports of"
            f" 1/{metrics} of the clients, whose errors are {math.sqrt(metrics):.2f} times as large"
            f" as from all.{_linked_by_choice(by_key['linked_by_choice'].value)}"
        )
        yield Finding("epsilon_group", "", text, by_key["epsilon_group"].value)


def _linked_by_choice(times: float) -> str:
    if times == 1:
        return ""
    return (
        " A client's periods are all of one metric, so its reports of two periods are linked "
        f"{times:.0f} times as easily as by chance among all clients."
    )


def _findings(registry: Registry, situation: Situation, figures: _Figures) -> Iterator[Finding]:
    """Yield a sentence for each sense of a registry's total, and for the lifetime's division."""
    for key, sense in _SENSES.items():
        figure = figures[key]
        text = (
            f"A client, over all metrics and {counted(situation.days, 'day')}, {sense}: epsilon "
            f"{_number(figure)} ({figure.theorem})."
        )
        yield Finding(figure.key, "", text, figure.value)
    yield from _clear_findings(registry)
    lifetime = registry.lifetime_epsilon
    if lifetime is None:
        return
    reserve, changes = figures["lifetime_reserve"], figures["lifetime_changes"]
    text = (
        f"Of lifetime_epsilon = {lifetime:g}, {_number(reserve)} is reserved for what depends "
        f"on times alone ({reserve.theorem}); {_number(changes)} is left for values that change."
    )
    yield Finding("lifetime_reserve", "", text, reserve.value)
    if reserve.value > lifetime:
        text = (
            "That is more than lifetime_epsilon: clients report no second value of any metric, "
            "and stop reporting when it is used up."
        )
        yield Finding("lifetime_exceeded", "", text, reserve.value - lifetime, Level.WARNING)


def _clear_findings(registry: Registry) -> Iterator[Finding]:
    """Yield a sentence for each metric whose reports tell something without noise."""
    for metric in registry.values():
        if not metric.dimensions:
            continue
        names = [dimension.name for dimension in metric.dimensions]
        text = (
            f"Reports of {metric.name} tell {', '.join(names)} of the app in the clear, which no "
            "epsilon covers: whoever has an unusual combination stands out to those who see "
            f"batches. In the store, combinations with fewer than {metric.min_reports:,} reports a "
            "day become other. A report hides among those of its own combination only, and is "
            f"linked with another day's or period's among these: at least {metric.min_reports:,}, "
            f"or fewer of what is left as other.{_linked_once(metric)}"
        )
        yield Finding(f"in_the_clear:{metric.name}", "", text, names)


def _linked_once(metric: Metric) -> str:
    """Return what a link of two periods is worth in the smallest slice."""
    if metric.mode != "once":
        return ""
    share = min(1.0, value_ratio(metric.epsilon_report) / metric.min_reports)
    return (
        f" Among {metric.min_reports:,} a link of two periods is right in at most "
        f"{100 * share:.2g}% of cases."
    )


def _filled(heading: str, situation: Situation) -> str:
    return heading.format(
        days=counted(situation.days, "day"),
        values=counted(situation.values, "value"),
    )


def _number(figure: PrivacyFigure) -> str:
    if math.isnan(figure.value):
        return "-"
    if figure.key == "central_reports":
        return f"{figure.value:,.0f}"
    if figure.key.startswith("linked_clients"):
        return f"{figure.value:,.0f}" if figure.value < _EVERYBODY else "everybody"
    if figure.key.startswith("linked_share"):
        return f"{100 * figure.value:.3g}%"
    if math.isinf(figure.value):
        return "never" if figure.key.startswith("reports") else "not bounded"
    return f"{figure.value:,.0f}" if figure.key.startswith("reports") else f"{figure.value:.4g}"


def _by_key(figures: Sequence[PrivacyFigure]) -> _Figures:
    return {figure.key: figure for figure in figures}


def _as_json(figures: Sequence[PrivacyFigure]) -> dict[str, object]:
    return {f.key: {"value": f.value, "theorem": f.theorem} for f in figures}
