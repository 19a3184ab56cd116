"""Options that types refuse which are decoded from bit counts."""

from __future__ import annotations

from hubbub.decoder.options import BY_DAY, DecodeOptions
from hubbub.protocol.errors import Option, OptionError
from hubbub.protocol.metrics import Metric


def refuse_beyond_counts(options: DecodeOptions, what: str) -> None:
    """Raise OptionError if whole reports or days are asked for.

    `what`: the metric and its type.
    """
    how = options.estimate
    if how.method == "likelihood":
        raise OptionError(
            Option("method", how.method), f": {what} is decoded from bit counts. Leave ",
            Option("method"), " out.",
        )  # fmt: skip
    if how.by == BY_DAY:
        raise OptionError(
            Option("by", how.by), f": {what} is decoded over all days at once; choose days with ",
            Option("since"), " and ", Option("until"), ".",
        )  # fmt: skip


def refuse_lists_and_reports(
    metric: Metric, options: DecodeOptions, no_lists: str, no_reports: str
) -> None:
    """Raise OptionError if strings to look for, or whole reports, are asked for.

    `metric`: what is decoded. `no_lists` and `no_reports`: why there is nothing to look for, and
    nothing more in whole reports: after the type's name.
    """
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    for name in options.given("candidates", "map"):
        raise OptionError(name, f": must be left out; {what}{no_lists}.")
    if options.estimate.method == "likelihood":
        raise OptionError(
            Option("method", "likelihood"), f": {what}{no_reports}. Leave ",
            Option("method"), " out.",
        )  # fmt: skip
