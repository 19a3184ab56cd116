"""Scenarios that the decoder is measured on: strings that are held, and those that are looked for.

Made-up strings are new in every scenario. An error that one set of strings causes by the way it
happens to hash would otherwise stand in every run, and look like a property of the decoder.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.simulations.populations import Population, census_first_names, census_names
from hubbub.simulations.scenarios import Scenario, make_scenario


def made_up(shares: FloatArray, seed: int, unlisted_every: int = 0, absent: int = 0) -> Scenario:
    """Return a scenario of strings that no other seed has.

    Parameters
    ----------
    shares : float64 array, shape (v,)
        The strings' shares of the population.
    seed : int
    unlisted_every : int
        One string of so many is not a candidate, the first among them; 0 lists all, 1 none.
    absent : int
        Candidates that nobody holds.
    """
    held = tuple(f"world {seed} string {i}" for i in range(len(shares)))
    order = np.arange(len(shares))
    listed = order[order % unlisted_every > 0] if unlisted_every else order
    nobody = tuple(f"world {seed} absent {i}" for i in range(absent))
    candidates = (*(held[i] for i in listed.tolist()), *nobody)
    return Scenario(Population(held, shares), candidates, listed)


@cache
def census(_seed: int) -> Scenario:
    """Return the demonstration's scenario: first names, among all names of the census."""
    return make_scenario(census_first_names(), missing=0, absent=census_names())
