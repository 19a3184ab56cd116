"""A published number beside ours, and how far the two may be apart.

Formulas must agree to the digits that are given, simulations to within their noise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Headline:
    """One published number beside ours.

    Attributes
    ----------
    number : int
        Of the source's line; several lines may share one.
    source, what : str
    stated, ours : float
    tolerance : float
        How far ours may be from the stated, as a share of it.
    way : str
        "formula" or "simulation".
    note : str
        Where they differ, why.
    """

    number: int
    source: str
    what: str
    stated: float
    ours: float
    tolerance: float
    way: str
    note: str = ""

    @property
    def within(self) -> bool:
        """Whether ours is as close as it must be."""
        return abs(self.ours - self.stated) <= self.tolerance * abs(self.stated)
