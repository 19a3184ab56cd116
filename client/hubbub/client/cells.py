"""Exact reports of a set of cells, or of one cell: subset selection and windows.

One coin decides whether the report tells of the value, and unbiased integers choose among what is
left. Invariant: a probability is exactly that of the double, and choices are exactly uniform.
"""

from __future__ import annotations

from hubbub.client.randomness import ByteStream, bernoulli_sampler, uniform_below
from hubbub.protocol.responses import Response, Subset, Window

_LANES = 8


def draw_cells(response: Response, own: int, stream: ByteStream) -> int:
    """Return a report of a category or position as an integer whose bits are the cells.

    Parameters
    ----------
    response : Subset or Window
    own : int
        The category, 0 to d - 1, or the position, 0 to d - w.
    stream : ByteStream
    """
    if isinstance(response, Subset):
        return _subset(response, own, stream)
    if isinstance(response, Window):
        return _in_window(response, own, stream)
    raise TypeError(f"{response!r}: must be a response that draws whole reports")


def _subset(response: Subset, own: int, stream: ByteStream) -> int:
    """Draw a set of w categories, which holds `own` with probability q (Ye, Barg 2018)."""
    others = [cell for cell in range(response.cells) if cell != own]
    holds_own = _happens(response.chance, stream)
    drawn = 1 << own if holds_own else 0
    for i in range(response.width - holds_own):  # the beginning of a Fisher-Yates shuffle
        j = i + uniform_below(len(others) - i, stream)
        others[i], others[j] = others[j], others[i]
        drawn |= 1 << others[i]
    return drawn


def _in_window(response: Window, own: int, stream: ByteStream) -> int:
    """Draw a cell, in the window of a position with probability q (Wang et al. 2019, 3.2)."""
    if _happens(response.chance, stream):
        return 1 << own + uniform_below(response.width, stream)
    cell = uniform_below(response.cells - response.width, stream)
    return 1 << (cell if cell < own else cell + response.width)


def _happens(chance: float, stream: ByteStream) -> bool:
    """Toss one exact coin: a lane of a vector, whose other lanes are thrown away."""
    return bool(bernoulli_sampler(_LANES, chance, chance).draw_by_rounds(0, stream) & 1)
