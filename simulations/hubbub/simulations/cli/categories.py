"""The options of `hubbub-simulate run --type enum`: what they mean, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hubbub.inference.errors import PlanError
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.planning.responses import subset_params, subset_within
from hubbub.protocol.errors import MetricError
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.responses import UNARY, Response
from hubbub.simulations.experiments.categories import CategoryExperiment
from hubbub.simulations.populations import Population

_REFUSED = (
    "k", "h", "m", "candidates_extra", "missing", "cohorts", "attack", "method", "through",
)  # fmt: skip
"""Options that mean nothing for categories."""


def category_experiment(
    given: Callable[[str], bool], options: dict[str, Any], population: Population
) -> CategoryExperiment:
    """Make the experiment that the options describe.

    Parameters
    ----------
    given : callable
        Says whether an option was given, by its name.
    options : dict
    population : Population
        Whose values are the categories.

    Raises
    ------
    ParameterError
        If an option's value makes no sense.
    UsageError
        If options make no sense together.
    """
    for name in filter(given, _REFUSED):
        raise click.UsageError(f"--{name.replace('_', '-')}: can't go with --type enum")
    categories = population.values
    try:
        size = EnumType.from_table("options", {"categories": list(categories)}).filter_size({})
        params, response = _response(options, size, len(categories))
    except (MetricError, PlanError) as error:
        raise click.UsageError(str(error)) from error
    options |= dict.fromkeys(_REFUSED) | params.noise
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


def _response(
    options: dict[str, Any], size: dict[str, int], categories: int
) -> tuple[RapporParams, Response]:
    """Return the metric's parameters and response."""
    if options["response"] != "subset":
        return RapporParams(**size, **{name: options[name] for name in ("f", "p", "q")}), UNARY
    if options["epsilon"] is None:
        raise click.UsageError("--response subset: needs --epsilon, of which its size follows")
    subset = subset_within(categories, options["epsilon"])
    return subset_params(subset), subset
