"""The command's options into a plan that is written and shown."""

from __future__ import annotations

from hubbub.client.toml_checks import metric_name
from hubbub.decoder.output.files import write_rendered
from hubbub.decoder.output.strings import stdout_console
from hubbub.decoder.planning.limits import Question
from hubbub.decoder.planning.noise import Budget
from hubbub.decoder.planning.output import Answer, renderings, show
from hubbub.decoder.planning.search import compare, compare_for_share

_WIDTH_OFF_TERMINAL = 150


def run(
    question: Question,
    budget: Budget,
    reports: float | None,
    share: float | None,
    *,
    max_bits: int,
    name: str,
    outputs: tuple[str, ...],
) -> None:
    """Search, write the files, print the table; see the command's --help.

    Raises
    ------
    PlanError
        If nothing within the budget answers the question.
    MetricError
        If the name can't be a metric's.
    """
    metric_name("--name", name)
    if reports is not None:
        comparison = compare(budget, question, reports, max_bits)
    elif share is not None:
        comparison = compare_for_share(budget, question, share, max_bits)
    else:
        raise ValueError("reports, share: one of them must be given")
    answer = Answer(comparison, share)
    for output in outputs:
        write_rendered(output, renderings(answer))
    show(answer, stdout_console(_WIDTH_OFF_TERMINAL), name)
