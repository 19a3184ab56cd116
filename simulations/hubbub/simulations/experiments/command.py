"""The command `hubbub-simulate run`: options into an experiment, and its outcome into files."""

from __future__ import annotations

import math
import secrets
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.cli.errors import cli_errors
from hubbub.decoder.cli.progress import progress_bar
from hubbub.decoder.formats.files import refuse_place
from hubbub.decoder.formats.terminal import stdout_console
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.parallel import cores
from hubbub.protocol.errors import ParameterError
from hubbub.protocol.params import RapporParams
from hubbub.simulations.experiments.collecting import UnlistableError, run_through_collector
from hubbub.simulations.experiments.experiment import Experiment, run_in_memory
from hubbub.simulations.experiments.output import show_outcome, write_outcome
from hubbub.simulations.experiments.processes import ProcessError
from hubbub.simulations.experiments.uploading import UploadError
from hubbub.simulations.fleet.attacks import AttackError, parse_attack
from hubbub.simulations.populations import (
    Population,
    PopulationError,
    census_first_names,
    census_names,
    family_shares,
    made_up,
    population_of_file,
)
from hubbub.simulations.worlds import World, make_world

_POPULATION = "zipf:1.0"
_UNIQUE = 1_000
_MOST_REPORTS = 10**12


class Count(click.ParamType[int]):
    """A whole number, which may be written as 1e7.

    Parameters
    ----------
    smallest : int
    """

    name = "count"

    def __init__(self, smallest: int) -> None:
        self._smallest = smallest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self._smallest <= number <= _MOST_REPORTS or number != int(number):
            expected = f"a whole number of at least {self._smallest} and at most {_MOST_REPORTS:g}"
            self.fail(f"{value!r}: must be {expected}", param, ctx)
        return int(number)


def make_population(population: str | None, values: str | None, unique: int | None) -> Population:
    """Return the population that the options name.

    Raises
    ------
    PopulationError
        If options contradict each other, or the population can't be made.
    """
    if values is not None:
        if population is not None or unique is not None:
            raise PopulationError("--values: can't go with --population or --unique")
        return population_of_file(values)
    if population == "census":
        if unique is not None:
            raise PopulationError("--unique: can't go with --population census")
        return census_first_names()
    shares = family_shares(
        _POPULATION if population is None else population, _UNIQUE if unique is None else unique
    )
    return made_up(shares, "string ")


def list_candidates(population: Population, missing: float, extra: int, census: bool) -> World:
    """Return the world of a population, so many extra candidates and a missing share.

    The census's extra candidates are its other names, as long as there are enough.
    """
    held = set(population.values)
    names = [name for name in census_names() if name not in held] if census else []
    made = [f"absent {i}" for i in range(1, extra + 1)]
    return make_world(population, missing, tuple([*names, *made][:extra]))


def cohort_shares(cohorts: str, m: int) -> FloatArray | None:
    """Return the chance of each cohort, shape (m,): None for `even`."""
    if cohorts == "even":
        return None
    weights = 1.0 / np.arange(1, m + 1)
    if cohorts == "half-empty":
        weights = np.where(np.arange(m) < (m + 1) // 2, 1.0, 0.0)
    return np.asarray(weights / weights.sum())


@click.command()
@click.option(
    "--population",
    help="uniform, zipf:EXPONENT, exponential:RATE, gauss, geometric:RATIO, or census (first "
    "names of 1990); zipf:1.0 if not given.",
)
@click.option(
    "--values", help="Instead: a file of one client's value a line; - for standard input."
)
@click.option(
    "--unique", type=Count(1), help="Values that the population holds; 1,000 if not given."
)
@click.option(
    "--reports", type=Count(1), default="1e6", show_default=True,
    help="Honest clients, each of which reports once a day.",
)  # fmt: skip
@click.option("--k", default=128, show_default=True, help="Bits of the Bloom filter.")
@click.option("--h", default=2, show_default=True, help="Hash functions.")
@click.option("--m", default=64, show_default=True, help="Cohorts.")
@click.option("--f", default=0.5, show_default=True, help="Permanent noise.")
@click.option("--p", default=0.25, show_default=True, help="Chance of a 1 for a permanent 0.")
@click.option("--q", default=0.75, show_default=True, help="Chance of a 1 for a permanent 1.")
@click.option(
    "--candidates-extra", type=Count(0), default="0", show_default=True,
    help="Candidates that nobody holds.",
)  # fmt: skip
@click.option(
    "--missing", type=click.FloatRange(0, 1), default=0.1, show_default=True,
    help="Share of the values that aren't among the candidates.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(1), default=1, show_default=True,
    help="Reports of each client, one a day.",
)  # fmt: skip
@click.option(
    "--change", type=click.FloatRange(0, 1), default=0.0, show_default=True,
    help="Chance that a client's value is drawn anew from one day to the next.",
)  # fmt: skip
@click.option(
    "--cohorts", type=click.Choice(["even", "uneven", "half-empty"]), default="even",
    show_default=True, help="Sizes of the cohorts; uneven: in proportion to 1, 1/2, 1/3 ...",
)  # fmt: skip
@click.option(
    "--attack",
    help="Forged reports that are a share of all: maximal-gain:targets=5,share=0.01, "
    "random:share=0.01 or replay:share=0.01.",
)
@click.option(
    "--correction", type=click.Choice(["bh", "bonferroni"]), default="bh", show_default=True,
    help="What alpha bounds: the share of false names, or the chance of any.",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice(["regression", "likelihood", "auto"]), default="regression",
    show_default=True, help="The decoder's; others than regression need --through collector.",
)  # fmt: skip
@click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Level of the detections."
)
@click.option("--seed", type=click.IntRange(0), help="Drawn and shown if not given.")
@click.option(
    "--through", type=click.Choice(["memory", "collector"]), default="memory", show_default=True,
    help="Count in memory, or send all reports over HTTP to a real collector and decode its store.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1), help="Processes; as many as cores if not given.")
@click.option(
    "--output", default="out/run", show_default=True,
    type=click.Path(file_okay=False, path_type=Path), help="Folder for all that is made.",
)  # fmt: skip
def run(output: Path, workers: int | None, through: str, **options: Any) -> None:
    """Simulate one population's reports, decode them, and score the result.

    Writes result.json, report.html and pictures. The same seed gives the same result.json, whatever
    the number of workers.
    """
    started = time.monotonic()
    if options["seed"] is None:
        options["seed"] = secrets.randbelow(2**32)
    if options["method"] != "regression" and through == "memory":
        raise click.UsageError(
            f"--method {options['method']}: needs whole reports, so --through collector"
        )
    try:
        experiment = _experiment(options)
    except (PopulationError, ParameterError, AttackError) as error:
        raise click.UsageError(str(error)) from error
    with cli_errors():
        refuse_place(output / "result.json")
        output.mkdir(parents=True, exist_ok=True)
        try:
            with progress_bar("clients report") as bar:
                outcome = (
                    run_in_memory(experiment, workers or cores(), bar)
                    if through == "memory"
                    else run_through_collector(experiment, output, bar)
                )
        except (ProcessError, UploadError, UnlistableError) as error:
            raise click.ClickException(str(error)) from error
        write_outcome(output, experiment, outcome, _told({**options, "through": through}))
    console = stdout_console()
    show_outcome(console, experiment, outcome)
    console.print(f"{time.monotonic() - started:.1f} s; files in {output}/")


def _told(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what stood for those that weren't given, in the alphabet's order.

    The order of the command line must not show in the files.
    """
    if options["values"] is None:
        options = {**options, "population": options["population"] or _POPULATION}
        if options["population"] != "census":
            options["unique"] = options["unique"] or _UNIQUE
    return {name: options[name] for name in sorted(options) if options[name] is not None}


def _experiment(options: dict[str, Any]) -> Experiment:
    if not 0 < options["alpha"] < 1:
        raise click.UsageError(f"--alpha {options['alpha']}: must be between 0 and 1")
    for name in ("missing", "change"):
        if math.isnan(options[name]):  # which every comparison of the range lets pass
            raise click.UsageError(f"--{name} nan: must be between 0 and 1")
    if options["change"] and options["days"] == 1:
        raise click.UsageError("--change: needs --days of at least 2")
    params = RapporParams(*(options[name] for name in RapporParams._fields))
    population = make_population(options["population"], options["values"], options["unique"])
    world = list_candidates(
        population,
        options["missing"],
        options["candidates_extra"],
        options["population"] == "census",
    )
    if not world.candidates:
        raise click.UsageError("no candidates: --missing 1 needs --candidates-extra")
    attack = None if options["attack"] is None else parse_attack(options["attack"])
    if attack is not None and attack.targets > len(world.candidates):
        raise click.UsageError(
            f"--attack: {attack.targets:,} targets, but only {len(world.candidates):,} candidates"
        )
    return Experiment(
        world=world,
        params=params,
        clients=options["reports"],
        days=options["days"],
        change=options["change"],
        cohort_shares=cohort_shares(options["cohorts"], params.m),
        attack=attack,
        alpha=options["alpha"],
        correction=Correction(options["correction"]),
        method=options["method"],
        seed=options["seed"],
    )
