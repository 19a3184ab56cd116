"""What telemetry tells people, in words: what is asked, what would be sent, what has been spent."""

from __future__ import annotations

import math

from hubbub.client.ledger import Spending
from hubbub.client.metrics import Metric, Registry
from hubbub.client.wire import Report


def describe_preview(metric: Metric, report: Report, refusal: str | None) -> str:
    """Return a preview's words."""
    ones = int.from_bytes(report.bits, "little").bit_count()
    verdict = f"This would not be sent: {refusal}." if refusal else "This is what would be sent:"
    return (
        f"{describe_metric(metric)}\n{verdict}\n"
        f"  group {report.cohort} of {metric.params.m}, and {metric.params.k} bits of which {ones} "
        "are 1, after two rounds of coin flips:\n"
        f"  {report.bits.hex()}\n"
        "Your answer itself stays here. For whoever sees this report, the odds between any two "
        f"answers change at most {_fold(metric.epsilon_report)}; for whoever sees all reports of "
        f"this answer for ever, at most {_fold(metric.epsilon_permanent)}."
    )


def describe_metric(metric: Metric) -> str:
    """Return what a metric asks, for whom, until when."""
    mode = "once" if metric.one_time else f"for at most {metric.max_values:,} different answers"
    return (
        f"{metric.name} (version {metric.version}, {metric.kind.name}): {metric.description}. "
        f"Asked by {metric.owner} until {metric.expires}, {mode}."
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
            f"  one report {metric.epsilon_report:.3g}, all reports of one answer "
            f"{_number(metric.epsilon_permanent)}"
        )
    one_answer = math.fsum(_worst(metric) for metric in registry.values())
    budget = spending.lifetime_epsilon
    bound = "" if budget is None else f"; never more than {budget:g}"
    lines.append("")
    lines.append(
        f"One answer to each question, reported for ever: at most {_number(one_answer)} in total."
    )
    lines.append(
        f"Spent so far: {_number(spending.epsilon)}, in {len(spending.metrics)} metrics{bound}."
    )
    if spending.resets:
        lines.append(f"The secret was replaced {spending.resets} times: all answers cost anew.")
    if people > 1:
        lines.append(
            f"{people} people who share this device are protected as a group by {people} times "
            f"that: {_number(people * one_answer)} for one answer each, "
            f"{_number(people * spending.epsilon)} spent."
        )
    return "\n".join(lines)


def describe_forgetting(spending: Spending) -> str:
    """Return what deleting the state means."""
    return (
        "Deleted the secret, the ledger and all unsent reports. What was sent before can't be "
        f"called back: it has spent epsilon = {_number(spending.epsilon)}. A later start draws a "
        "new secret, and then the same answers cost as much again, which no ledger will know."
    )


def _worst(metric: Metric) -> float:
    return metric.epsilon_report if metric.one_time else metric.epsilon_permanent


def _fold(epsilon: float) -> str:
    return f"{math.exp(epsilon):,.3g}-fold" if epsilon < 700 else "without any bound"


def _number(epsilon: float) -> str:
    return "unbounded" if math.isinf(epsilon) else f"{epsilon:.3g}"
