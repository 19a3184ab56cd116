"""What an attack measured, beside the bound that the documentation claims for it.

Each module of this package is one attack: a function `attack(*, quick: bool)` that yields
outcomes. A test runs it with `quick=True` and asserts that each outcome holds; `make attacks` runs
it in full.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure that an attacker reached, and the most that is claimed to be reachable."""

    what: str  # what was attacked and measured, with its unit
    measured: float
    bound: float  # the claim holds if `measured` is at most this

    @property
    def holds(self) -> bool:
        return self.measured <= self.bound
