"""`hubbub-decoder plan`: parameters for a question, before anything is collected.

Only what --help needs is imported at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hubbub.decoder.cli.options import cli_errors, only_files

if TYPE_CHECKING:
    from hubbub.decoder.results.result import Result
    from hubbub.planning.noise import Budget
    from hubbub.protocol.metrics import Metric
    from hubbub.protocol.params import RapporParams

_WIDTH_OFF_TERMINAL = 150
_USUAL_BITS, _MOST_BITS = 1024, 4096


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


def _ascending(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Return lengths such as 4,7."""
    if text is None:
        return None
    from hubbub.protocol.checks import ascending_integers  # noqa: PLC0415 - see `cli.group`
    from hubbub.protocol.errors import HubbubError  # noqa: PLC0415
    from hubbub.protocol.metric_types.open_strings import (  # noqa: PLC0415
        LONGEST_STEP,
        MOST_STEPS,
    )

    try:
        numbers = [int(part) for part in text.split(",")]
        return ascending_integers("--steps", numbers, MOST_STEPS, 1, LONGEST_STEP)
    except HubbubError as error:
        raise click.BadParameter(str(error), context, option) from error
    except ValueError as error:
        raise click.BadParameter(f"{text!r} must be integers as 4,7", context, option) from error


def _sizes(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Return numbers of values such as 100x20."""
    if text is None:
        return None
    parts = text.replace("\N{MULTIPLICATION SIGN}", "x").lower().split("x")
    try:
        return tuple(map(int, parts))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} must be numbers as 100x20", context, option) from error


@dataclass(frozen=True, slots=True)
class _Options:
    """What was asked for, under the options' names."""

    metric: str | None
    reports: float | None
    share: float | None
    candidates: float | None
    is_open: bool
    cells: tuple[int, ...] | None
    error: float | None
    longest: int | None
    steps: tuple[int, ...] | None
    epsilon_permanent: float | None
    epsilon_report: float | None
    evaluate: bool
    metrics: str | None
    k: int | None
    h: int | None
    m: int | None
    f: float | None
    p: float | None
    q: float | None
    alpha: float
    power: float
    method: str | None
    concentration: float | None
    max_bits: int | None
    name: str
    outputs: tuple[str, ...]

    @property
    def numbers(self) -> dict[str, object]:
        """The parameters that --evaluate takes one by one."""
        numbers = {name: getattr(self, name) for name in ("k", "h", "m", "f", "p", "q")}
        if self.is_open:
            del numbers["h"]
            numbers["steps"] = self.steps
        if self.cells:
            for name, number in (("k", self.bits_of_cells), ("h", 1), ("m", 1)):
                numbers[name] = numbers[name] or number
        return {f"--{name}": value for name, value in numbers.items()}

    @property
    def budget(self) -> Budget:
        """The epsilons, as the planner takes them."""
        from hubbub.planning.noise import Budget  # noqa: PLC0415 - see `cli.group`

        return Budget(self.epsilon_permanent or 0.0, self.epsilon_report or 0.0)

    @property
    def bits(self) -> int:
        """Most bits of a report, whole bytes."""
        return (self.max_bits or (_MOST_BITS if self.is_table else _USUAL_BITS)) // 8 * 8

    @property
    def bits_of_cells(self) -> int:
        """A bit a cell, whole bytes."""
        return -(-math.prod(self.cells or ()) // 8) * 8

    @property
    def is_table(self) -> bool:
        """Whether it is about cells: of --cells, or of a METRIC without strings to look for."""
        return self.cells is not None or (
            self.metric is not None and self.candidates is None and not self.is_open
        )

    def params(self, h: int | None = None) -> RapporParams:
        """Return the given numbers as parameters, with an h that they don't say."""
        from hubbub.protocol.params import RapporParams  # noqa: PLC0415 - see `cli.group`

        numbers: dict[str, Any] = {key[2:]: number for key, number in self.numbers.items()}
        numbers.pop("steps", None)
        return RapporParams(**({"h": h} if h else {}), **numbers)

    def registered(self) -> Metric | None:
        """Return the metric that is to be evaluated, if it is named."""
        from hubbub.protocol.registry import Registry  # noqa: PLC0415 - see `cli.group`

        return Registry.load(self.metrics or "")[self.metric] if self.metric is not None else None


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
    type=_Number(0, math.inf),
    help="Strings that will be looked for, as 1e5.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Instead of --candidates: nobody lists the strings, they are found prefix by prefix "
    "(type open-string).",
)
@click.option(
    "--cells",
    callback=_sizes,
    metavar="NxM",
    help="Instead of --candidates: a table of two or three fields with so many values each, as "
    "100x20 (type joint).",
)
@click.option(
    "--error",
    type=_Number(0, 1),
    help="With --cells, instead of --share: standard error of a rare cell's share.",
)
@click.option(
    "--longest",
    type=click.IntRange(1, 64),
    metavar="BYTES",
    help="With --open: how long all but a few strings are, from which --steps follow; 8 for "
    "names, 40 for domains.  [default: 8]",
)
@click.option(
    "--steps",
    callback=_ascending,
    metavar="BYTES,...",
    help="With --open, instead of --longest: lengths of the prefixes, as 4,7.",
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
    type=click.Choice(["regression", "likelihood"]),
    help="How reports will be decoded: from bit counts, or each as a whole.  [default: regression]",
)
@click.option(
    "--concentration",
    type=click.FloatRange(0, 1),
    help="Sum of the squared shares of all strings that won't be detected: their bits are noise, "
    "too.  [default: that of Zipf's law over the candidates]",
)
@click.option(
    "--max-bits",
    type=click.IntRange(8, _MOST_BITS),
    help="Most bits of a report; where --cells has more cells, they are hashed.  [default: 1024; "
    "4096 with --cells]",
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
def plan(**options: Any) -> None:
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

    Or plan for strings that nobody lists:

    \b
      hubbub-decoder plan --open --reports 1e6 --longest 8 \\
          --epsilon-permanent inf --epsilon-report 4

    Or for a table of several fields, which are one value:

    \b
      hubbub-decoder plan --cells 100x20 --reports 1e6 \\
          --epsilon-permanent inf --epsilon-report 4

    The table compares the best parameters with round numbers, with the RAPPOR paper's default moved
    to the same epsilons, and with the best of every number of hashes. Below it is the entry for
    metrics.toml. docs/planning.md has the theory and how well simulations agree with it.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    asked = _Options(**options)
    _check(asked)
    from hubbub.decoder.formats.writers import write_results  # noqa: PLC0415
    from hubbub.protocol.checks import metric_name  # noqa: PLC0415 - see `hubbub.decoder.cli.group`

    with cli_errors():
        metric_name("--name", asked.name)
        if asked.is_table:
            result = _plan_table(asked)
        else:
            result = _plan_open(asked) if asked.is_open else _plan_listed(asked)
        write_results(result, asked.outputs, width=_WIDTH_OFF_TERMINAL)


def _check(asked: _Options) -> None:
    """Refuse options that are missing or contradict each other, before anything is opened."""
    if asked.is_table:
        _refuse({"--candidates": asked.candidates}, "must be left out; --cells says how many.")
        _refuse({"--open": asked.is_open or None}, "must be left out; --cells aren't strings.")
        if asked.metric is not None:
            _refuse({"--cells": asked.cells}, "must be left out; METRIC has its own.")
        _refuse(
            {"--method": asked.method, "--concentration": asked.concentration},
            "belongs to strings, not to --cells.",
        )
    else:
        _refuse({"--error": asked.error}, "belongs to --cells.")
    if asked.reports is None and asked.share is None and asked.error is None:
        raise click.UsageError("Missing option '--reports' or '--share': what is there, or wanted.")
    if asked.share is not None:
        _refuse({"--error": asked.error}, "must be left out; --share says what is wanted.")
    if asked.is_open:
        _refuse({"--candidates": asked.candidates}, "must be left out, for --open has no list.")
        _refuse(
            {"--method": asked.method},
            "must be left out, for --open is decoded from bit counts.",
        )
        _refuse({"--h": asked.h}, "must be left out; strings of --open have one hash.")
        if asked.steps is not None:
            _refuse({"--longest": asked.longest}, "must be left out; --steps are given.")
    else:
        _refuse({"--longest": asked.longest, "--steps": asked.steps}, "belongs to --open.")
        if not asked.is_table:
            _require({"--candidates": asked.candidates}, "(or '--open' or '--cells')")
    epsilons: dict[str, object] = {
        "--epsilon-permanent": asked.epsilon_permanent,
        "--epsilon-report": asked.epsilon_report,
    }
    registered: dict[str, object] = {"METRIC": asked.metric, "--metrics": asked.metrics}
    numbers = asked.numbers
    if not asked.evaluate:
        numbers = {f"--{name}": getattr(asked, name) for name in ("k", "h", "m", "f", "p", "q")}
        _refuse(numbers | registered, "belongs to --evaluate.")
        _require(epsilons)
        return
    _refuse(epsilons, "follows from the parameters that --evaluate is given.")
    _refuse({"--longest": asked.longest}, "must be left out; --evaluate takes --steps.")
    if asked.metric is None and asked.metrics is None:
        _require(numbers, "of --evaluate (or METRIC and '--metrics')")
    else:
        _refuse(numbers, "METRIC of --metrics has parameters already.")
        _require(registered, "of --evaluate")


def _plan_listed(asked: _Options) -> Result:
    """Plan for strings that will stand in a list."""
    from hubbub.planning import search  # noqa: PLC0415
    from hubbub.planning.limits import Method, Question  # noqa: PLC0415
    from hubbub.planning.result import PlanResult  # noqa: PLC0415

    method = Method(asked.method or Method.REGRESSION.value)
    question = Question(
        asked.candidates or 0.0, asked.alpha, asked.power, method, asked.concentration
    )
    name, reports, share = asked.name, asked.reports, asked.share
    if asked.evaluate:
        metric = asked.registered()
        name = metric.name if metric else name
        params = search.string_params(metric) if metric else asked.params()
        found = search.evaluate(params, question, reports, share, asked.bits)
    elif reports is not None:
        found = search.compare(asked.budget, question, reports, asked.bits)
    else:
        found = search.compare_for_share(asked.budget, question, share or 0.0, asked.bits)
    return PlanResult(found, share, name)


def _plan_open(asked: _Options) -> Result:
    """Plan for strings that nobody lists."""
    from hubbub.planning import open_strings  # noqa: PLC0415
    from hubbub.planning.open_result import OpenPlanResult  # noqa: PLC0415

    question = open_strings.open_question(asked.alpha, asked.power, asked.concentration)
    name, reports, share = asked.name, asked.reports, asked.share
    if asked.evaluate:
        metric = asked.registered()
        if metric:
            name = metric.name
            steps, params = open_strings.open_params(metric)
        else:
            steps, params = asked.steps or (), asked.params(1)
            open_strings.check_cohorts(steps, params.m)
        found = open_strings.evaluate_open(steps, params, question, reports, share, asked.bits)
        return OpenPlanResult(found, share, name)
    steps = asked.steps or open_strings.choose_steps(asked.longest or open_strings.TYPICAL_LENGTH)
    if reports is not None:
        found = open_strings.plan_open(asked.budget, question, reports, steps, asked.bits)
    else:
        found = open_strings.plan_open_for_share(
            asked.budget, question, share or 0.0, steps, asked.bits
        )
    return OpenPlanResult(found, share, name)


def _plan_table(asked: _Options) -> Result:
    """Plan for a table of several fields."""
    from hubbub.planning import joint  # noqa: PLC0415
    from hubbub.planning.joint_result import JointPlanResult  # noqa: PLC0415
    from hubbub.planning.tables import TableQuestion  # noqa: PLC0415

    name, reports, share, error = asked.name, asked.reports, asked.share, asked.error
    metric = asked.registered()
    if metric:
        name = metric.name
        question = joint.joint_question(metric, asked.alpha, asked.power)
    else:
        question = TableQuestion(asked.cells or (), asked.alpha, asked.power)
    if asked.evaluate:
        params = metric.params if metric else asked.params()
        found = joint.evaluate_joint(params, question, reports, share, error, asked.bits)
    elif reports is not None:
        found = joint.plan_joint(asked.budget, question, reports, asked.bits)
    elif share is not None:
        found = joint.plan_joint_for_share(asked.budget, question, share, asked.bits)
    else:
        found = joint.plan_joint_for_error(asked.budget, question, error or 0.0, asked.bits)
    return JointPlanResult(found, share, name, error)


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
