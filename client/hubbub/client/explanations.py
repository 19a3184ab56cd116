"""Sentences for people: what is asked, what would be sent, and what has been spent."""

from __future__ import annotations

import math

from hubbub.client.ledger import Spending, Verdict
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Report


def describe_preview(
    metric: Metric, report: Report, refusal: str | None, verdict: Verdict = Verdict.NEW
) -> str:
    """Return the text of a preview."""
    ones = int.from_bytes(report.bits, "little").bit_count()
    sentence = f"This would not be sent: {refusal}." if refusal else "This is what would be sent:"
    if verdict is Verdict.STALE:
        sentence += " (drawn from an earlier answer, for there is no room for another)"
    elif verdict is Verdict.AGAIN and metric.memory == "period":
        sentence += " (drawn from this period's answer, which is fixed already)"
    return (
        f"{describe_metric(metric)}\n{sentence}\n{_reported_part(metric, report.cohort)}"
        f"{_reported_fields(metric)}"
        f"  group {report.cohort} of {metric.params.m}, and {metric.params.k} bits of which {ones} "
        "are 1, after two rounds of coin flips:\n"
        f"  {report.bits.hex()}\n"
        "Your answer itself stays here. For whoever sees this report, the odds between any two "
        f"answers change at most {_fold(metric.epsilon_report)}; for whoever sees all reports of "
        f"this {_remembered(metric)}, at most {_fold(metric.epsilon_permanent)}.\n"
        f"Of histories in which answers change, {_any_history(metric)}."
    )


def describe_metric(metric: Metric) -> str:
    """Return what a metric asks, for whom, until when."""
    if metric.one_time:
        mode = "once"
    elif metric.memory == "period":
        mode = f"with one answer for each of at most {metric.max_periods:,} periods of "
        mode += f"{metric.period_days:,} days"
    else:
        mode = f"for at most {metric.max_values:,} different answers"
    return (
        f"{metric.name} (version {metric.version}, {metric.type.name}): {metric.description}. "
        f"Asked by {metric.owner} until {metric.expires}, {mode}.{_answered_fields(metric)}"
    )


def explain(registry: Registry, spending: Spending, people: int) -> str:
    """Return what is asked and what it can reveal, metric by metric and in total.

    Parameters
    ----------
    registry : Registry
    spending : Spending
    people : int
        How many share the device; as a group they are protected by `people` times epsilon.
    """
    lines = [f"What {registry.application} asks, and how much it can reveal (epsilon):", ""]
    for metric in registry.values():
        lines.append(describe_metric(metric))
        lines.append(
            f"  one report {metric.epsilon_report:.3g}, all reports of one {_remembered(metric)} "
            f"{_number(metric.epsilon_permanent)}"
        )
        lines.append(f"  histories in which answers change: {_any_history(metric)}")
        lines.extend(_possible_parts(metric))
    constant = math.fsum(metric.reserve for metric in registry.values())
    any_history = constant if all(m.hides_changes for m in registry.values()) else math.inf
    budget = spending.lifetime_epsilon
    bound = "" if budget is None else f"; never more than {budget:g}"
    lines.append("")
    lines.append(
        f"If no answer ever changes: at most {_number(constant)} in total, for ever. Of histories "
        f"in which answers change: {_bound(any_history)}."
    )
    lines.append(
        f"Spent so far, in {len(spending.metrics)} metrics, of histories that change at the same "
        f"times: {_number(spending.epsilon)}; of any: {_bound(spending.epsilon_any_history)}. Paid "
        f"for: {_number(spending.committed)}{bound}."
    )
    if spending.resets:
        lines.append(f"The secret was replaced {spending.resets} times: all answers cost anew.")
    if spending.restores:
        lines.append(
            f"This state was found to be a copy {spending.restores} times; what its originals "
            "spent since isn't known here."
        )
    if people > 1:
        lines.append(
            f"{people} people who share this device are protected as a group by {people} times "
            f"that: {_number(people * constant)} if no answer changes, "
            f"{_number(people * spending.epsilon)} spent."
        )
    return "\n".join(lines)


def describe_forgetting(spending: Spending | None) -> str:
    """Return what deleting the state means; None: what was spent can't be read."""
    if spending is None:
        spent = "an unknown epsilon"
    else:
        spent = (
            f"epsilon = {_number(spending.epsilon)} of histories that change at the same times, "
            f"{_bound(spending.epsilon_any_history)} of any"
        )
    return (
        "Deleted the secret, the ledger and all unsent reports. What was sent before can't be "
        f"called back: it has spent {spent}. A later start draws a new secret, and then the same "
        "answers cost as much again, which no ledger will know."
    )


def _reported_part(metric: Metric, cohort: int) -> str:
    """Return a line about how much of the answer a report depends on, if that isn't always all."""
    part = metric.type.part(cohort)
    return f"  about {part} of your answer, in noise;\n" if part else ""


def _reported_fields(metric: Metric) -> str:
    """Return a line about the fields that a report is about at once, if values have any."""
    if not metric.type.field_names():
        return ""
    return (
        f"  about {_all_fields(metric)}, in noise: they travel as one value under one epsilon, "
        "whichever of them changes;\n"
    )


def _answered_fields(metric: Metric) -> str:
    """Return a sentence about the fields of an answer, if values have any."""
    if not metric.type.field_names():
        return ""
    return f" Each answer is one value, about {_all_fields(metric)}."


def _all_fields(metric: Metric) -> str:
    names = metric.type.field_names()
    return f"{'both' if len(names) == 2 else 'all'} of: {', '.join(names)}"


def _possible_parts(metric: Metric) -> list[str]:
    """Return a line about which parts of answers clients report, if these aren't always all."""
    parts = metric.type.parts()
    if not parts:
        return []
    lasting = "of each answer" if metric.memory == "period" else "of all its answers, for life"
    return [f"  a client reports one part {lasting}: {', or '.join(parts)}"]


def _bound(epsilon: float) -> str:
    return "not bounded" if math.isinf(epsilon) else f"at most {epsilon:.3g}"


def _remembered(metric: Metric) -> str:
    return "period" if metric.memory == "period" else "answer"


def _any_history(metric: Metric) -> str:
    """Return what bounds all reports together, whatever changes."""
    if metric.one_time:
        return f"at most {metric.epsilon_report:.3g}, for there is one report"
    if metric.memory == "period":
        most = metric.max_periods * metric.epsilon_permanent
        return (
            f"at most {metric.epsilon_permanent:.3g} for each period, {most:.3g} in all, whatever "
            "changes"
        )
    if metric.max_values == 1:
        return f"at most {metric.epsilon_permanent:.3g}, for later answers aren't reported"
    return "not bounded: whoever links reports can see that and when an answer changes"


def _fold(epsilon: float) -> str:
    return f"{math.exp(epsilon):,.3g}-fold" if epsilon < 700 else "without any bound"


def _number(epsilon: float) -> str:
    return "unbounded" if math.isinf(epsilon) else f"{epsilon:.3g}"
