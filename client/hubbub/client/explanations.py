"""Sentences for people: what is asked, what would be sent, and what has been spent.

What a report reveals is given in odds, with epsilon in brackets, by one sentence for each way in
which a metric may be asked. The JavaScript client uses the same words: tests hold both to one list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hubbub.client.ledger import Spending, Verdict
from hubbub.protocol.errors import counted
from hubbub.protocol.metrics import Metric, Subset, Window
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Report

_LARGEST_ODDS = 1e6  # beyond it there is no protection, and more digits mean nothing


def describe_preview(
    metric: Metric, report: Report, refusal: str | None, verdict: Verdict = Verdict.NEW
) -> str:
    """Return the text of a preview."""
    source = ""
    if verdict is Verdict.STALE:
        source = " (drawn from an earlier answer, because there is no room for another)"
    elif verdict is Verdict.AGAIN and metric.memory == "period":
        source = " (drawn from this period's answer, which is already fixed)"
    sent = f"would not be sent: {refusal}." if refusal else f"is what would be sent{source}:"
    lines = [describe_metric(metric), f"This {sent}"]
    if part := metric.type.part(report.cohort):
        lines.append(f"  about {part} of your answer, in noise;")
    if metric.type.field_names():
        lines.append(
            f"  about {_all_fields(metric)}, in noise: they travel as one value, whichever of them "
            "changes;"
        )
    if report.slice:
        lines.append(f"  in the clear: {report.slice};")
    lines += [
        f"  {_content(metric, report)}:",
        f"  {report.bits.hex()}",
        (
            "Your answer itself stays on this device. How much the odds between any two answers "
            "can change for somebody who sees"
        ),
        *(f"  {line}" for line in _exposure(metric)),
    ]
    return "\n".join(lines)


def _content(metric: Metric, report: Report) -> str:
    """Return what a report holds, and by what chance."""
    params, response = metric.params, metric.response
    group = f"group {report.cohort} of {params.m}, and " if params.m > 1 else ""
    if isinstance(response, Subset | Window):
        chance = _number(response.chance)
        if isinstance(response, Subset):
            drawn = f"a set of {response.width} of the {response.cells} possible answers, drawn so "
            drawn += f"that it holds yours with probability {chance}"
        else:
            drawn = f"one of {response.cells} steps of the range, drawn so that it is among the "
            drawn += f"{response.width} next to your answer with probability {chance}"
        return f"{group}{drawn}, as {params.k} bits"
    ones = int.from_bytes(report.bits, "little").bit_count()
    noise = "two rounds" if params.has_permanent and params.has_instantaneous else "one round"
    return f"{group}{params.k} bits, {ones} of them 1, after {noise} of coin flips"


def describe_metric(metric: Metric) -> str:
    """Return what a metric asks, for whom, until when."""
    if metric.one_time:
        mode = "once"
    elif metric.memory == "period":
        once = metric.mode == "once"
        mode = "once in each of" if once else "with one answer for each of"
        mode += f" at most {metric.max_periods:,} periods of "
        mode += counted(metric.period_days, "day")
    elif metric.max_values == 1:
        mode = "with the first answer only"
    else:
        mode = f"for at most {metric.max_values:,} different answers"
    fields = metric.type.field_names()
    about = f" Each answer is one value, about {_all_fields(metric)}." if fields else ""
    if metric.group:
        about += f" It belongs to {metric.group}: a client answers only one question of this group."
    if metric.dimensions:
        names = ", ".join(dimension.name for dimension in metric.dimensions)
        about += (
            f" Its reports also describe the app, in the clear: {names}. They hide only among "
            "reports of apps that are described alike."
        )
    return (
        f"{metric.name} (version {metric.version}, {metric.type.name}): {metric.description}. "
        f"Asked by {metric.owner} until {metric.expires}, {mode}.{about}"
    )


def explain(registry: Registry, spending: Spending) -> str:
    """Return what is asked and what it can reveal, metric by metric and in total."""
    lines = [
        (
            f"What {registry.application} asks. How much the odds between any two answers can "
            "change for somebody who sees"
        ),
        "",
    ]
    for metric in registry.values():
        lines.append(describe_metric(metric))
        lines += (f"  {line}" for line in _exposure(metric))
        if parts := metric.type.parts():
            lasting = "of each answer"
            if metric.memory == "value":
                lasting = "of all its answers, for life"
            lines.append(f"  a client reports one part {lasting}: {', or '.join(parts)}")
    for group in registry.groups.values():
        lasting = "drawn by lot for each period"
        if group.choice == "life":
            lasting = "for life, so its reports hide only among those of clients that chose alike"
        lines.append(
            f"A client answers only one of {', '.join(group.metrics)} ({group.name}), {lasting}."
        )
    constant = registry.reserve()
    changes = ", however answers change"
    if not all(metric.hides_changes for metric in registry.values()):
        changes = f" if no answer changes, {_bound(math.inf)} if answers change"
    budget = spending.lifetime_epsilon
    most = "" if budget is None else f", of at most {_number(budget)}"
    used = _used(spending) if spending.metrics else "nothing"
    lines += [
        "",
        f"All questions together, as they are asked now: {_bound(constant)}{changes}.",
        f"Privacy budget used so far: {used}.",
        f"Paid for: epsilon {_number(spending.committed)}{most}.",
    ]
    if restores := spending.restores:
        times = "once" if restores == 1 else f"{restores} times"
        lines.append(
            f"This state was found to be a copy {times}; what its originals spent since isn't "
            "known here."
        )
    return "\n".join(lines)


def describe_forgetting(spending: Spending | None) -> str:
    """Return what deleting the state means; None: what was spent can't be read."""
    if spending is None:
        sent = "What was sent before can't be called back; what it reveals is no longer known."
    elif spending.metrics:
        sent = (
            "What was sent before can't be called back: it changes the odds between any two "
            f"answers {_used(spending)}."
        )
    else:
        sent = "Nothing was sent before."
    return (
        f"Deleted the secret, the account and all unsent reports. {sent} A later start draws a new "
        "secret. The same answers then cost as much again, and no account shows it."
    )


def _exposure(metric: Metric) -> Iterator[str]:
    """Yield a line for each set of reports that somebody may see, in the order of their size."""
    report, permanent = _bound(metric.epsilon_report), _bound(metric.epsilon_permanent)
    if metric.one_time:
        yield f"the report: {report}; there is only one of each version"
        return
    if metric.mode == "once":
        yield f"the report of one period: {report}; there is only one"
        yield (
            f"the reports of two periods: at most {_odds(_linking(metric.epsilon_report))} times "
            "as likely from one device as from two whose apps are described alike"
        )
    else:
        yield f"one report: {report}"
    if metric.memory == "period":
        if metric.mode != "once":
            yield f"all reports of one period: {permanent}"
        yield (
            f"all reports of all periods, however answers change: {_bound(metric.reserve)}, in "
            f"{metric.max_periods:,} periods, whatever the version"
        )
    elif metric.max_values == 1:
        yield f"all reports of this version: {permanent}"
    else:
        yield f"all reports of one answer: {permanent}"
        yield "all reports, if the answer changes: not bounded, as that and when it changes shows"


def _used(spending: Spending) -> str:
    shows = math.isinf(spending.epsilon_any_history)
    changes = ", but not bounded for somebody who sees when answers changed" if shows else ""
    return _bound(spending.epsilon) + changes


def _all_fields(metric: Metric) -> str:
    names = metric.type.field_names()
    return f"{'both' if len(names) == 2 else 'all'} of: {', '.join(names)}"


def _bound(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "not bounded"
    if epsilon > math.log(_LARGEST_ODDS):
        return f"perhaps over a million-fold (epsilon {_number(epsilon)})"
    return f"at most {_odds(epsilon)}-fold (epsilon {_number(epsilon)})"


def _odds(logarithm: float) -> str:
    exponent = logarithm / math.log(10)
    if exponent < math.log10(_LARGEST_ODDS):
        return _number(math.exp(logarithm))
    return f"10^{math.ceil(exponent)}"


def _linking(epsilon: float) -> float:
    return epsilon + 2 * math.log1p(math.exp(-epsilon)) - 2 * math.log(2)


def _number(value: float) -> str:
    from decimal import ROUND_HALF_UP, Context

    rounded = Context(prec=3, rounding=ROUND_HALF_UP).create_decimal_from_float(value)
    return f"{rounded:,.0f}" if rounded >= 100 else f"{float(rounded):g}"
