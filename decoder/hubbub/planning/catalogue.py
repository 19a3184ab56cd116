"""A catalogue for those who are asked: what each metric asks, sends and reveals, as pages.

Registry, or several versions of it -> one page for each metric, and an index. Words and figures are
those of the client's preview and of `hubbub-decoder privacy`. Invariant: the same registries on the
same day give the same bytes; the example reports have coins of their own, drawn from the metric.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence

from hubbub.client import Encoder
from hubbub.client.explanations import describe_metric, describe_preview
from hubbub.client.randomness import KeyedStream, keyed_message
from hubbub.planning.histories import LifetimeBudget
from hubbub.planning.privacy import PlanAssumptions, PrivacyFigure, metric_figures
from hubbub.protocol import (
    Batch,
    BooleanType,
    EnumType,
    JointType,
    Metric,
    MetricType,
    NumberType,
    OrdinalType,
    Registry,
    Value,
    batch_to_json,
    counted,
    slice_of,
)
from hubbub.reporting import Heading, Page, Section, Table, headings, registry_ends, visible

INDEX = "index.html"
# The example's, which no client has.
_SECRET = bytes(32)
_BATCH_ID = "0" * 32
_MOST_VALUES = 60  # that are listed; the registry has them all
_SENDERS = (
    "A report has no name and no time in it. The network sees from where it comes; the collector "
    "keeps neither that nor the moment, and stores the reports of a day in random order."
)
_READERS = (
    "Anyone who may read the store, or breaks into it, sees noisy reports such as the one above. "
    "They can count what is frequent among many; from one report they learn no more than the "
    "bounds say."
)
_FIGURES = {
    "epsilon_report": "one report",
    "epsilon_permanent": "all reports of one answer",
    "epsilon_answer": "an answer, however often it is reported",
    "epsilon_year": "a year, however answers change",
    "epsilon_life": "a client's life",
    "reports_known_0.5": "reports after which the answer's noise is known (1 in 2)",
}


def pages(history: Sequence[Registry], today: dt.date) -> dict[str, Page]:
    """Return the pages by their files' names, the index first; the last registry is in force."""
    registry = history[-1]
    metrics = {name: registry[name] for name in sorted(registry)}
    gone = {n: it[n] for it in history for n in sorted(it) if n not in registry}
    found = {INDEX: _index(registry, [*metrics.values(), *gone.values()], today)}
    for name, metric in (metrics | gone).items():
        warnings = [
            f"{it.text}." for it in registry_ends(registry, today) if it.label == f"metrics.{name}"
        ]
        if name in gone:
            warnings = ["It isn't asked any more."]
        versions = [each[name] for each in history if name in each]
        budget = LifetimeBudget.of(registry)
        found[f"{name}.html"] = Page(
            f"{name} · {visible(registry.application)}",
            visible(metric.description),
            tuple(_sections(metric, budget, versions)),
            warnings,
            {"All metrics": INDEX},
        )
    return found


def _index(registry: Registry, metrics: Sequence[Metric], today: dt.date) -> Page:
    rows = tuple(
        (
            metric.name,
            visible(metric.description),
            visible(metric.owner),
            str(metric.expires) if metric.name in registry else "gone",
            _number(metric.epsilon_report),
            _number(metric.price),
        )
        for metric in metrics
    )
    heads = ("metric", "what is asked", "owner", "until", "epsilon, report", "epsilon, answer")
    columns = tuple(Heading(head, "left" if i < 4 else "right") for i, head in enumerate(heads))
    return Page(
        f"What {visible(registry.application)} asks",
        f"{counted(len(registry), 'metric')}. Answers are blurred before they leave a device, and "
        f"a device spends {_spent(registry)}.",
        (Section("Metrics", tables=(Table("What is asked", columns, rows),)),),
        [f"{it.label}: {it.text}." for it in registry_ends(registry, today)],
        {metric.name: f"{metric.name}.html" for metric in metrics},
    )


def _spent(registry: Registry) -> str:
    """Return what a device's answers cost over all metrics, as they are asked now."""
    bound, budget = registry.reserve(), registry.lifetime_epsilon
    changes = ""
    if any(not metric.hides_changes for metric in registry.values()):
        changes = " if no answer changes" if budget is None else ""
        changes += "; that and when an answer changed isn't bounded"
        bound = bound if budget is None else budget
    elif budget is not None:
        bound = min(bound, budget)
    return f"at most epsilon {bound:.4g} over all of them{changes}"


def _sections(
    metric: Metric, budget: LifetimeBudget, versions: Sequence[Metric]
) -> Iterator[Section]:
    """Yield the parts of a metric's page."""
    facts = {
        "owner": visible(metric.owner),
        "asked until": str(metric.expires),
        "version": str(metric.version),
        "type": metric.type.name,
    }
    labels: tuple[str, ...] = ()
    if isinstance(metric.type, (EnumType, BooleanType, OrdinalType)):
        labels = metric.type.listed_values().labels
    if labels:
        more = f", and {len(labels) - _MOST_VALUES:,} more" if len(labels) > _MOST_VALUES else ""
        facts["values"] = ", ".join(map(visible, labels[:_MOST_VALUES])) + more
    facts_of_app = {each.name: visible(each.words) for each in metric.dimensions}
    yield Section("What is asked", (visible(describe_metric(metric)),), facts)
    if facts_of_app:
        clear = (
            "These travel in the clear, next to the noise: they are facts about the app, and never "
            f"what its user did. Combinations with fewer than {metric.min_reports:,} reports in a "
            "day are counted as other before anyone reads them."
        )
        yield Section("What it reveals about the app", (clear,), facts_of_app)
    yield _example(metric)
    figures = metric_figures(metric, PlanAssumptions(), budget)
    meaning = (
        "Epsilon bounds how far anyone's odds between any two answers change by what they see: by "
        f"a factor of e^epsilon at most. One report: {_odds(metric.epsilon_report)}; all reports "
        f"of an answer: {_odds(metric.price)}."
    )
    yield Section("What it reveals", (meaning,), tables=(_bounds(figures),))
    yield Section("Whether reports can be linked", (_linking(metric, figures),))
    yield Section("Who can read it", (_SENDERS, _READERS))
    yield Section("Versions", tables=(_versions(versions),))


def _example(metric: Metric) -> Section:
    """Return what a client would send of an example answer, and what that is."""
    title, stream = "What leaves a device", KeyedStream(keyed_message(metric.name.encode()))
    values = {each.name: each.values[0] for each in metric.dimensions if each.values}
    sliced = metric._replace(slice=slice_of(metric.dimensions, values))
    encoder, value = Encoder(sliced, _SECRET), _value(metric.type)
    if metric.memory == "period":
        response = encoder.fresh_response(value, stream)
    else:
        response = encoder.permanent_response(encoder.true_bits(value, stream))
    report = encoder.report(response, stream)
    _, _, *lines = (line.strip() for line in describe_preview(sliced, report, None).splitlines())
    facts = {
        "of the answer": visible(json.dumps(value, ensure_ascii=False)),
        "a device could send": batch_to_json(Batch((report,), _BATCH_ID)).decode(),
    }
    words = (visible(line) for line in lines if line != report.bits.hex())
    return Section(title, tuple(words), facts)


def _value(metric_type: MetricType) -> Value:
    """Return an example of what an app may record."""
    if isinstance(metric_type, JointType):
        return {field.name: _value(field.type) for field in metric_type.fields}
    if isinstance(metric_type, BooleanType):
        return True
    if isinstance(metric_type, EnumType):
        return metric_type.categories[0]
    if isinstance(metric_type, OrdinalType):
        return metric_type.edges[0]
    if isinstance(metric_type, NumberType):
        return (metric_type.low + metric_type.high) / 2
    return "example.com"


def _bounds(figures: Sequence[PrivacyFigure]) -> Table:
    """Return the figures that matter to who is asked, with what each rests on."""
    by_key = {figure.key: figure for figure in figures}
    shown = [(words, by_key[key]) for key, words in _FIGURES.items()]
    rows = tuple(
        (words, _number(figure.value), figure.theorem)
        for words, figure in shown
        if not math.isnan(figure.value)
    )
    columns = (*headings("of", "epsilon, or reports"), Heading("why", "left"))
    return Table("Bounds", columns, rows)


def _linking(metric: Metric, figures: Sequence[PrivacyFigure]) -> str:
    """Return what ties reports of one client together, in a sentence or two."""
    by_key = {figure.key: figure.value for figure in figures}
    if metric.one_time:
        return "A device sends one report of each version, so there is nothing to link."
    if metric.mode == "once":
        text = (
            "Each report has a cohort and coins of its own: by their content two reports are at "
            f"most {by_key['value_ratio']:.3g} times as likely of one device as of two."
        )
        if metric.dimensions:
            text += (
                " But a report is compared with those of the same combination alone, which are at "
                f"least {metric.min_reports:,} a day where it is counted by itself."
            )
        if metric.group:
            text += (
                f" If {metric.group} chooses for life, only devices that chose this metric compare."
            )
        return text
    lasting = "a period" if metric.memory == "period" else "life"
    changes = ""
    if not metric.hides_changes:
        changes = (
            " Anyone who links them also sees that and when an answer changed: without a bound."
        )
    return (
        f"All reports of an answer hold the same permanent noise for {lasting}, by which they can "
        f"be linked: of two days' reports more than half of all links are right among up to "
        f"{by_key['linked_clients']:,.0f} devices, and with many days' among more.{changes}"
    )


def _versions(versions: Sequence[Metric]) -> Table:
    """Return what was asked under each version, the newest first."""
    latest = {metric.version: metric for metric in versions}
    rows = tuple(
        (
            str(number),
            _number(latest[number].epsilon_report),
            _number(latest[number].price),
            visible(json.dumps(latest[number].definition, ensure_ascii=False)),
        )
        for number in sorted(latest, reverse=True)
    )
    heads = headings("version", "epsilon, report", "epsilon, answer")
    return Table("Versions in these registries", (*heads, Heading("definition", "left")), rows)


def _odds(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "not bounded"
    factor = math.exp(min(epsilon, 700.0))
    return f"epsilon {epsilon:.4g}, a factor of {factor:.3g}"


def _number(value: float) -> str:
    return "not bounded" if math.isinf(value) else f"{value:.4g}"
