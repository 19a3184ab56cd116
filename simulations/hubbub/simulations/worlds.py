"""Worlds whose truth is known: a population, and the candidates that the decoder will look for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.simulations.populations import Population

_SLACK = 1e-9
"""So that a share such as 0.1, which isn't a binary fraction, leaves out every tenth string."""


@dataclass(frozen=True, slots=True)
class World:
    """A population and the strings that are looked for.

    Attributes
    ----------
    population : Population
    candidates : tuple of str, length n
        Distinct: those of the population's values that are listed, in their order, then others.
    listed : int64 array
        Indices of the listed values.
    """

    population: Population
    candidates: tuple[str, ...]
    listed: IntArray

    def candidates_share(self, holders: IntArray) -> FloatArray:
        """Return each candidate's share of the reports, shape (n,).

        Parameters
        ----------
        holders : int64 array, shape (v,)
            Reports of each value.
        """
        shares = np.zeros(len(self.candidates))
        shares[: len(self.listed)] = holders[self.listed] / max(int(holders.sum()), 1)
        return shares


def make_world(population: Population, missing: float, absent: tuple[str, ...]) -> World:
    """List a population's values, but for some, and add candidates that nobody holds.

    Parameters
    ----------
    population : Population
    missing : float
        Share of its values that are not listed, spread evenly over their order; of 0.1 the 9th,
        19th, 29th ..., as in google/rappor's regression tests; of 1 all.
    absent : tuple of str
        Further candidates; those that are values of the population are left out.
    """
    listed = np.flatnonzero(~_left_out(len(population.values), missing))
    held = set(population.values)
    strings = [population.values[i] for i in listed.tolist()]
    return World(population, (*strings, *(s for s in absent if s not in held)), listed)


def _left_out(n: int, missing: float) -> BoolArray:
    quotas = np.floor(np.arange(1, n + 2) * missing + _SLACK)
    return np.asarray(np.diff(quotas) > 0)
