"""The options of `hubbub-simulate blend`: what they mean together, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import click

from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.params import RapporParams
from hubbub.simulations.experiments.blend import BlendExperiment
from hubbub.simulations.populations import Population

_FEWEST = 20.0
"""Standard deviations of the noisy number of users that half of the opted-in must be."""


def blend_experiment(options: Mapping[str, Any], population: Population) -> BlendExperiment:
    """Make the experiment that the options describe.

    Raises
    ------
    ParameterError
        If an option's value makes no sense.
    UsageError
        If options make no sense together.
    """
    for name in ("epsilon", "epsilon_report"):
        if not 0 < options[name] < math.inf:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} {options[name]:g}: must be above 0")
    if not 0 < options["delta"] < 1:
        raise click.UsageError(f"--delta {options['delta']:g}: must be between 0 and 1")
    if not 0 <= options["differ"] < 1:
        raise click.UsageError(f"--differ {options['differ']:g}: must be at least 0 and below 1")
    for share in options["opted_in"]:
        if not 0 < share < 1:
            raise click.UsageError(f"--opted-in {share:g}: must be between 0 and 1")
    noise = 1 / (math.exp(options["epsilon_report"]) + 1)
    experiment = BlendExperiment(
        population,
        RapporParams(options["k"], options["h"], options["m"], 0.0, noise, 0.5),
        people=options["reports"],
        opted_in=tuple(sorted(set(options["opted_in"]))),
        absent=tuple(f"absent {i}" for i in range(1, options["candidates_extra"] + 1)),
        epsilon=options["epsilon"],
        delta=options["delta"],
        difference=options["differ"],
        reuse_counts=options["reuse_counts"],
        alpha=0.05,
        correction=Correction(options["correction"]),
        runs=options["runs"],
        seed=options["seed"],
    )
    ratio = experiment.ratios[-1]
    needed = math.ceil(2 * _FEWEST * math.sqrt(2 * ratio) / (1 - ratio))
    least = round(experiment.people * experiment.opted_in[0])
    if least < needed:
        raise click.UsageError(
            f"--opted-in {experiment.opted_in[0]:g}: are {least:,} people; at --epsilon "
            f"{experiment.epsilon:g} at least {needed:,} are needed to tell how many were counted"
        )
    return experiment
