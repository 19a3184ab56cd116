"""Counts of whole populations that answer with cells, drawn by their exact distribution.

A subset's bits depend on each other, so its counts aren't binomial numbers side by side, but they
need no single report either: cell by cell, it is drawn how many of the clients that still have so
many cells to choose choose this one. Clients report once.
"""

from __future__ import annotations

import numpy as np

from hubbub.inference.arrays import IntArray
from hubbub.inference.numbers.weights import cell_chances
from hubbub.protocol.responses import Response, Subset, Window


def draw_cell_counts(response: Response, holders: IntArray, rng: np.random.Generator) -> IntArray:
    """Return how many reports have each cell set.

    Parameters
    ----------
    response : Subset or Window
        Which draws a whole report at once.
    holders : int64 array
        Clients of each category, shape (d,), or at each position, shape (d - w + 1,).
    rng : numpy.random.Generator
        The coins.

    Returns
    -------
    int64 array, shape (d,)

    Raises
    ------
    TypeError
        If the response is another one.
    """
    if isinstance(response, Subset):
        return _of_sets(response, holders, rng)
    if isinstance(response, Window):
        chances = cell_chances(response.cells, response.width, response.chance)
        return np.asarray(rng.multinomial(holders, chances).sum(axis=0))
    raise TypeError(f"{response!r}: must be a response that draws whole reports")


def _of_sets(response: Subset, holders: IntArray, rng: np.random.Generator) -> IntArray:
    """Return the counts of sets.

    With i other cells left, of which a client is to choose j, the next is among them with chance
    j / i: a set that is chosen so is uniform.
    """
    d, w = response.cells, response.width
    counts = rng.binomial(holders, response.chance)
    # Clients by their own category, and how many others they have yet to choose.
    waiting = np.zeros((d, w + 1), dtype=np.int64)
    waiting[:, w - 1], waiting[:, w] = counts, holders - counts
    own, choosing = np.arange(d)[:, None], np.arange(w + 1)
    for cell in range(d):
        left = d - cell - (own >= cell)
        chance = np.where(own == cell, 0.0, np.minimum(choosing / np.maximum(left, 1), 1.0))
        chosen = rng.binomial(waiting, chance)
        counts[cell] += chosen.sum()
        waiting -= chosen
        waiting[:, :-1] += chosen[:, 1:]
    return counts
