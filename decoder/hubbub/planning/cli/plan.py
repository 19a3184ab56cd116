"""`hubbub-decoder plan strings|open|categories|table|number|compare`, before collecting.

Each subcommand has the options that its goal can use; what they have in common ends in `_run`.
Only what --help needs is imported at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hubbub.reporting import Number, WithHeadings, cli_errors, only_files

if TYPE_CHECKING:
    from hubbub.planning.goals import Goal
    from hubbub.protocol import Metric, RapporParams

_WIDTH_OFF_TERMINAL = 160  # the widest table of plans fits
_MOST_BITS = 4096  # `hubbub.protocol.params.MOST_BITS`, which --help mustn't import
_USUAL_BITS = 1024  # `hubbub.planning.search.USUAL_BITS`
_USUAL_PERIOD, _USUAL_PERIODS = 30, 24  # `hubbub.planning.goals.USUAL_PERIOD`, ..._PERIODS
_USUAL_CLIENTS = 1e5  # whose table of modes is shown if nothing is asked of it: a small product's
_LONGEST_PERIOD = 3650  # days, as the registry has it
_HEADINGS = {
    "Repeated answers and reports": "period_days max_periods epsilon_permanent epsilon_report",
    "To evaluate existing parameters": "k h m f p q metrics",
    "What is promised": "alpha power max_bits",
}
_Command = TypeVar("_Command", bound=Callable[..., None])


def _ascending(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Return lengths such as 4,7."""
    if text is None:
        return None
    from hubbub.protocol import LONGEST_STEP, MOST_STEPS, HubbubError, ascending_integers

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


def _number(
    name: str, text: str, high: float = math.inf, *, low: float = 0, **settings: Any
) -> Callable[[_Command], _Command]:
    """Return an option that is a number above `low`, by default 0, and below `high`."""
    return click.option(name, type=Number(low, high), help=text, **settings)


def _output_option(*endings: str) -> Callable[[_Command], _Command]:
    shown = ", ".join(endings)
    return click.option(
        "--output",
        "outputs",
        multiple=True,
        callback=only_files(*endings),
        metavar="FILE",
        help=f"Also write the result to FILE, which ends in {shown}. May be repeated.",
    )


_MEANINGS = {
    "k": "Bits of a report.",
    "h": "Hash functions.",
    "m": "Cohorts.",
    "f": "Permanent noise.",
    "p": "Chance that a 0 is reported as 1.",
    "q": "Chance that a 1 is reported as 1.",
}


def _common_options(numbers: str, most_bits: int) -> Callable[[_Command], _Command]:
    """Return a decorator with the options that `_run` takes, and those of k to q in `numbers`."""
    options = [
        click.argument("metric", required=False),
        click.option(
            "--clients",
            "--reports",
            "clients",
            type=Number(0, math.inf),
            help="Number of clients that will report, such as 1e5, or of their reports, which is "
            "the same in a day or a period.  [default with --epsilon: 1e5]",
        ),
        _number(
            "--share",
            "Share of the population to find. Without --clients, shows how many that takes.",
            1,
        ),
        _number(
            "--error",
            "Instead of --share: standard error of the estimated share of an absent value.",
            1,
        ),
        _number(
            "--epsilon",
            "What a client may spend on one answer; compares all modes and responses.",
        ),
        click.option(
            "--period-days",
            type=click.IntRange(1, _LONGEST_PERIOD),
            help=f"With --epsilon: days until a client answers again.  [default: {_USUAL_PERIOD}]",
        ),
        click.option(
            "--max-periods",
            type=click.IntRange(1),
            help="With --epsilon: most periods in which a client answers.  [default: "
            f"{_USUAL_PERIODS}]",
        ),
        click.option(
            "--epsilon-permanent",
            type=Number(0, math.inf, name="epsilon", infinite=True),
            help="What all reports of one value may reveal together; inf for one-time collection.",
        ),
        _number(
            "--epsilon-report",
            "What one report may reveal; with --epsilon-permanent.",
        ),
        *(
            click.option(f"--{each}", type=int if each in "khm" else float, help=_MEANINGS[each])
            for each in numbers
        ),
        click.option(
            "--metrics",
            metavar="FILE",
            help="The registry that has METRIC, whose parameters are evaluated.",
        ),
        _number(
            "--alpha", "Chance of even one false name among those detected.", 1, **_shown(0.05)
        ),
        _number(
            "--power",
            "Probability of finding a value that has this share.",
            1,
            low=0.5,
            **_shown(0.9),
        ),
        click.option(
            "--max-bits",
            type=click.IntRange(8, _MOST_BITS),
            help="Most bits of a report.",
            **_shown(most_bits),
        ),
        click.option("--name", help="The metric's name.", **_shown("example")),
        _output_option(".json", ".csv", ".png", ".svg"),
    ]

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _shown(default: object) -> dict[str, Any]:
    return {"default": default, "show_default": True}


@click.group()
def plan() -> None:
    """Choose how to ask within an epsilon: mode, response and parameters.

    \b
      hubbub-decoder plan categories 6 --epsilon 2 --clients 1e5
      hubbub-decoder plan strings --candidates 1e4 --epsilon 4 --clients 1e5 --period-days 30
      hubbub-decoder plan number --low 0 --high 60 --epsilon 1

    With --epsilon, compare clients that answer once per period, once in their life, or again and
    again: how much you learn, and what that reveals about each client. Once per period is
    recommended.

    With --epsilon-permanent and --epsilon-report, find the best parameters for repeated reports:
    those that find the rarest string or cell in --reports, or find --share in the fewest reports.

    To evaluate existing parameters, give --k, --h, --m, --f, --p and --q, or a METRIC of --metrics.
    You see their epsilons, and the best parameters for the same epsilons.

    The table compares the best parameters with others. Below it is the entry for metrics.toml.
    docs/understand/planning.md explains the theory and how well simulations agree with it.
    """


@plan.command(cls=WithHeadings, headings=_HEADINGS)
@_number("--candidates", "Number of strings to look for, such as 1e5.", required=True)
@_common_options("khmfpq", _USUAL_BITS)
def strings(candidates: float, alpha: float, power: float, **shared: Any) -> None:
    """Plan for strings that will be looked for in a list.

    \b
      hubbub-decoder plan strings --clients 1e6 --candidates 1e5 --epsilon 4.4
      hubbub-decoder plan strings --reports 1e6 --candidates 1e5 \\
          --epsilon-permanent 4.4 --epsilon-report 1.1
      hubbub-decoder plan strings --share 0.005 --candidates 1e5 \\
          --epsilon-permanent 4.4 --epsilon-report 1.1 --output plan.png
      hubbub-decoder plan strings --reports 1e6 --candidates 1e5 \\
          --k 128 --h 2 --m 64 --f 0.5 --p 0.25 --q 0.75
      hubbub-decoder plan strings --reports 1e6 --candidates 1e5 homepage --metrics metrics.toml

    What is promised is found from counts of bits; whole reports find no less.
    """

    def goal_of(metric: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning.limits import DetectionTest
        from hubbub.planning.strings import StringsGoal, string_params

        test = DetectionTest(candidates, alpha, power)
        return StringsGoal(test), string_params(metric) if metric else None

    _run(goal_of, {}, **shared)


@plan.command("open", cls=WithHeadings, headings=_HEADINGS)
@click.option(
    "--longest",
    type=click.IntRange(1, 64),
    metavar="BYTES",
    help="Length that only a few strings exceed, which sets --steps: 8 for names, 40 for "
    "domains.  [default: 16]",
)
@click.option(
    "--steps",
    callback=_ascending,
    metavar="BYTES,...",
    help="Instead of --longest: lengths of the prefixes, such as 4,7.",
)
@click.option(
    "--alphabet",
    metavar="CHARACTERS",
    help="The characters of most strings, if known, such as 0123456789abcdef.  [default: any]",
)
@_common_options("kmfpq", _USUAL_BITS)
def open_strings(
    longest: int | None,
    steps: tuple[int, ...] | None,
    alphabet: str | None,
    alpha: float,
    power: float,
    **shared: Any,
) -> None:
    """Plan for strings without a list: they are found prefix by prefix (type open-string).

    \b
      hubbub-decoder plan open --reports 1e6 --longest 8 \\
          --epsilon-permanent inf --epsilon-report 4
      hubbub-decoder plan open --reports 1e6 typed_words --metrics metrics.toml
    """
    given = {"--steps": steps, "METRIC": shared["metric"]}
    _one_of({"--longest": longest, **given}, least=0)
    _one_of({"--alphabet": alphabet, **given}, least=0)

    def goal_of(metric: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning import strings as planning

        test = planning.open_test(alpha, power)
        if metric:
            of_metric, params = planning.open_params(metric)
            return planning.OpenGoal(test, of_metric), params
        letters = planning.Letters.of_alphabet(alphabet) if alphabet else None
        chosen = steps or planning.choose_steps(longest or planning.UNKNOWN_LENGTH, letters)
        planning.check_cohorts(chosen, shared["m"] or 1)
        return planning.OpenGoal(test, chosen), None

    _run(goal_of, {"h": 1}, **shared)


@plan.command(cls=WithHeadings, headings=_HEADINGS)
@_common_options("fpq", _MOST_BITS)
def categories(
    metric: str | None, metrics: str | None, alpha: float, power: float, **shared: Any
) -> None:
    """Plan for categories that the registry lists (types enum and ordinal).

    \b
      hubbub-decoder plan categories 6 --epsilon 2 --clients 1e5
      hubbub-decoder plan categories 6 --reports 1e6 --epsilon-permanent 4 --epsilon-report 1
      hubbub-decoder plan categories --reports 1e6 theme --metrics metrics.toml

    METRIC is the number of categories, or the name of a metric in --metrics.
    """
    if metric is None or (metrics is None and not metric.isdecimal()):
        raise click.UsageError("METRIC must be a number of categories, or the name of --metrics.")
    number = int(metric) if metrics is None else 0

    def goal_of(found: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning.categories import categories_goal, listed_goal

        if found:
            return listed_goal(found, alpha, power), found.params
        return categories_goal(number, alpha, power), None

    defaults = {"k": -(-number // 8) * 8, "h": 1, "m": 1}
    _run(goal_of, defaults, metric=metric if metrics else None, metrics=metrics, **shared)


@plan.command(cls=WithHeadings, headings=_HEADINGS)
@click.option("--low", type=float, help="Lowest number; lower ones count as this.")
@click.option("--high", type=float, help="Highest number; higher ones count as this.")
@click.option(
    "--variance",
    is_flag=True,
    help="Ask for the variance too: half of the clients report their number squared.",
)
@_common_options("", _USUAL_BITS)
def number(
    low: float | None,
    high: float | None,
    variance: bool,
    alpha: float,
    power: float,
    **shared: Any,
) -> None:
    """Plan for the mean of a number between two bounds (type number).

    \b
      hubbub-decoder plan number --low 0 --high 60 --epsilon 1
      hubbub-decoder plan number --clients 1e5 seconds --metrics metrics.toml

    --share is then a difference between two means, and --error the error of one mean, both as
    fractions of the range.
    """
    _one_of({"--low": low, "METRIC": shared["metric"]})
    if (low is None) != (high is None):
        raise click.UsageError("--low and --high belong together.")

    def goal_of(found: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning.categories import mean_goal, number_goal

        if found:
            return mean_goal(found, alpha, power), found.params
        return number_goal(low or 0.0, high or 0.0, variance, alpha, power), None

    _run(goal_of, {}, **shared)


@plan.command(cls=WithHeadings, headings=_HEADINGS)
@click.option(
    "--cells",
    callback=_sizes,
    metavar="NxM",
    help="Numbers of values of two or three fields, such as 100x20; METRIC has its own.",
)
@_common_options("khmfpq", _MOST_BITS)
def table(cells: tuple[int, ...] | None, alpha: float, power: float, **shared: Any) -> None:
    """Plan for a table of several fields that form one value (type joint).

    \b
      hubbub-decoder plan table --cells 100x20 --reports 1e6 \\
          --epsilon-permanent inf --epsilon-report 4
      hubbub-decoder plan table --cells 100x20 --reports 1e6 --f 0 --p 0.018 --q 0.5

    If each cell has its own bit, you may leave out --k, --h and --m. A table with more cells than
    --max-bits is hashed.
    """
    _one_of({"--cells": cells, "METRIC": shared["metric"]})

    def goal_of(metric: Metric | None) -> tuple[Goal, RapporParams | None]:
        from hubbub.planning.categories import joint_goal, table_goal

        if metric:
            return joint_goal(metric, alpha, power), metric.params
        return table_goal(cells or (), alpha, power), None

    _run(goal_of, {"k": -(-math.prod(cells or ()) // 8) * 8, "h": 1, "m": 1}, **shared)


@plan.command()
@click.argument("metric")
@click.option("--metrics", required=True, metavar="FILE", help="The registry that has METRIC.")
@_number(
    "--difference",
    "Difference to find, such as 0.005; for the mean of a number, a fraction of its range.",
    1,
)
@_number("--reports", "Reports in each group. If not given, shows how many the difference takes.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of the value that differs in the control; the closer to one half, the more "
    "reports it takes.",
    **_shown(0.1),
)
@_number(
    "--rows",
    "Number of rows to compare.  [default: all categories, all statistics, or 20 strings]",
)
@_number("--candidates", "Number of strings to look for.", **_shown(1e4))
@_number("--alpha", "False discovery rate.", 1, **_shown(0.05))
@_number("--power", "Probability of finding the difference.", 1, low=0.5, **_shown(0.8))
@click.option("--sequential", is_flag=True, help="Look every day, as with `compare --sequential`.")
@_output_option(".json", ".csv")
def compare(
    metric: str, metrics: str, difference: float | None, reports: float | None,
    outputs: tuple[str, ...], **asked: Any,
) -> None:  # fmt: skip
    """Plan a comparison of two groups: how many reports it takes, or which difference it finds.

    \b
      hubbub-decoder plan compare theme --metrics metrics.toml --difference 0.01 --share 0.3
      hubbub-decoder plan compare theme --metrics metrics.toml --reports 1e5 --sequential
    """
    if difference is None and reports is None:
        raise click.UsageError("Missing option '--difference' or '--reports'.")
    if (difference or 0.0) + asked["share"] > 1:
        raise click.UsageError("--difference and --share must be at most 1 together.")
    from hubbub.planning.differences import PlannedComparison, comparison_estimates
    from hubbub.protocol import Registry
    from hubbub.reporting import write_results

    with cli_errors():
        planned = PlannedComparison(Registry.load(metrics)[metric], **asked)
        result = comparison_estimates(planned, reports, difference)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)


def _run(
    goal_of: Callable[[Metric | None], tuple[Goal, RapporParams | None]],
    defaults: Mapping[str, int],
    *,
    metric: str | None,
    metrics: str | None,
    clients: float | None,
    share: float | None,
    error: float | None,
    epsilon: float | None,
    epsilon_permanent: float | None,
    epsilon_report: float | None,
    period_days: int | None,
    max_periods: int | None,
    max_bits: int,
    name: str,
    outputs: tuple[str, ...],
    **numbers: Any,
) -> None:
    """Compare modes, plan within two epsilons, or evaluate parameters; write what comes out.

    `goal_of` returns the goal and, of a metric of the registry, its parameters; `defaults` are of
    numbers that needn't be given, or can't be.
    """
    one = {"--epsilon": epsilon, "--period-days": period_days, "--max-periods": max_periods}
    two = {"--epsilon-permanent": epsilon_permanent, "--epsilon-report": epsilon_report}
    given = {f"--{key}": number for key, number in numbers.items()}
    registered = {"METRIC": metric, "--metrics": metrics}
    optional = {"--period-days", "--max-periods", *(f"--{key}" for key in defaults)}
    way = _way_taken(one, two, given, registered, optional=optional)
    _one_of({"--share": share, "--error": error}, least=0)
    if all(each is None for each in (clients, share, error)):
        if way is not one:
            raise click.UsageError("Give one of --clients, --reports, --share or --error.")
        clients = _USUAL_CLIENTS
    from hubbub.planning import search
    from hubbub.planning.goals import Schedule
    from hubbub.planning.modes import compare_modes
    from hubbub.planning.noise import Budget
    from hubbub.planning.result import plan_estimates
    from hubbub.protocol import RapporParams, Registry, metric_name
    from hubbub.reporting import write_results

    with cli_errors():
        metric_name("--name", name)
        found = Registry.load(metrics or "")[metric or ""] if way is registered else None
        goal, params = goal_of(found)
        wanted: dict[str, Any] = {
            "share": share,
            "std_error": error,
            "most_bits": max_bits // 8 * 8,
        }
        if epsilon is not None:
            days, periods = period_days or _USUAL_PERIOD, max_periods or _USUAL_PERIODS
            schedule = Schedule("once", period_days=days, max_periods=periods)
            comparison = compare_modes(goal, epsilon, schedule, n_clients=clients, **wanted)
        elif way is two:
            budget = Budget(epsilon_permanent or 0.0, epsilon_report or 0.0)
            comparison = search.plan(goal, budget, n_reports=clients, **wanted)
        else:
            chosen = {key: number for key, number in numbers.items() if number is not None}
            params = params or RapporParams(**(dict(defaults) | chosen))
            comparison = search.evaluate(goal, params, n_reports=clients, **wanted)
        result = plan_estimates(comparison, found.name if found else name, share, error)
        write_results(result, outputs, width=_WIDTH_OFF_TERMINAL)


def _one_of(options: Mapping[str, object], least: int = 1) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} can't be combined.")
    if len(given) < least:
        raise click.UsageError(f"Missing option '{next(iter(options))}'.")


def _way_taken(*ways: Mapping[str, object], optional: set[str]) -> Mapping[str, object]:
    """Return the one group of options that was given, and given whole; by default the first."""
    firsts = [next((name for name in way if way[name] is not None), None) for way in ways]
    _one_of({name: name for name in firsts if name}, least=0)
    way = next((way for way, first in zip(ways, firsts, strict=True) if first), ways[0])
    for name, value in way.items():
        if value is None and name not in optional:
            raise click.UsageError(f"Missing option '{name}'.")
    return way
