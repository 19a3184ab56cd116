"""`hubbub-decoder plan`: parameters for a question, before anything is collected.

Only what --help needs is imported at once.
"""

from __future__ import annotations

import math

import click

from hubbub.decoder.cli.options import cli_errors, only_files

_WIDTH_OFF_TERMINAL = 150


class _Number(click.ParamType):  # type: ignore[type-arg]  # a generic only in newer versions of click
    """A number such as 1e6 or 250_000 between two bounds, which are outside; or also inf."""

    def __init__(
        self, low: float, high: float, *, name: str = "number", infinite: bool = False
    ) -> None:
        self.name = name
        self._low, self._high, self._infinite = low, high, infinite

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse it by name."""
        if self._infinite and str(value) == "inf":
            return math.inf
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not self._low < number < self._high:
            top = "" if math.isinf(self._high) else f" and below {self._high:g}"
            self.fail(f"{value} must be above {self._low:g}{top}", param, ctx)
        return number


@click.command()
@click.option("--reports", type=_Number(0, math.inf), help="Reports that will be there, as 1e6.")
@click.option(
    "--share",
    type=_Number(0, 1),
    help="Share of the population to be found. Without --reports: how many it takes.",
)
@click.option(
    "--candidates",
    required=True,
    type=_Number(0, math.inf),
    help="Strings that will be looked for, as 1e5.",
)
@click.option(
    "--epsilon-permanent",
    required=True,
    type=_Number(0, math.inf, name="epsilon", infinite=True),
    help="What all reports of one value may reveal together; inf for one-time collection.",
)
@click.option(
    "--epsilon-report", required=True, type=_Number(0, math.inf), help="What one report may reveal."
)
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=_Number(0, 1),
    help="Chance of even one false name among the detected.",
)
@click.option(
    "--power",
    default=0.9,
    show_default=True,
    type=_Number(0.5, 1),
    help="Probability with which a string of the share is to be found.",
)
@click.option(
    "--method",
    default="regression",
    show_default=True,
    type=click.Choice(["regression", "likelihood"]),
    help="How reports will be decoded: from bit counts, or each as a whole.",
)
@click.option(
    "--concentration",
    type=click.FloatRange(0, 1),
    help="Sum of the squared shares of all strings that won't be detected: their bits are noise, "
    "too.  [default: that of Zipf's law over the candidates]",
)
@click.option(
    "--max-bits",
    default=1024,
    show_default=True,
    type=click.IntRange(8, 1024),
    help="Most bits of a report.",
)
@click.option("--name", default="example", show_default=True, help="The metric's name.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    callback=only_files(".png", ".svg", ".json", ".csv"),
    metavar="FILE",
    help="Also write the comparison to FILE.csv or FILE.json, or draw it as FILE.png or FILE.svg. "
    "May be repeated.",
)
def plan(
    reports: float | None,
    share: float | None,
    candidates: float,
    epsilon_permanent: float,
    epsilon_report: float,
    alpha: float,
    power: float,
    method: str,
    concentration: float | None,
    max_bits: int,
    name: str,
    outputs: tuple[str, ...],
) -> None:
    """Choose k, h, m, f, p and q within two epsilons.

    Of all parameters that spend no more than --epsilon-permanent and --epsilon-report, find those
    with which --reports show the rarest string, or with which --share needs the fewest reports.

    \b
      hubbub-decoder plan --reports 1e6 --candidates 1e5 \\
          --epsilon-permanent 4.4 --epsilon-report 1.1
      hubbub-decoder plan --share 0.005 --candidates 1e5 \\
          --epsilon-permanent 4.4 --epsilon-report 1.1 --output plan.png

    The table compares the best parameters with round numbers, with the RAPPOR paper's default moved
    to the same epsilons, and with the best of every number of hashes. Below it is the entry for
    metrics.toml. docs/planning.md has the theory and how well simulations agree with it.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    if reports is None and share is None:
        raise click.UsageError("Missing option '--reports' or '--share': what is there, or wanted.")
    from hubbub.decoder.formats.writers import write_results  # noqa: PLC0415
    from hubbub.decoder.planning.limits import Method, Question  # noqa: PLC0415
    from hubbub.decoder.planning.noise import Budget  # noqa: PLC0415
    from hubbub.decoder.planning.result import PlanResult  # noqa: PLC0415
    from hubbub.decoder.planning.search import compare, compare_for_share  # noqa: PLC0415
    from hubbub.protocol.checks import metric_name  # noqa: PLC0415 - see `hubbub.decoder.cli.group`

    with cli_errors():
        question = Question(candidates, alpha, power, Method(method), concentration)
        budget = Budget(epsilon_permanent, epsilon_report)
        metric_name("--name", name)
        bits = max_bits // 8 * 8
        if reports is not None:
            comparison = compare(budget, question, reports, bits)
        else:
            assert share is not None  # noqa: S101 - one of the two is there, see above
            comparison = compare_for_share(budget, question, share, bits)
        result = PlanResult(comparison, share, name)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)
