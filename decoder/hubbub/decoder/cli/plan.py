"""`hubbub-decoder plan`: parameters for a question, before anything is collected.

Only what --help needs is imported at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

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
@click.argument("metric", required=False)
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
    type=_Number(0, math.inf, name="epsilon", infinite=True),
    help="What all reports of one value may reveal together; inf for one-time collection.",
)
@click.option("--epsilon-report", type=_Number(0, math.inf), help="What one report may reveal.")
@click.option(
    "--evaluate",
    is_flag=True,
    help="Instead of the two epsilons: say what given parameters achieve, and how much more the "
    "best would at the epsilons that they spend.",
)
@click.option("--k", type=int, help="With --evaluate: bits of a report.")
@click.option("--h", type=int, help="With --evaluate: hash functions.")
@click.option("--m", type=int, help="With --evaluate: cohorts.")
@click.option("--f", type=float, help="With --evaluate: permanent noise.")
@click.option("--p", type=float, help="With --evaluate: chance that a 0 is reported as 1.")
@click.option("--q", type=float, help="With --evaluate: chance that a 1 is reported as 1.")
@click.option(
    "--metrics",
    metavar="FILE",
    help="With --evaluate, instead of the six: the registry that METRIC stands in.",
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
    metric: str | None,
    reports: float | None,
    share: float | None,
    candidates: float,
    epsilon_permanent: float | None,
    epsilon_report: float | None,
    evaluate: bool,
    metrics: str | None,
    k: int | None,
    h: int | None,
    m: int | None,
    f: float | None,
    p: float | None,
    q: float | None,
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

    Or evaluate parameters that there are already, of which the epsilons follow:

    \b
      hubbub-decoder plan --evaluate --reports 1e6 --candidates 1e5 \\
          --k 128 --h 2 --m 64 --f 0.5 --p 0.25 --q 0.75
      hubbub-decoder plan --evaluate --reports 1e6 --candidates 1e5 \\
          homepage --metrics metrics.toml

    The table compares the best parameters with round numbers, with the RAPPOR paper's default moved
    to the same epsilons, and with the best of every number of hashes. Below it is the entry for
    metrics.toml. docs/planning.md has the theory and how well simulations agree with it.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    if reports is None and share is None:
        raise click.UsageError("Missing option '--reports' or '--share': what is there, or wanted.")
    six: dict[str, object] = {"--k": k, "--h": h, "--m": m, "--f": f, "--p": p, "--q": q}
    registered: dict[str, object] = {"METRIC": metric, "--metrics": metrics}
    epsilons: dict[str, object] = {
        "--epsilon-permanent": epsilon_permanent,
        "--epsilon-report": epsilon_report,
    }
    if not evaluate:
        _refuse(six | registered, "belongs to --evaluate.")
        _require(epsilons)
    else:
        _refuse(epsilons, "follows from the parameters that --evaluate is given.")
        if metric is None and metrics is None:
            _require(six, "of --evaluate (or METRIC and '--metrics')")
        else:
            _refuse(six, "METRIC of --metrics has parameters already.")
            _require(registered, "of --evaluate")
    from hubbub.decoder.formats.writers import write_results  # noqa: PLC0415
    from hubbub.decoder.planning import search  # noqa: PLC0415
    from hubbub.decoder.planning.limits import Method, Question  # noqa: PLC0415
    from hubbub.decoder.planning.noise import Budget  # noqa: PLC0415
    from hubbub.decoder.planning.result import PlanResult  # noqa: PLC0415
    from hubbub.protocol.checks import metric_name  # noqa: PLC0415 - see `hubbub.decoder.cli.group`
    from hubbub.protocol.params import RapporParams  # noqa: PLC0415
    from hubbub.protocol.registry import Registry  # noqa: PLC0415

    with cli_errors():
        question = Question(candidates, alpha, power, Method(method), concentration)
        metric_name("--name", name)
        bits = max_bits // 8 * 8
        if evaluate:
            if metric is not None:
                name = metric
                params = search.string_params(Registry.load(metrics or "")[metric])
            else:
                params = RapporParams(k or 0, h or 0, m or 0, f or 0.0, p or 0.0, q or 0.0)
            comparison = search.evaluate(params, question, reports, share, bits)
        else:
            budget = Budget(epsilon_permanent or 0.0, epsilon_report or 0.0)
            if reports is not None:
                comparison = search.compare(budget, question, reports, bits)
            else:
                comparison = search.compare_for_share(budget, question, share or 0.0, bits)
        result = PlanResult(comparison, share, name)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)


def _require(options: Mapping[str, object], of: str = "") -> None:
    """Raise UsageError if one of the options wasn't given."""
    for name, value in options.items():
        if value is None:
            raise click.UsageError(f"Missing option '{name}' {of}".strip() + ".")


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Raise UsageError if one of the options was given."""
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"{name}: {why}")
