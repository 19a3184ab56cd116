"""What counts of an event under two values prove about its log likelihood ratio."""

from __future__ import annotations

import math

from significance import frequency_bounds


def loss_interval(ones: int, others: int, n: int, alarm: float) -> tuple[float, float]:
    """Return bounds of ln(P(event | one) / P(event | other)) from counts of the event, n of each.

    Exact; either bound fails with probability at most 2 `alarm`.
    """
    low_one, high_one = frequency_bounds(ones, n, alarm)
    low_other, high_other = frequency_bounds(others, n, alarm)
    high = math.log(high_one / low_other) if low_other else math.inf
    return (math.log(low_one / high_other) if low_one else -math.inf), high


def tells_most(pattern: int, one: int, other: int) -> bool:
    """Whether reported bits speak most for one value's filter, and against the other's."""
    return pattern & one == one and not pattern & other
