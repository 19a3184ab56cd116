"""`hubbub-decoder plan strings|open|table`: parameters for a goal, before anything is collected.

Each subcommand has the options that its goal can use; what they have in common ends in `_run`.
Only what --help needs is imported at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hubbub.reporting.command_line import cli_errors, only_files

if TYPE_CHECKING:
    from hubbub.planning.goals import Goal
    from hubbub.protocol.metrics import Metric
    from hubbub.protocol.params import RapporParams

_WIDTH_OFF_TERMINAL = 160  # the widest table of plans fits
_MOST_BITS = 4096  # `hubbub.protocol.params.MOST_BITS`, which --help mustn't import
_USUAL_BITS = 1024  # `hubbub.planning.search.USUAL_BITS`
_Command = TypeVar("_Command", bound=Callable[..., None])


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


def _common_options(numbers: str, most_bits: int) -> Callable[[_Command], _Command]:
    """Return a decorator with the options that `_run` takes.

    Parameters
    ----------
    numbers : str
        Which of k, h, m, f, p and q can be given.
    most_bits : int
        Default of --max-bits.
    """
    meanings = {
        "k": "bits of a report",
        "h": "hash functions",
        "m": "cohorts",
        "f": "permanent noise",
        "p": "chance that a 0 is reported as 1",
        "q": "chance that a 1 is reported as 1",
    }
    options = [
        click.argument("metric", required=False),
        click.option(
            "--reports", type=_Number(0, math.inf), help="Reports that will be there, as 1e6."
        ),
        click.option(
            "--share",
            type=_Number(0, 1),
            help="Share of the population to be found. Without --reports: how many it takes.",
        ),
        click.option(
            "--error",
            type=_Number(0, 1),
            help="Instead of --share: standard error of the share of what nobody has.",
        ),
        click.option(
            "--epsilon-permanent",
            type=_Number(0, math.inf, name="epsilon", infinite=True),
            help="What all reports of one value may reveal together; inf for one-time collection.",
        ),
        click.option(
            "--epsilon-report", type=_Number(0, math.inf), help="What one report may reveal."
        ),
        *(
            click.option(
                f"--{name}",
                type=int if name in "khm" else float,
                help=f"Instead of the two epsilons, to be evaluated: {meanings[name]}.",
            )
            for name in numbers
        ),
        click.option(
            "--metrics",
            metavar="FILE",
            help="Instead of epsilons and numbers: the registry that METRIC stands in.",
        ),
        click.option(
            "--alpha",
            default=0.05,
            show_default=True,
            type=_Number(0, 1),
            help="Chance of even one false name among the detected.",
        ),
        click.option(
            "--power",
            default=0.9,
            show_default=True,
            type=_Number(0.5, 1),
            help="Probability with which what has the share is to be found.",
        ),
        click.option(
            "--max-bits",
            default=most_bits,
            show_default=True,
            type=click.IntRange(8, _MOST_BITS),
            help="Most bits of a report.",
        ),
        click.option("--name", default="example", show_default=True, help="The metric's name."),
        click.option(
            "--output",
            "outputs",
            multiple=True,
            callback=only_files(".png", ".svg", ".json", ".csv"),
            metavar="FILE",
            help="Also write the comparison to FILE.csv or FILE.json, or draw it as FILE.png or "
            "FILE.svg. May be repeated.",
        ),
    ]

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_concentration = click.option(
    "--concentration",
    type=click.FloatRange(0, 1),
    help="Sum of the squared shares of all strings that won't be detected: their bits are noise, "
    "too.  [default: that of Zipf's law]",
)


@click.group()
def plan() -> None:
    """Choose k, h, m, f, p and q within two epsilons.

    Of all parameters that spend no more than --epsilon-permanent and --epsilon-report, find those
    with which --reports show the rarest string or cell, or with which --share needs the fewest
    reports. Or evaluate parameters that there are already: --k, --h, --m, --f, --p and --q, or a
    METRIC of --metrics. The epsilons then follow, and the best parameters at these are shown, too.

    The table compares the best parameters with others. Below it is the entry for metrics.toml.
    docs/planning.md has the theory and how well simulations agree with it.
    """


@plan.command()
@click.option(
    "--candidates",
    required=True,
    type=_Number(0, math.inf),
    help="Strings that will be looked for, as 1e5.",
)
@_common_options("khmfpq", _USUAL_BITS)
@click.option(
    "--method",
    default="regression",
    show_default=True,
    type=click.Choice(["regression", "likelihood"]),
    help="How reports will be decoded: from bit counts, or each as a whole.",
)
@_concentration
def strings(
    candidates: float,
    alpha: float,
    power: float,
    method: str,
    concentration: float | None,
    **shared: Any,
) -> None:
    """Plan for strings that will be looked for in a list.

    \b
      hubbub-decoder plan strings --reports 1e6 --candidates 1e5 \\
          --epsilon-permanent 4.4 --epsilon-report 1.1
      hubbub-decoder plan strings --share 0.005 --candidates 1e5 \\
          --epsilon-permanent 4.4 --epsilon-report 1.1 --output plan.png
      hubbub-decoder plan strings --reports 1e6 --candidates 1e5 \\
          --k 128 --h 2 --m 64 --f 0.5 --p 0.25 --q 0.75
      hubbub-decoder plan strings --reports 1e6 --candidates 1e5 homepage --metrics metrics.toml

    The best parameters are compared with round numbers, with the RAPPOR paper's default moved to
    the same epsilons, and with the best of every number of hashes.
    """  # noqa: D301 - click keeps the lines after a backspace as they are

    def goal_of(metric: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning.limits import DetectionMethod, DetectionTest  # noqa: PLC0415
        from hubbub.planning.strings import StringsGoal, string_params  # noqa: PLC0415

        test = DetectionTest(candidates, alpha, power, DetectionMethod(method), concentration)
        return StringsGoal(test), string_params(metric) if metric else None

    _run(goal_of, {}, **shared)


@plan.command("open")
@click.option(
    "--longest",
    type=click.IntRange(1, 64),
    metavar="BYTES",
    help="How long all but a few strings are, from which --steps follow; 8 for names, 40 for "
    "domains.  [default: 8]",
)
@click.option(
    "--steps",
    callback=_ascending,
    metavar="BYTES,...",
    help="Instead of --longest: lengths of the prefixes, as 4,7.",
)
@_common_options("kmfpq", _USUAL_BITS)
@_concentration
def open_strings(
    longest: int | None,
    steps: tuple[int, ...] | None,
    alpha: float,
    power: float,
    concentration: float | None,
    **shared: Any,
) -> None:
    """Plan for strings that nobody lists: they are found prefix by prefix (type open-string).

    \b
      hubbub-decoder plan open --reports 1e6 --longest 8 \\
          --epsilon-permanent inf --epsilon-report 4
      hubbub-decoder plan open --reports 1e6 typed_words --metrics metrics.toml
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    _one_of({"--longest": longest, "--steps": steps, "METRIC": shared["metric"]}, least=0)

    def goal_of(metric: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning import open_strings as planning  # noqa: PLC0415

        test = planning.open_test(alpha, power, concentration)
        if metric:
            of_metric, params = planning.open_params(metric)
            return planning.OpenGoal(test, of_metric), params
        chosen = steps or planning.choose_steps(longest or planning.TYPICAL_LENGTH)
        planning.check_cohorts(chosen, shared["m"] or 1)
        return planning.OpenGoal(test, chosen), None

    _run(goal_of, {"h": 1}, **shared)


@plan.command()
@click.option(
    "--cells",
    callback=_sizes,
    metavar="NxM",
    help="How many values each of two or three fields has, as 100x20; METRIC has its own.",
)
@_common_options("khmfpq", _MOST_BITS)
def table(cells: tuple[int, ...] | None, alpha: float, power: float, **shared: Any) -> None:
    """Plan for a table of several fields, which are one value (type joint).

    \b
      hubbub-decoder plan table --cells 100x20 --reports 1e6 \\
          --epsilon-permanent inf --epsilon-report 4
      hubbub-decoder plan table --cells 100x20 --reports 1e6 --f 0 --p 0.018 --q 0.5

    Where each cell has a bit, --k, --h and --m may be left out; more cells than --max-bits are
    hashed.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    _one_of({"--cells": cells, "METRIC": shared["metric"]})

    def goal_of(metric: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning.joint import joint_goal, table_goal  # noqa: PLC0415

        if metric:
            return joint_goal(metric, alpha, power), metric.params
        return table_goal(cells or (), alpha, power), None

    _run(goal_of, {"k": -(-math.prod(cells or ()) // 8) * 8, "h": 1, "m": 1}, **shared)


def _run(
    goal_of: Callable[[Metric | None], tuple[Goal, RapporParams | None]],
    defaults: Mapping[str, int],
    *,
    metric: str | None,
    metrics: str | None,
    reports: float | None,
    share: float | None,
    error: float | None,
    epsilon_permanent: float | None,
    epsilon_report: float | None,
    max_bits: int,
    name: str,
    outputs: tuple[str, ...],
    **numbers: Any,
) -> None:
    """Plan within two epsilons, or evaluate parameters, and write what comes out.

    Parameters
    ----------
    goal_of : callable
        The goal and, of a metric of the registry, its parameters.
    defaults : mapping of str to int
        What numbers are that needn't be given, or can't be.
    metric, metrics, reports, share, error
        The options of these names (`_common_options`).
    epsilon_permanent, epsilon_report, max_bits, name, outputs
        As well.
    numbers
        Those of k, h, m, f, p and q that can be given; None: it wasn't.
    """
    epsilons = {"--epsilon-permanent": epsilon_permanent, "--epsilon-report": epsilon_report}
    given = {f"--{key}": number for key, number in numbers.items() if key not in defaults}
    extra = {f"--{key}": number for key, number in numbers.items() if key in defaults}
    registered = {"METRIC": metric, "--metrics": metrics}
    _one_of({"--share": share, "--error": error}, least=0)
    if reports is None and share is None and error is None:
        raise click.UsageError(
            "Missing option '--reports', '--share' or '--error': what is there, or wanted."
        )
    way = _way_taken(epsilons, {**given, **extra}, registered, optional=extra)
    from hubbub.planning import search  # noqa: PLC0415 - see `hubbub.decoder.cli.group`
    from hubbub.planning.noise import Budget  # noqa: PLC0415
    from hubbub.planning.result import plan_estimates  # noqa: PLC0415
    from hubbub.protocol.checks import metric_name  # noqa: PLC0415
    from hubbub.protocol.params import RapporParams  # noqa: PLC0415
    from hubbub.protocol.registry import Registry  # noqa: PLC0415
    from hubbub.reporting.formats.writers import write_results  # noqa: PLC0415

    with cli_errors():
        metric_name("--name", name)
        found = Registry.load(metrics or "")[metric or ""] if way is registered else None
        goal, params = goal_of(found)
        wanted: dict[str, Any] = {
            "n_reports": reports,
            "share": share,
            "std_error": error,
            "most_bits": max_bits // 8 * 8,
        }
        if way is epsilons:
            budget = Budget(epsilon_permanent or 0.0, epsilon_report or 0.0)
            comparison = search.plan(goal, budget, **wanted)
        else:
            chosen = {key: number for key, number in numbers.items() if number is not None}
            params = params or RapporParams(**(dict(defaults) | chosen))
            comparison = search.evaluate(goal, params, **wanted)
        result = plan_estimates(goal, comparison, found.name if found else name, share, error)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)


def _one_of(options: Mapping[str, object], least: int = 1) -> None:
    """Raise UsageError if several of the options were given, or fewer than must be."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} can't be combined.")
    if len(given) < least:
        raise click.UsageError(f"Missing option '{next(iter(options))}'.")


def _way_taken(*ways: Mapping[str, object], optional: Container[str]) -> Mapping[str, object]:
    """Return the one group of options that was given, and given whole; by default the first.

    Raises
    ------
    UsageError
        If options of two groups were given, or one that isn't optional is missing.
    """
    firsts = {
        name: way
        for way in ways
        for name in [next((name for name, value in way.items() if value is not None), None)]
        if name
    }
    _one_of(dict.fromkeys(firsts, True), least=0)
    way = next(iter(firsts.values()), ways[0])
    for name, value in way.items():
        if value is None and name not in optional:
            raise click.UsageError(f"Missing option '{name}'.")
    return way
