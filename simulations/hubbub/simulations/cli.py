"""The command `hubbub-simulate`: options, what they mean together, and what is refused.

Only what starts a collector is imported where it is used.
"""

from __future__ import annotations

from hubbub.protocol import begin_command

begin_command("simulations")  # before the imports that take longest

import datetime as dt
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from hubbub.inference import Correction, PlanError, cores
from hubbub.planning import subset_params, subset_within
from hubbub.protocol import (
    UNARY,
    EnumType,
    MetricError,
    MetricType,
    OpenStringType,
    ParameterError,
    RapporParams,
    StringType,
)
from hubbub.reporting import (
    WithHeadings,
    cli_errors,
    progress_bar,
    refuse_place,
    show,
    stdout_console,
    whole_number,
)
from hubbub.simulations.experiment import Experiment, make_scenario, run_experiment
from hubbub.simulations.population_sampler import ReportingPlan
from hubbub.simulations.populations import (
    LISTS,
    Population,
    PopulationError,
    census_names,
    family_shares,
    made_up,
    population_of_file,
)
from hubbub.simulations.result import experiment_result

# The planner's choices: for a million reports and 900 candidates at epsilons 4.39 and 2.04; for
# first names that nobody lists, at epsilon 4.
_STRINGS = {"population": "zipf:1.0", "unique": 1_000, "candidates_extra": 0}
DEFAULTS: dict[str, dict[str, object]] = {
    "string": {**_STRINGS, "k": 480, "h": 1, "m": 96, "missing": 0.1},
    "open-string": {
        **_STRINGS, "population": "census", "k": 256, "h": 1, "m": 256, "missing": 1.0,
        "steps": "4,7",
    },
    "enum": {"population": "zipf:1.0", "unique": 10, "response": "unary"},
}  # fmt: skip
"""Options of each type, and what they are unless given."""
NOISE = {"f": 0.2, "p": 0.0677, "q": 0.5515}
_PERIOD_DAYS = 30
"""The README's example."""
_OUT = Path("out")
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Simulate whole populations whose true values are known."""


@contextmanager
def _system_errors() -> Iterator[None]:
    """Turn the decoder's errors, and those of the programs we run, into a line for the user."""
    from hubbub.simulations.collecting import ProcessError, UploadError

    try:
        with cli_errors():
            yield
    except (ProcessError, UploadError) as error:
        raise click.ClickException(str(error)) from error


def _folder(default: str, what: str = "all results") -> Callable[[_Command], _Command]:
    return click.option(
        "--output", default=default, show_default=True,
        type=click.Path(file_okay=False, path_type=Path), help=f"Folder for {what}.",
    )  # fmt: skip


def _make_folder(folder: Path) -> None:
    """Make a folder for results, in one that exists, for its name may be mistyped."""
    if folder.parent == _OUT:  # all results are in it unless another folder is named
        _OUT.mkdir(exist_ok=True)
    if not folder.is_dir():
        refuse_place(folder)
        folder.mkdir()
    refuse_place(folder / "result.json")


_workers = click.option(
    "--workers", type=click.IntRange(1), help="Number of processes.  [default: one per core]"
)


@main.command()
@_folder("out/demo")
@click.option("--reports", default=500_000, show_default=True, type=click.IntRange(1))
@click.option(
    "--clients",
    default=2_000,
    show_default=True,
    type=click.IntRange(0),
    help="How many of the reports come from real clients, each with a secret of its own.",
)
@click.option("--seed", type=int, help="Seed of the population; drawn and shown if not given.")
def demo(output: Path, reports: int, clients: int, seed: int | None) -> None:
    """Collect first names with real census frequencies, decode them, and score the result.

    Starts a real collector on the loopback interface, sends it all reports over HTTP, runs the real
    decoder against every first name and surname of the census, and compares the result with the
    truth.
    """
    if clients > reports:
        raise click.BadParameter(f"--clients {clients}: must be at most --reports {reports}")
    if seed is None:
        seed = secrets.randbelow(2**32)
    from hubbub.simulations.demo import run_demo

    with _system_errors():
        _make_folder(output)
        result = run_demo(output, reports, clients, seed, progress_bar)
        result.write(output)
    show(result.shown, stdout_console())


@main.command("try")
@_folder("out/try")
@click.option(
    "--reports",
    default=10_000,
    show_default=True,
    type=click.IntRange(100),
    help="Reports per round.",
)
@click.option(
    "--seconds",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="When to stop, unless Ctrl-C comes first.",
)
def try_(output: Path, reports: int, seconds: float) -> None:
    """Run a small service to watch: a collector, apps that report, and a report that sharpens.

    Starts a real collector with its admin page on the loopback interface. In rounds, simulated
    people report their first names to it, some of them through real clients. After each round, all
    reports are decoded into report.html, which reloads itself. Ctrl-C stops everything.
    """
    from hubbub.simulations.watched import run_quickstart

    with _system_errors():
        _make_folder(output)
        run_quickstart(output, reports, seconds, click.echo)
    click.echo(f"stopped; files in {output}/")


@main.command()
@_folder("out/demo-watch")
@click.option(
    "--reports",
    default=10_000,
    show_default=True,
    type=click.IntRange(1_000),
    help="Reports per day for each of two metrics.",
)
@click.option("--seed", default=1, show_default=True, type=int)
def watch(output: Path, reports: int, seed: int) -> None:
    """Show a month of standing reports.

    Stores 28 days of reports of an app whose release breaks one platform, as if they had arrived
    day by day, and runs `hubbub-decoder watch`, which makes each day's results and an index page.
    """
    from hubbub.simulations.watched import run_watched_release

    start = time.monotonic()
    with _system_errors():
        _make_folder(output)
        yesterday = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)
        run_watched_release(output, reports, yesterday, seed, progress_bar)
    took = time.monotonic() - start
    click.echo(f"{took:.0f} s; look at {output}/results/index.html")


@main.command(
    cls=WithHeadings,
    headings={
        "Parameters": "response steps k h m f p q",
        "Who reports, and when": "mode period_days days change forged target",
        "How it is decoded": "candidates_extra missing alpha correction",
    },
)
@click.option(
    "--type", "metric_type", type=click.Choice(["string", "open-string", "enum"]),
    default="string", show_default=True,
    help="string: look for strings in a list; open-string: find them prefix by prefix; enum: each "
    "value is a category.",
)  # fmt: skip
@click.option(
    "--response", type=click.Choice(["unary", "subset"]), show_default="unary",
    help="With --type enum and --epsilon. unary: a noisy bit for each category; subset: a random "
    "set of categories.",
)  # fmt: skip
@click.option(
    "--population",
    help="uniform, zipf:EXPONENT, exponential:RATE, gauss, geometric:RATIO, census (first names "
    "of 1990), surnames (its surnames) or domains (Zipf).  [default: zipf:1.0; census for open "
    "strings]",
)
@click.option(
    "--values",
    help="Instead of --population: a file with one client's value per line; - for standard input.",
)
@click.option(
    "--unique", type=whole_number(1),
    help="Number of distinct values in the population.  [default: 1,000; 10 for categories]",
)  # fmt: skip
@click.option(
    "--reports", type=whole_number(1), default="1e6", show_default=True,
    help="Number of honest clients; each reports once a day, or once per period.",
)  # fmt: skip
@click.option(
    "--steps", metavar="LENGTHS", help="Lengths of open strings' prefixes in bytes, such as 4,7.",
)  # fmt: skip
@click.option(
    "--k", type=int, show_default="480; 256 for open strings", help="Bits of the Bloom filter."
)
@click.option("--h", type=int, show_default="1", help="Hash functions.")
@click.option(
    "--m", type=int, show_default="96; 256 for open strings",
    help="Cohorts; for open strings, cohorts of each step.",
)  # fmt: skip
@click.option(
    "--epsilon", type=float,
    help="Instead of --f, --p and --q: epsilon of one report per client for life, or with --mode "
    "once, per period; f = 0, p = 1/(e^epsilon + 1), q = 1/2.",
)  # fmt: skip
@click.option("--f", type=float, show_default="0.2", help="Permanent noise.")
@click.option("--p", type=float, show_default="0.0677", help="Chance of a 1 for a permanent 0.")
@click.option("--q", type=float, show_default="0.5515", help="Chance of a 1 for a permanent 1.")
@click.option(
    "--candidates-extra",
    type=whole_number(0),
    show_default="0",
    help="Candidates that no client has.",
)
@click.option(
    "--missing", type=click.FloatRange(0, 1), show_default="0.1; 1 for open strings",
    help="Share of the values that aren't among the candidates.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(["longitudinal", "once"]), default="longitudinal",
    show_default=True,
    help="longitudinal: a client reports every day, from one permanent response; once: it reports "
    "once per period, on a random day and with new randomness.",
)  # fmt: skip
@click.option(
    "--period-days", type=click.IntRange(1), show_default="30",
    help="With --mode once: days per period.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1), show_default="1; with --mode once, one period",
    help="Days on which clients report; with --mode once, whole periods.",
)  # fmt: skip
@click.option(
    "--change", type=click.FloatRange(0, 1), default=0.0, show_default=True,
    help="Chance that a client's value is drawn again from one day to the next.",
)  # fmt: skip
@click.option(
    "--forged", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True,
    help="Add forged reports, as a share of all, which make --target look as common as they can.",
)  # fmt: skip
@click.option("--target", help="With --forged.  [default: the rarest candidate]")
@click.option(
    "--correction", type=click.Choice(["bh", "bonferroni"]), default="bh", show_default=True,
    help="What alpha bounds: the share of false names, or the chance of any.",
)  # fmt: skip
@click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Error rate of detections."
)
@click.option("--seed", type=click.IntRange(0), help="Drawn and shown if not given.")
@_workers
@_folder("out/run")
def run(output: Path, workers: int | None, **options: Any) -> None:
    """Simulate one population's reports, decode them, and score the result.

    Writes result.json, report.html and a chart as PNG. The same seed gives the same
    result.json, whatever the number of workers.
    """
    started = time.monotonic()
    if options["seed"] is None:
        options["seed"] = secrets.randbelow(2**32)
    try:
        experiment = _experiment(options)
    except (PopulationError, ParameterError, MetricError, PlanError) as error:
        raise click.UsageError(str(error)) from error
    # The order of the command line must not show in the files.
    shown = {name: value for name, value in sorted(options.items()) if value is not None}
    with _system_errors():
        _make_folder(output)
        with progress_bar("clients report") as bar:
            outcome = run_experiment(experiment, workers or cores(), bar)
        result = experiment_result(experiment, outcome, shown)
        result.write(output)
    console = stdout_console()
    show(result.shown, console)
    console.print(f"{time.monotonic() - started:.1f} s; files in {output}/")


def _experiment(options: dict[str, Any]) -> Experiment:
    """Return the experiment that options describe; those that weren't given are filled in."""
    if not 0 < options["alpha"] < 1:
        raise click.UsageError(f"--alpha {options['alpha']}: must be between 0 and 1")
    for name in ("missing", "change", "forged"):
        if options[name] is not None and math.isnan(options[name]):  # a range lets it pass
            raise click.UsageError(f"--{name} nan: must be between 0 and 1")
    _fill_in(options)
    population = _population(options)
    metric_type, response = _metric_type(options, population), UNARY
    noise = {name: options[name] for name in ("f", "p", "q")}
    if options["response"] == "subset":
        if options["epsilon"] is None:
            raise click.UsageError("--response subset: needs --epsilon, of which its size follows")
        response = subset_within(len(population.values), options["epsilon"])
        params = subset_params(response)
    else:
        size = {name: options[name] for name in ("k", "h", "m")}
        params = RapporParams(**metric_type.filter_size(size), **noise)
    scenario = make_scenario(population, options["missing"] or 0.0, _absent(options, population))
    if not scenario.candidates and not isinstance(metric_type, OpenStringType):
        raise click.UsageError("no candidates: --missing 1 needs --candidates-extra")
    target = options["target"] or ""
    if options["forged"] and not target:
        if not scenario.candidates:
            raise click.UsageError("--forged: there are no candidates; add --target")
        target = scenario.rarest()
    elif target and isinstance(metric_type, StringType) and target not in scenario.candidates:
        raise click.UsageError(f"--target: {target!r} isn't among the candidates")
    plan = ReportingPlan(
        population,
        params,
        clients=options["reports"],
        days=options["days"],
        change=options["change"],
        metric_type=metric_type,
        response=response,
        period_days=options["period_days"] or 0,
    )
    return Experiment(
        scenario,
        plan,
        options["forged"],
        target,
        options["alpha"],
        Correction(options["correction"]),
        options["seed"],
    )


def _fill_in(options: dict[str, Any]) -> None:
    """Set what wasn't given, and refuse what can't go together."""
    kind, once = options["metric_type"], options["mode"] == "once"
    for name in dict.fromkeys(name for each in DEFAULTS.values() for name in each):
        if options[name] is not None and name not in DEFAULTS[kind]:
            raise click.UsageError(f"--{name.replace('_', '-')}: can't go with --type {kind}")
    if options["forged"] and kind == "enum":
        raise click.UsageError("--forged: can't go with --type enum")
    if options["target"] and not options["forged"]:
        raise click.UsageError("--target: needs --forged")
    if options["period_days"] and not once:
        raise click.UsageError("--period-days: only --mode once has periods")
    defaults = dict(DEFAULTS[kind])
    if options["values"] is not None:
        del defaults["population"], defaults["unique"]
    elif (options["population"] or defaults["population"]) in LISTS:
        del defaults["unique"]
    if once:
        defaults["period_days"] = _PERIOD_DAYS
    defaults["days"] = (options["period_days"] or _PERIOD_DAYS) if once else 1
    given = {name: each for name, each in options.items() if each is not None}
    options |= defaults | _noise(options) | given
    days, period_days = options["days"], options["period_days"]
    if options["change"] and days == 1:
        raise click.UsageError("--change: needs --days of at least 2")
    if once and days % period_days:
        raise click.UsageError(f"--days {days}: must be whole periods of {period_days} days")
    if once and options["f"]:
        raise click.UsageError(
            "--mode once: each answer is reported once, with one response; give --epsilon or --f 0"
        )
    if not once and options["epsilon"] is not None and days > 1:
        raise click.UsageError(
            "--epsilon: is of one report per client for life; with --days give --f, --p and --q"
        )


def _noise(options: dict[str, Any]) -> dict[str, float]:
    """Return f, p and q unless they are given."""
    epsilon = options["epsilon"]
    if epsilon is None:
        return NOISE
    if any(options[name] is not None for name in NOISE):
        raise click.UsageError("--epsilon: can't go with --f, --p or --q, which it stands for")
    if not 0 < epsilon < math.inf:
        raise click.UsageError(f"--epsilon {epsilon}: must be a number above 0")
    return {"f": 0.0, "p": 1 / (math.exp(epsilon) + 1), "q": 0.5}


def _population(options: dict[str, Any]) -> Population:
    """Return the population that the options name."""
    population, values, unique = (options[name] for name in ("population", "values", "unique"))
    if values is not None:
        if population is not None or unique is not None:
            raise PopulationError("--values: can't go with --population or --unique")
        return population_of_file(values)
    if population in LISTS:
        if unique is not None:
            raise PopulationError(f"--unique: can't go with --population {population}")
        return LISTS[population]()
    prefix = "category " if options["metric_type"] == "enum" else "string "
    return made_up(family_shares(population, unique), prefix)


def _metric_type(options: dict[str, Any], population: Population) -> MetricType:
    if options["metric_type"] == "enum":
        return EnumType.from_table("options", {"categories": list(population.values)})
    if options["metric_type"] == "string":
        return StringType()
    try:
        steps = [int(length) for length in options["steps"].split(",")]
    except ValueError:
        raise click.UsageError(
            f"--steps {options['steps']!r}: must be lengths in bytes, such as 4,7"
        ) from None
    return OpenStringType.from_table(
        "options", {"steps": steps, **{name: options[name] for name in ("h", "m")}}
    )


def _absent(options: dict[str, Any], population: Population) -> tuple[str, ...]:
    """Return the candidates that no client has: of the census its other names, if they suffice."""
    held, census = set(population.values), options["population"] in {"census", "surnames"}
    absent = [name for name in census_names() if name not in held] if census else []
    extra = options["candidates_extra"] or 0
    absent += [f"absent {i}" for i in range(1, extra + 1)]
    return tuple(absent[:extra])
