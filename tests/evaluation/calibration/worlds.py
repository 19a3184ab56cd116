"""Worlds whose truth is known: a population, and the candidates that the decoder will look for.

Made-up strings are new in every world. An error that one set of strings causes by the way it
happens to hash would otherwise stand in every run, and look like a property of the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.simulations.populations import Population, census_first_names, census_names


@dataclass(frozen=True, slots=True)
class World:
    """Attributes: the population, and the candidate strings, distinct."""

    population: Population
    candidates: tuple[str, ...]


def zipf(n: int, exponent: float = 1.0) -> FloatArray:
    """Return shares in proportion to 1 / rank^exponent."""
    return _normalised(np.arange(1, n + 1, dtype=np.float64) ** -exponent)


def exponential(n: int, ratio: float) -> FloatArray:
    """Return shares of which each is `ratio` times the one before."""
    return _normalised(ratio ** np.arange(n, dtype=np.float64))


def uniform(n: int) -> FloatArray:
    """Return n equal shares."""
    return np.full(n, 1.0 / n)


def made_up(shares: FloatArray, seed: int, unlisted_every: int = 0, absent: int = 0) -> World:
    """Return a world of strings that no other seed has.

    Parameters
    ----------
    shares : float64 array, shape (v,)
        The strings' shares of the population.
    seed : int
    unlisted_every : int
        Every so-manyth string, beginning with the first, is not a candidate; 0 lists all of them,
        1 none.
    absent : int
        Candidates that nobody holds.
    """
    held = tuple(f"world {seed} string {i}" for i in range(len(shares)))
    listed = [s for i, s in enumerate(held) if not unlisted_every or i % unlisted_every]
    nobody = [f"world {seed} absent {i}" for i in range(absent)]
    return World(Population(held, shares), (*listed, *nobody))


@cache
def _census() -> World:
    return World(census_first_names(), census_names())


def census(seed: int) -> World:  # noqa: ARG001
    """Return the demonstration's world: first names, among all names of the census."""
    return _census()


def _normalised(weights: FloatArray) -> FloatArray:
    return np.asarray(weights / weights.sum())
