"""Privacy bounds of a registry's metrics: per report, over a life, together, after shuffling.

Each figure is an upper bound and names the theorem that it rests on, but among how many clients
reports are linked by their content, which is an estimate of what attackers reach. A client's
reports over time have two figures: for histories that change at the same times, which is what the
client's own account adds up, and for any history. All of them are shown as estimates: one row for
each figure, and tables with their theorems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from hubbub.decoder import decoder_of
from hubbub.inference import PlanError
from hubbub.planning.amplification import amplified_epsilon, central_epsilon
from hubbub.planning.goals import A_YEAR, clients_text, epsilon_text
from hubbub.planning.histories import (
    ROUNDED_UP,
    LifetimeBudget,
    any_history_epsilon,
    constant_epsilon,
    life_epsilon,
    linked_clients,
    most_periods,
    reports_to_know,
    same_times_epsilon,
    value_ratio,
)
from hubbub.protocol import MAX_PERIODS, UNARY, Metric, Registry, counted
from hubbub.reporting import (
    Block,
    Column,
    Estimates,
    Finding,
    Heading,
    Level,
    Line,
    Table,
    as_lines,
    headings,
)

KNOWN = (0.5, 0.99)
"""Probabilities from which an observer counts as knowing a permanent response."""

OF_DAYS = "what all reports of an answer reveal together: docs/understand/proofs.md, Linked reports"
OF_VALUES = (
    "min(T times the most expensive of a value's reports, V times all T of one value): "
    "docs/understand/proofs.md, "
    "One client"
)
OF_PERIODS = (
    "the sum over periods of what their reports reveal, {:,} periods at most: "
    "docs/understand/proofs.md, "
    "Periods"
)
ONCE_A_PERIOD = "one report in each of {:,} periods at most: docs/understand/proofs.md, Periods"
AN_ANSWER = "all reports of one answer: {}"
LIFE = "max_periods = {:,}{} times the price of an answer, over all versions of the metric"
ONE_ANSWER = "one price for each version of the metric that is asked"
ONE_REPORT = "one report of each version of the metric that is asked"
FIRST_VALUE = OF_DAYS + "; only a client's first value of each version is reported ({})"
NOT_BOUNDED = (
    "not bounded: anyone who links reports can see a change: docs/understand/proofs.md, "
    "Values that change"
)
SEQUENTIAL = "sequential composition (Dwork et al. 2006; McSherry 2009, theorem 3)"
PARALLEL = "parallel composition (McSherry 2009, theorem 4) of the metrics that exclude each other"
LEDGER = "the client's account, which admits no more than lifetime_epsilon"
RESERVE = (
    "prices of all first values, one-time reports and max_periods periods: docs/protocol, section 6"
)
CHANGES = "what the reserve leaves of lifetime_epsilon for second and later values"
TRACKING = (
    "exact binomial probabilities of the likeliest permanent bits: "
    "docs/understand/proofs.md, Tracking"
)
CELLS = "q (d - w) / ((1 - q) w) at most for any report: docs/understand/proofs.md, Responses"
BLANKET = (
    "Balle, Bell, Gascon, Nissim 2019, section 5, with the report's own likelihood ratios; never "
    "more than the report alone"
)
ONE_MESSAGE = (
    "all reports of a permanent response as one message, shuffled once, among clients that report "
    "on the same days and whose value and slice stay, too: docs/understand/proofs.md, More days"
)
PERIODS_COMPOSE = (
    "all of a period's reports as one message, shuffled once; {:,} periods at most, each with its "
    "part of delta (sequential composition, for periods are independent given the values): "
    "docs/understand/proofs.md, More days"
)
BY_VALUE = (
    "independent given the value: at most cosh^2(epsilon/2) times as likely of one client as of "
    "two: docs/understand/proofs.md, Linking by content"
)
ONE_OF_GROUP = (
    "a client answers one of the group's metrics, chosen without regard to values: parallel "
    "composition (McSherry 2009, theorem 4), the most expensive one counts"
)
ALL_OF_GROUP = "sequential composition, if clients answered all of them"
PART_OF_GROUP = "one part of the clients for each metric, chosen at random"
THRESHOLD = (
    "among so many clients more than half of the links of {} are right: docs/understand/proofs.md, "
    "Linking by content"
)
ONCE_LINKED = (
    "one report's link to another period's, of {}: at most their ratio by value over their "
    "number: docs/understand/proofs.md, Reports of mode once"
)
ALIKE = "reports that are alike in all that travels in the clear: {}"
SMALLEST_SLICE = "{:,} reports, the smallest slice that is published (min_reports)"
LINKED_BY_CHOICE = (
    "times chance: how much likelier two periods' reports of one metric are of one client because "
    "the group's metric is chosen for life (1: for each period)"
)


@dataclass(frozen=True, slots=True)
class PlanAssumptions:
    """How much a client reports, and who else does; `PlanError` if a number is out of range."""

    days: int = 365  # T; a client makes one report of each metric a day
    # V, distinct values of a metric that it reports in that time, at most; concerns the figure for
    # histories that change at the same times.
    values: int = 1
    # N shuffled reports of each metric's version a day, one of each client; None: no figures after
    # shuffling.
    reports: int | None = None
    delta: float = 1e-6  # of the (epsilon, delta) after shuffling

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("days", "values", "reports"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise PlanError(f"{name} = {number}: must be at least 1")
        if not 0 < self.delta < 1:
            raise PlanError(f"delta = {self.delta}: must be above 0 and below 1")


@dataclass(frozen=True, slots=True)
class PrivacyFigure:
    """One number and why it holds."""

    key: str  # its name in CSV and JSON
    value: float  # infinite: no bound; nan: doesn't apply
    theorem: str  # what it rests on


def metric_figures(
    metric: Metric, assumptions: PlanAssumptions, budget: LifetimeBudget | None = None
) -> tuple[PrivacyFigure, ...]:
    """Return all figures of a metric; those after shuffling only if the number of reports is known.

    Without the registry's budget there is no bound but the metric's own caps.
    """
    budget = budget or LifetimeBudget()
    of_days, composed = OF_DAYS, f"{OF_VALUES}; {SEQUENTIAL}"
    if metric.memory == "period":
        of_days = composed = _of_periods(metric, assumptions.days)
    permanent = metric.epsilon_permanent
    if metric.reports_once and math.isinf(permanent):  # there is no permanent response
        permanent = math.nan
    same_times, any_history = _spent(metric, assumptions, budget), _any(metric, assumptions, budget)
    why_any = _why_any(metric, assumptions, budget)
    figures = [
        PrivacyFigure("epsilon_report", metric.epsilon_report, _of_report(metric, 2)),
        PrivacyFigure("epsilon_permanent", permanent, _of_report(metric, 1)),
        *_by_window(metric, budget),
        PrivacyFigure("epsilon_days", constant_epsilon(metric, assumptions.days), of_days),
        PrivacyFigure("epsilon_values", same_times, composed),
        PrivacyFigure("epsilon_any_history", any_history, why_any),
    ]
    for probability in KNOWN:
        reports = math.nan if metric.reports_once else reports_to_know(metric.params, probability)
        figures.append(PrivacyFigure(f"reports_known_{probability:g}", reports, TRACKING))
    # Dimensions are facts that an observer may know of a client, so its report hides among those
    # of its own slice alone. Cohorts are coins: which one it drew is as unknown as its noise.
    alike = assumptions.reports
    if alike is not None and metric.dimensions:
        alike = min(alike, metric.min_reports)
    figures += _linking(metric, alike)
    if alike is not None:
        least = amplified_epsilon(metric, alike, assumptions.delta)
        size = f"; {_crowd(metric, alike)}, one per client, delta = {assumptions.delta:g}"
        days = central_epsilon(metric, assumptions.days, alike, assumptions.delta)
        why_days = ONE_REPORT if metric.one_time else ONE_MESSAGE
        if metric.memory == "period":
            why_days = PERIODS_COMPOSE.format(most_periods(metric, assumptions.days))
        any_days, why_any_days = days, why_days
        if math.isinf(any_history):
            any_days, why_any_days = any_history, why_any
        figures += [
            PrivacyFigure("central_reports", alike, ALIKE.format(_crowd(metric, alike))),
            PrivacyFigure("central_epsilon", least, BLANKET + size),
            PrivacyFigure("central_epsilon_days", days, why_days + size),
            PrivacyFigure("central_epsilon_days_any_history", any_days, why_any_days + size),
        ]
    return tuple(figures)


def _crowd(metric: Metric, alike: int) -> str:
    return SMALLEST_SLICE.format(alike) if metric.dimensions else f"{alike:,} reports"


def _of_report(metric: Metric, number: int) -> str:
    if metric.response == UNARY:
        return decoder_of(metric).theorem.format(number)
    return CELLS


def _by_window(metric: Metric, budget: LifetimeBudget) -> Iterator[PrivacyFigure]:
    """Yield what a client reveals of an answer, in a year and ever, whatever its values are."""
    of_answer = metric.price
    if metric.memory == "period" and not metric.reports_once:
        of_answer = min(metric.epsilon_after(metric.period_days), metric.price)
    yield PrivacyFigure("epsilon_answer", of_answer, AN_ANSWER.format(OF_DAYS))
    year = PlanAssumptions(days=A_YEAR)
    why = _why_any(metric, year, budget)
    yield PrivacyFigure("epsilon_year", _any(metric, year, budget), why)
    ever = life_epsilon(metric, budget.most_values(metric))
    if math.isfinite(ever):
        default = " (the default)" if metric.max_periods == MAX_PERIODS else ""
        why = LIFE.format(metric.max_periods, default) if metric.memory == "period" else ONE_ANSWER
    yield PrivacyFigure("epsilon_life", ever, why)


def _of_periods(metric: Metric, days: int) -> str:
    text = ONCE_A_PERIOD if metric.reports_once else OF_PERIODS
    return text.format(most_periods(metric, days))


def _linking(metric: Metric, clients: int | None) -> Iterator[PrivacyFigure]:
    """Yield how well reports are linked, among those alike: from two days or periods, and many."""
    once = metric.mode == "once"
    ratio = value_ratio(metric.epsilon_report) if once else math.nan
    yield PrivacyFigure("value_ratio", ratio, BY_VALUE)
    if clients is not None:
        share = min(1.0, ratio / clients) if once else math.nan
        among = ONCE_LINKED.format(_crowd(metric, clients))
        yield PrivacyFigure("linked_share", share, among)
    for key, known, days in (
        ("linked_clients", False, "two days"),
        ("linked_clients_known", True, "many days, each to all others,"),
    ):
        threshold = math.nan  # no second report shares any noise
        if not metric.reports_once:
            threshold = linked_clients(metric.params, metric.type.width, known=known)
        yield PrivacyFigure(key, threshold, THRESHOLD.format(days))


def registry_figures(registry: Registry, assumptions: PlanAssumptions) -> tuple[PrivacyFigure, ...]:
    """Return what a client reveals with all metrics, in both senses, and the budget's parts."""
    groups = [group.metrics for group in registry.groups.values()]
    grouped = {name for group in groups for name in group}
    budget = LifetimeBudget.of(registry)
    composed = f"{SEQUENTIAL}; {PARALLEL}" if groups else SEQUENTIAL
    senses = {
        "": {name: _spent(metric, assumptions, budget) for name, metric in registry.items()},
        "_any_history": {
            name: _any(metric, assumptions, budget) for name, metric in registry.items()
        },
    }
    figures = []
    for key, epsilons in senses.items():
        # Among groups that exclude each other the most expensive one counts.
        alone = [epsilon for name, epsilon in epsilons.items() if name not in grouped]
        worst = [max(epsilons[name] for name in group) for group in groups]
        total, theorem = math.fsum(alone + worst) * ROUNDED_UP, composed
        if math.isinf(total):
            endless = [name for name, epsilon in epsilons.items() if math.isinf(epsilon)]
            theorem = f"{', '.join(endless)}: {NOT_BOUNDED}"
        elif registry.lifetime_epsilon is not None and registry.lifetime_epsilon < total:
            total, theorem = registry.lifetime_epsilon, LEDGER
        figures.append(PrivacyFigure(f"epsilon_registry{key}", total, theorem))
    if registry.lifetime_epsilon is not None:
        figures.append(PrivacyFigure("lifetime_reserve", budget.reserve, RESERVE))
        figures.append(PrivacyFigure("lifetime_changes", budget.changes, CHANGES))
    return tuple(figures)


def group_figures(
    registry: Registry, assumptions: PlanAssumptions
) -> Mapping[str, Sequence[PrivacyFigure]]:
    """Return, for each group of a registry, what it costs, and what all its metrics would."""
    budget = LifetimeBudget.of(registry)
    found = {}
    for group in registry.groups.values():
        epsilons = [_any(registry[name], assumptions, budget) for name in group.metrics]
        linked = len(epsilons) if group.choice == "life" else 1
        found[group.name] = (
            PrivacyFigure("epsilon_group", max(epsilons), ONE_OF_GROUP),
            PrivacyFigure("epsilon_ungrouped", math.fsum(epsilons) * ROUNDED_UP, ALL_OF_GROUP),
            PrivacyFigure("share_of_clients", 1 / len(epsilons), PART_OF_GROUP),
            PrivacyFigure("linked_by_choice", linked, LINKED_BY_CHOICE),
        )
    return found


def _spent(metric: Metric, assumptions: PlanAssumptions, budget: LifetimeBudget) -> float:
    values = min(assumptions.values, budget.most_values(metric))
    return same_times_epsilon(metric, assumptions.days, values)


def _any(metric: Metric, assumptions: PlanAssumptions, budget: LifetimeBudget) -> float:
    return any_history_epsilon(metric, assumptions.days, budget.most_values(metric))


def _why_any(metric: Metric, assumptions: PlanAssumptions, budget: LifetimeBudget) -> str:
    if metric.memory == "period":
        return _of_periods(metric, assumptions.days)
    if metric.one_time:
        return ONE_REPORT
    if metric.max_values == 1:
        return FIRST_VALUE.format("max_values = 1")
    if budget.most_values(metric) == 1:
        return FIRST_VALUE.format("lifetime_epsilon has no room for a change")
    return NOT_BOUNDED


_FIRST = {
    "epsilon_report": "a report",
    "epsilon_answer": "an answer",
    "epsilon_life": "a life",
}
_GUESSED = (
    "Epsilon limits what somebody learns who sees a client's reports. Of two answers that are "
    "equally likely at first, they guess the right one at most so many times in 100; without "
    "reports it would be 50."
)
_LIFE = {
    "epsilon_permanent": "all reports of an answer",
    "epsilon_days": "one value",
    "epsilon_values": "{values}, same times",
    "epsilon_any_history": "any history",
}
_SHUFFLED = {
    "central_reports": "among",
    "central_epsilon": "a report",
    "central_epsilon_days": "{days}, one value",
    "central_epsilon_days_any_history": "{days}, any history",
}
_LINKING = {
    "value_ratio": "periods, x chance",
    "linked_clients": "2 days",
    "linked_clients_known": "many days",
    "reports_known_0.5": "known (1 in 2)",
    "reports_known_0.99": "known (99 in 100)",
}
_SENSES = {
    "epsilon_registry": "histories that change at the same times",
    "epsilon_registry_any_history": "any history",
}
_Figures = Mapping[str, PrivacyFigure]


def privacy_estimates(
    registry: Registry,
    assumptions: PlanAssumptions,
    metrics: Mapping[str, Sequence[PrivacyFigure]],
    together: Sequence[PrivacyFigure],
    groups: Mapping[str, Sequence[PrivacyFigure]] | None = None,
) -> Estimates:
    """Return all figures of a registry, with what they rest on.

    Columns are "metric" (empty for the registry's figures, which come last; "groups.NAME" for a
    group's), "figure", "value" and "theorem". A value is infinite if nothing bounds it, and nan if
    the figure doesn't apply.
    """
    groups = groups or {}
    rows = [(name, each) for name, figures in metrics.items() for each in figures]
    rows += [(f"groups.{name}", each) for name, figures in groups.items() for each in figures]
    rows += [("", each) for each in together]
    findings = (
        *_group_findings(registry, assumptions, groups),
        *_findings(registry, assumptions, _by_key(together)),
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
            "situation": asdict(assumptions),
            "metrics": {name: _as_json(figures) for name, figures in metrics.items()},
            **(
                {"groups": {name: _as_json(each) for name, each in groups.items()}}
                if groups
                else {}
            ),
            "registry": _as_json(together),
        },
        view=_view(registry, assumptions, metrics, findings),
    )


def _view(
    registry: Registry,
    assumptions: PlanAssumptions,
    metrics: Mapping[str, Sequence[PrivacyFigure]],
    findings: Sequence[Finding],
) -> tuple[Block, ...]:
    """Return the tables, the sentences, and what each column of a table rests on."""
    by_metric = {registry[name]: _by_key(figures) for name, figures in metrics.items()}
    tables = _tables(registry, assumptions)
    heads = headings(
        "metric", "asked", *(f"epsilon of {each}" for each in _FIRST.values()),
        *(f"right in 100, {each}" for each in ("a report", "a life")),
    )  # fmt: skip
    rows = tuple(
        (
            *(metric.name, _mode(metric)),
            *(_number(figures[key]) for key in _FIRST),
            *(_right_in_100(figures[key].value) for key in ("epsilon_report", "epsilon_life")),
        )
        for metric, figures in by_metric.items()
    )
    first = Table("What a client reveals", heads, rows)
    blocks: list[Block] = [Line(_GUESSED), Line(""), first, Line("")]
    for title, shown in tables.items():
        rows = tuple(
            (metric.name, _mode(metric), *(_number(figures[key]) for key in shown))
            for metric, figures in by_metric.items()
        )
        columns = [_filled(heading, assumptions) for heading in shown.values()]
        heads = (Heading("metric", "left"), Heading("mode", "left"), *map(Heading, columns))
        blocks += [Table(title, heads, rows), Line("")]
    blocks += [*as_lines(findings), Line("")]
    for shown in (_FIRST, *tables.values()):
        for key, heading in shown.items():
            # Metrics of different types may differ.
            theorems = dict.fromkeys(each[key].theorem for each in by_metric.values())
            text = f"{_filled(heading, assumptions)}: {' / '.join(theorems)}"
            blocks.append(Line(text, wraps=False))
    return tuple(blocks)


def _tables(registry: Registry, assumptions: PlanAssumptions) -> Mapping[str, Mapping[str, str]]:
    """Return which figures each table shows, under which headings, by the tables' titles."""
    days = counted(assumptions.days, "day")
    tables = {
        f"What {days} can reveal to anyone who links a client's reports (epsilon)": _LIFE,
        "Among how many clients most links by content are right, and after how many reports an "
        "answer's noise is known": _LINKING,
    }
    if assumptions.reports is None:
        return tables
    shuffled = f"{assumptions.reports:,} reports"
    if any(metric.dimensions for metric in registry.values()):
        shuffled += ", or those of the smallest slice"
    return {
        **tables,
        f"After shuffling {shuffled} (epsilon at delta {assumptions.delta:g})": _SHUFFLED,
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
    registry: Registry, assumptions: PlanAssumptions, groups: Mapping[str, Sequence[PrivacyFigure]]
) -> Iterator[Finding]:
    """Yield a sentence for each group: what it costs, and what that saves and takes."""
    for name, figures in groups.items():
        group, by_key = registry.groups[name], _by_key(figures)
        choice = "again for each period" if group.choice == "period" else "for life"
        metrics = len(group.metrics)
        text = (
            f"Group {name}: each client answers one of {', '.join(group.metrics)}, chosen {choice}."
            f" In {counted(assumptions.days, 'day')} that is an epsilon of "
            f"{_number(by_key['epsilon_group'])} instead of "
            f"{_number(by_key['epsilon_ungrouped'])} for all; in return a metric has the reports of"
            f" 1/{metrics} of the clients, whose errors are {math.sqrt(metrics):.2f} times as large"
            " as from all."
        )
        times = by_key["linked_by_choice"].value
        if times > 1:
            text += (
                " A client's periods are all of one metric, so its reports of two periods are "
                f"linked {times:.0f} times as easily as by chance among all clients."
            )
        yield Finding("epsilon_group", "", text, by_key["epsilon_group"].value)


def _findings(
    registry: Registry, assumptions: PlanAssumptions, figures: _Figures
) -> Iterator[Finding]:
    """Yield a sentence for each sense of a registry's total, and for the lifetime's division."""
    for key, sense in _SENSES.items():
        figure = figures[key]
        text = (
            f"A client, over all metrics and {counted(assumptions.days, 'day')}, {sense}: epsilon "
            f"{_number(figure)} ({figure.theorem})."
        )
        yield Finding(figure.key, "", text, figure.value)
    yield from _clear_findings(registry)
    lifetime = registry.lifetime_epsilon
    if lifetime is None:
        return
    reserve, changes = figures["lifetime_reserve"], figures["lifetime_changes"]
    text = (
        f"{_number(reserve)} of lifetime_epsilon = {lifetime:g} is reserved for answers whose "
        f"price depends on no value ({reserve.theorem}); {_number(changes)} is left for values "
        "that change."
    )
    yield Finding("lifetime_reserve", "", text, reserve.value)
    if reserve.value > lifetime:
        text = (
            "That is more than lifetime_epsilon: clients report no second value of any metric, "
            "and stop reporting when it is used up."
        )
        yield Finding("lifetime_exceeded", "", text, reserve.value - lifetime, Level.WARNING)


def _clear_findings(registry: Registry) -> Iterator[Finding]:
    """Yield a sentence for each metric whose reports carry facts without noise."""
    for metric in registry.values():
        if not metric.dimensions:
            continue
        names = [dimension.name for dimension in metric.dimensions]
        text = (
            f"Reports of {metric.name} carry the app's {', '.join(names)} in the clear, which no "
            "epsilon covers: anyone with an unusual combination stands out to those who see "
            f"batches. In the store, combinations with fewer than {metric.min_reports:,} reports a "
            "day become other. A report hides among those of its own combination only, and is "
            f"linked with another day's or period's among these: at least {metric.min_reports:,}, "
            "or fewer of what is left as other."
        )
        if metric.mode == "once":
            share = min(1.0, value_ratio(metric.epsilon_report) / metric.min_reports)
            text += (
                f" Among {metric.min_reports:,} a link of two periods is right in at most "
                f"{100 * share:.2g}% of cases."
            )
        yield Finding(f"in_the_clear:{metric.name}", "", text, names)


def _right_in_100(epsilon: float) -> str:
    """Return how often the likelier of two answers is the right one, at most."""
    return f"{100 / (1 + math.exp(-epsilon)):.0f}"


def _filled(heading: str, assumptions: PlanAssumptions) -> str:
    return heading.format(
        days=counted(assumptions.days, "day"),
        values=counted(assumptions.values, "value"),
    )


def _number(figure: PrivacyFigure) -> str:
    if math.isnan(figure.value):
        return "-"
    if figure.key.startswith("reports"):
        return "never" if math.isinf(figure.value) else f"{figure.value:,.0f}"
    if figure.key == "central_reports" or figure.key.startswith("linked_clients"):
        return clients_text(figure.value)
    return epsilon_text(figure.value)


def _by_key(figures: Sequence[PrivacyFigure]) -> _Figures:
    return {figure.key: figure for figure in figures}


def _as_json(figures: Sequence[PrivacyFigure]) -> dict[str, object]:
    return {f.key: {"value": f.value, "theorem": f.theorem} for f in figures}
