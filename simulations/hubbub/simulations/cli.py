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
import numpy as np

from hubbub.inference import Correction, PlanError, cores
from hubbub.planning import subset_params, subset_within
from hubbub.protocol import (
    UNARY,
    EnumType,
    MetricError,
    OpenStringType,
    ParameterError,
    RapporParams,
    Response,
)
from hubbub.reporting import (
    Count,
    WithHeadings,
    cli_errors,
    progress_bar,
    refuse_place,
    show,
    stdout_console,
)
from hubbub.simulations.experiments.experiment import Experiment, make_scenario, run_in_memory
from hubbub.simulations.experiments.result import SimulationResult, experiment_result
from hubbub.simulations.experiments.tables import (
    PARTNERS,
    CategoryExperiment,
    JointExperiment,
    category_result,
    joint_result,
    run_categories,
    run_joint,
)
from hubbub.simulations.populations import (
    HASHED,
    LISTS,
    Population,
    PopulationError,
    census_names,
    family_shares,
    joint_population,
    made_up,
    parse_sizes,
    population_of_file,
)
from hubbub.simulations.simulated_clients.clients import Attack, AttackError, parse_attack
from hubbub.simulations.simulated_clients.population_sampler import ReportingPlan, cohort_shares

_NOT_OF_TABLES = (
    "metric_type", "response", "values", "unique", "steps", "candidates_extra", "missing", "mode",
    "period_days", "days", "change", "cohorts", "attack", "method", "through",
)  # fmt: skip
"""Options that mean nothing for tables."""


def joint_experiment(given: Callable[[str], bool], options: dict[str, Any]) -> JointExperiment:
    """Make the experiment that the options describe, and fill in those that weren't `given`."""
    for name in filter(given, _NOT_OF_TABLES):
        option = "type" if name == "metric_type" else name.replace("_", "-")
        raise click.UsageError(f"--{option}: can't go with --joint")
    if not given("population"):
        options["population"] = "zipf:1.0"
    if options["population"] in LISTS:
        raise click.UsageError(
            f"--population {options['population']}: must be a family of shares with --joint, such "
            "as zipf:1.0"
        )
    sizes = parse_sizes(options["joint"])
    size = {name: options[name] for name in ("k", "h", "m") if given(name)}
    cells = math.prod(each.values for each in sizes)
    if any(each.strings for each in sizes) or size.get("k", cells) < cells:
        size = HASHED | size
    family, partners = options["population"], options["partners"]
    rng = np.random.default_rng([options["seed"], PARTNERS])
    try:
        population = joint_population(sizes, family, partners, rng, size)
        size = population.metric_type.filter_size(size)
    except MetricError as error:
        raise click.UsageError(str(error)) from error
    noise = {name: options[name] for name in ("f", "p", "q")}
    unused = dict.fromkeys(_NOT_OF_TABLES)
    options |= {**size, **unused, "metric_type": "joint"}
    params, correction = RapporParams(**size, **noise), Correction(options["correction"])
    return JointExperiment(
        population, params, options["reports"], options["alpha"], correction, options["seed"]
    )


_NOT_OF_CATEGORIES = (
    "k", "h", "m", "candidates_extra", "missing", "cohorts", "attack", "method", "through",
)  # fmt: skip
"""Options that mean nothing for categories."""


def category_experiment(
    given: Callable[[str], bool], options: dict[str, Any]
) -> CategoryExperiment:
    """Make the experiment that the options describe; categories are the population's values."""
    for name in filter(given, _NOT_OF_CATEGORIES):
        raise click.UsageError(f"--{name.replace('_', '-')}: can't go with --type enum")
    population = _population(options, "category ")
    categories = population.values
    try:
        size = EnumType.from_table("options", {"categories": list(categories)}).filter_size({})
        params, response = _params_and_response(options, size, len(categories))
    except (MetricError, PlanError) as error:
        raise click.UsageError(str(error)) from error
    options |= dict.fromkeys(_NOT_OF_CATEGORIES) | params.noise
    return CategoryExperiment(
        population,
        params,
        options["reports"],
        response,
        options["days"],
        options["period_days"] or 0,
        options["change"],
        options["alpha"],
        Correction(options["correction"]),
        options["seed"],
    )


def _params_and_response(
    options: dict[str, Any], size: dict[str, int], categories: int
) -> tuple[RapporParams, Response]:
    if options["response"] != "subset":
        return RapporParams(**size, **{name: options[name] for name in ("f", "p", "q")}), UNARY
    if options["epsilon"] is None:
        raise click.UsageError("--response subset: needs --epsilon, of which its size follows")
    subset = subset_within(categories, options["epsilon"])
    return subset_params(subset), subset


_POPULATION = "zipf:1.0"
_UNIQUE = 1_000  # strings, of which a million reports find some tens
_CATEGORIES = 10  # a short list, as settings have
_PERIOD_DAYS = 30
"""The README's example."""
_OPEN_POPULATION = "census"
_OPEN_DEFAULTS = {"steps": "4,7", "k": 256, "m": 256, "missing": 1.0}
"""The planner's choice for first names, a million reports and epsilon 4."""
_OUT = Path("out")
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Simulate whole populations whose true values are known."""


@contextmanager
def _system_errors() -> Iterator[None]:
    """Turn the decoder's errors, and those of the programs we run, into a line for the user."""
    from hubbub.simulations.experiments.collecting import ProcessError, UnlistableError, UploadError

    try:
        with cli_errors():
            yield
    except (ProcessError, UploadError, UnlistableError) as error:
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
    from hubbub.simulations.demo import demo_result, run_demo

    with _system_errors():
        _make_folder(output)
        outcome = run_demo(output, reports, clients, seed, progress_bar)
        result = demo_result(outcome)
        result.write(output)
    console = stdout_console()
    show(result.estimates.blocks(), console)
    console.print(
        f"\n{reports:,} reports ({clients:,} through real clients), seed {seed}, "
        f"{outcome.seconds:.0f} s; files in {output}/"
    )


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
        "Tables of several fields": "joint partners",
        "Parameters": "response steps k h m f p q",
        "Who reports, and when": "mode period_days days change cohorts attack",
        "How it is decoded": "candidates_extra missing method alpha correction",
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
    "--joint", metavar="SIZES",
    help="Instead of --type: a table of 2 or 3 fields that form one value, given as their numbers "
    "of values, such as 100x20, or 1000sx2 if the first is a field of strings.",
)  # fmt: skip
@click.option(
    "--partners", type=click.FloatRange(0, 1), default=0.0, show_default=True,
    help="With --joint: share of clients whose other fields hold the partner of their first "
    "field's value.",
)  # fmt: skip
@click.option(
    "--population",
    help="uniform, zipf:EXPONENT, exponential:RATE, gauss, geometric:RATIO, census (first names "
    "of 1990), surnames (its surnames) or domains (Zipf). With --joint, one of the families, for "
    "every field.  [default: zipf:1.0; census for open strings]",
)
@click.option(
    "--values",
    help="Instead of --population: a file with one client's value per line; - for standard input.",
)
@click.option(
    "--unique", type=Count(1),
    help="Number of distinct values in the population.  [default: 1,000; 10 for categories]",
)  # fmt: skip
@click.option(
    "--reports", type=Count(1), default="1e6", show_default=True,
    help="Number of honest clients; each reports once a day, or once per period.",
)  # fmt: skip
@click.option(
    "--steps", metavar="LENGTHS", help="Lengths of open strings' prefixes in bytes, such as 4,7.",
)  # fmt: skip
# From `hubbub-decoder plan strings` for a million reports, 900 candidates, epsilons 4.39 and 2.04.
@click.option(
    "--k",
    default=480,
    show_default="480; 256 for open strings; one per cell or 128 for tables",
    help="Bits of the Bloom filter.",
)
@click.option("--h", default=1, show_default=True, help="Hash functions.")
@click.option(
    "--m", default=96, show_default="96; 256 for open strings; 1 or 64 for tables",
    help="Cohorts; for open strings, cohorts of each step.",
)  # fmt: skip
@click.option(
    "--epsilon", type=float,
    help="Instead of --f, --p and --q: epsilon of one report per client for life, or with --mode "
    "once, per period; f = 0, p = 1/(e^epsilon + 1), q = 1/2.",
)  # fmt: skip
@click.option("--f", default=0.2, show_default=True, help="Permanent noise.")
@click.option("--p", default=0.0677, show_default=True, help="Chance of a 1 for a permanent 0.")
@click.option("--q", default=0.5515, show_default=True, help="Chance of a 1 for a permanent 1.")
@click.option(
    "--candidates-extra", type=Count(0), default="0", show_default=True,
    help="Candidates that no client has.",
)  # fmt: skip
@click.option(
    "--missing", type=click.FloatRange(0, 1), default=0.1,
    show_default="0.1; 1 for open strings",
    help="Share of the values that aren't among the candidates.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(["longitudinal", "once"]), show_default="longitudinal",
    help="longitudinal: a client reports every day, from one permanent response; once: it reports "
    "once per period, on a random day and with new randomness.",
)  # fmt: skip
@click.option(
    "--period-days", type=click.IntRange(1), show_default="30",
    help="With --mode once: days per period.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1), default=1, show_default="1; with --mode once, one period",
    help="Days on which clients report; with --mode once, whole periods.",
)  # fmt: skip
@click.option(
    "--change", type=click.FloatRange(0, 1), default=0.0, show_default=True,
    help="Chance that a client's value is drawn again from one day to the next.",
)  # fmt: skip
@click.option(
    "--cohorts", type=click.Choice(["even", "uneven", "half-empty"]), default="even",
    show_default=True, help="Sizes of the cohorts; uneven: in proportion to 1, 1/2, 1/3 ...",
)  # fmt: skip
@click.option(
    "--attack",
    help="Add forged reports, as a share of all: maximal-gain:targets=5,share=0.01, "
    "false-value:share=0.01, replay:share=0.01 or random:share=0.01; to name the target, end with "
    "string=TEXT.",
)
@click.option(
    "--correction", type=click.Choice(["bh", "bonferroni"]), default="bh", show_default=True,
    help="What alpha bounds: the share of false names, or the chance of any.",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice(["regression", "likelihood", "auto"]), default="regression",
    show_default=True, help="The decoder's method; all but regression need --through collector.",
)  # fmt: skip
@click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Error rate of detections."
)
@click.option("--seed", type=click.IntRange(0), help="Drawn and shown if not given.")
@click.option(
    "--through", type=click.Choice(["memory", "collector"]), default="memory", show_default=True,
    help="Count in memory, or send all reports over HTTP to a real collector and decode its store.",
)  # fmt: skip
@_workers
@_folder("out/run")
@click.pass_context
def run(
    context: click.Context, /, output: Path, workers: int | None, through: str, **options: Any
) -> None:
    """Simulate one population's reports, decode them, and score the result.

    Writes result.json, report.html and the charts as PNG. The same seed gives the same
    result.json, whatever the number of workers.
    """
    started = time.monotonic()
    if options["seed"] is None:
        options["seed"] = secrets.randbelow(2**32)

    def given(name: str) -> bool:
        return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT

    if options["joint"] is None:
        _fill_in(given, options)
        _fill_in_periods(given, options)
    _fill_in_noise(given, options)
    if options["method"] != "regression" and through == "memory":
        raise click.UsageError(
            f"--method {options['method']}: needs whole reports, so --through collector"
        )
    simulate = _simulation(given, options, through)
    # The order of the command line must not show in the files.
    used = sorted({**options, "through": through}.items())
    shown = {name: value for name, value in used if value is not None}
    with _system_errors():
        _make_folder(output)
        with progress_bar("clients report") as bar:
            result = simulate(output, workers or cores(), bar, shown)
        result.write(output)
    console = stdout_console()
    show(result.estimates.blocks(), console)
    console.print(f"{time.monotonic() - started:.1f} s; files in {output}/")


_Simulate = Callable[[Path, int, Callable[[int, int], None], dict[str, Any]], SimulationResult]


def _simulation(given: Callable[[str], bool], options: dict[str, Any], through: str) -> _Simulate:
    """Return a function that simulates the population: of a folder, workers, a bar, and options."""
    try:
        if options["joint"] is not None:
            table = joint_experiment(given, options)
            return lambda _folder, workers, bar, shown: joint_result(
                table, run_joint(table, workers, bar), shown
            )
        if options["metric_type"] == "enum":
            enum = category_experiment(given, options)
            return lambda _folder, workers, bar, shown: category_result(
                enum, run_categories(enum, workers, bar), shown
            )
        strings = _experiment(options)
    except (PopulationError, ParameterError, AttackError) as error:
        raise click.UsageError(str(error)) from error
    if through == "memory":
        return lambda _folder, workers, bar, shown: experiment_result(
            strings, run_in_memory(strings, workers, bar), shown
        )
    from hubbub.simulations.experiments.collecting import run_through_collector

    return lambda folder, _workers, bar, shown: experiment_result(
        strings, run_through_collector(strings, folder, bar), shown
    )


def _fill_in(given: Callable[[str], bool], options: dict[str, Any]) -> None:
    """Set what wasn't given, where that depends on other options."""
    if given("partners"):
        raise click.UsageError("--partners: only tables have partners; add --joint 100x20")
    is_open = options["metric_type"] == "open-string"
    if is_open:
        options |= {name: new for name, new in _OPEN_DEFAULTS.items() if not given(name)}
    elif given("steps"):
        raise click.UsageError("--steps: only open strings have steps; add --type open-string")
    is_enum = options["metric_type"] == "enum"
    if given("response") and not is_enum:
        raise click.UsageError("--response: only categories have it; add --type enum")
    if options["values"] is None:
        if not given("population"):
            options["population"] = _OPEN_POPULATION if is_open else _POPULATION
        if options["population"] not in LISTS and not given("unique"):
            options["unique"] = _CATEGORIES if is_enum else _UNIQUE


def _fill_in_periods(given: Callable[[str], bool], options: dict[str, Any]) -> None:
    """Set how long periods are, if there are any."""
    if options["mode"] != "once":
        if given("period_days"):
            raise click.UsageError("--period-days: only --mode once has periods")
        return
    if not given("period_days"):
        options["period_days"] = _PERIOD_DAYS
    period_days = options["period_days"]
    if not given("days"):
        options["days"] = period_days
    if options["days"] % period_days:
        raise click.UsageError(
            f"--days {options['days']}: must be whole periods of {period_days} days"
        )
    if options["cohorts"] != "even":
        raise click.UsageError("--cohorts: can't go with --mode once, whose cohorts are new ones")
    if not given("epsilon") and options["f"]:
        raise click.UsageError(
            "--mode once: each answer is reported once, with one response; give --epsilon or --f 0"
        )


def _fill_in_noise(given: Callable[[str], bool], options: dict[str, Any]) -> None:
    """Set f, p and q if they are given by an epsilon."""
    if not given("epsilon"):
        return
    epsilon = options["epsilon"]
    if any(map(given, ("f", "p", "q"))):
        raise click.UsageError("--epsilon: can't go with --f, --p or --q, which it stands for")
    if not 0 < epsilon < math.inf:
        raise click.UsageError(f"--epsilon {epsilon}: must be a number above 0")
    if options["days"] > 1 and options["mode"] != "once":
        raise click.UsageError(
            "--epsilon: is of one report per client for life; with --days give --f, --p and --q"
        )
    options |= {"f": 0.0, "p": 1 / (math.exp(epsilon) + 1), "q": 0.5}


def _open_type(options: dict[str, Any]) -> OpenStringType | None:
    """Return the type that the options describe, or None for strings."""
    if options["metric_type"] != "open-string":
        return None
    try:
        steps = [int(length) for length in options["steps"].split(",")]
    except ValueError:
        raise click.UsageError(
            f"--steps {options['steps']!r}: must be lengths in bytes, such as 4,7"
        ) from None
    try:
        return OpenStringType.from_table(
            "options", {"steps": steps, **{name: options[name] for name in ("h", "m")}}
        )
    except MetricError as error:
        raise click.UsageError(str(error)) from error


def _experiment(options: dict[str, Any]) -> Experiment:
    if not 0 < options["alpha"] < 1:
        raise click.UsageError(f"--alpha {options['alpha']}: must be between 0 and 1")
    for name in ("missing", "change"):
        if math.isnan(options[name]):  # which every comparison of the range lets pass
            raise click.UsageError(f"--{name} nan: must be between 0 and 1")
    if options["change"] and options["days"] == 1:
        raise click.UsageError("--change: needs --days of at least 2")
    open_type = _open_type(options)
    size = {name: options[name] for name in RapporParams._fields if name in options}
    if open_type is not None:
        size |= open_type.filter_size(size)
    params = RapporParams(**size)
    population = _population(options)
    # The census's extra candidates are its other names, as long as there are enough.
    held, census = set(population.values), options["population"] in {"census", "surnames"}
    absent = [name for name in census_names() if name not in held] if census else []
    extra = options["candidates_extra"]
    absent += [f"absent {i}" for i in range(1, extra + 1)]
    scenario = make_scenario(population, options["missing"], tuple(absent[:extra]))
    if not scenario.candidates and open_type is None:
        raise click.UsageError("no candidates: --missing 1 needs --candidates-extra")
    attack = None if options["attack"] is None else parse_attack(options["attack"])
    _check_targets(attack, scenario.candidates, is_open=open_type is not None)
    plan = ReportingPlan(
        population,
        params,
        clients=options["reports"],
        days=options["days"],
        change=options["change"],
        cohort_shares=cohort_shares(options["cohorts"], params.m),
        open_type=open_type,
        period_days=options["period_days"] or 0,
    )
    correction = Correction(options["correction"])
    return Experiment(
        scenario, plan, attack, options["alpha"], correction, options["method"], options["seed"]
    )


def _check_targets(attack: Attack | None, candidates: tuple[str, ...], *, is_open: bool) -> None:
    """Fail if an attack is for strings that aren't there."""
    if attack is None or (is_open and attack.string is not None):
        return
    if attack.string is not None and attack.string not in candidates:
        raise click.UsageError(f"--attack: {attack.string!r} isn't among the candidates")
    if attack.string is None and attack.needs_target and attack.targets > len(candidates):
        hint = "; string= plants one that isn't listed" if is_open else ""
        raise click.UsageError(
            f"--attack: {attack.targets:,} targets, but only {len(candidates):,} candidates{hint}"
        )


def _population(options: dict[str, Any], prefix: str = "string ") -> Population:
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
    return made_up(family_shares(population, unique), prefix)
