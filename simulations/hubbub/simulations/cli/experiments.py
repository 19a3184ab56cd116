"""The options of `hubbub-simulate`'s experiments: what they mean together, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from hubbub.inference.errors import PlanError
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.planning.noise import subset_params, subset_within
from hubbub.protocol.errors import MetricError
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response
from hubbub.simulations.experiments.categories import CategoryExperiment
from hubbub.simulations.experiments.joint import PARTNERS, JointExperiment
from hubbub.simulations.populations import HASHED, LISTS, Population, joint_population, parse_sizes

_NOT_OF_TABLES = (
    "metric_type", "response", "values", "unique", "steps", "candidates_extra", "missing", "mode",
    "period_days", "days", "change", "cohorts", "attack", "method", "through",
)  # fmt: skip
"""Options that mean nothing for tables."""


def joint_experiment(given: Callable[[str], bool], options: dict[str, Any]) -> JointExperiment:
    """Make the experiment that the options describe, and fill in those that weren't given.

    `given`: says whether an option was given, by its name. Raises `ParameterError, PopulationError`
    if an option's value makes no sense. Raises `UsageError` if options make no sense together.
    """
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
    given: Callable[[str], bool], options: dict[str, Any], population: Population
) -> CategoryExperiment:
    """Make the experiment that the options describe.

    `given`: says whether an option was given, by its name. `population`: whose values are the
    categories. Raises `ParameterError` if an option's value makes no sense. Raises `UsageError` if
    options make no sense together.
    """
    for name in filter(given, _NOT_OF_CATEGORIES):
        raise click.UsageError(f"--{name.replace('_', '-')}: can't go with --type enum")
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
