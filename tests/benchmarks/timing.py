"""Time two callables in turns, so that a busy moment of the machine hits both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times faster `what` is than `baseline`: the median of the turns' ratios.

    `rate` and `baseline_rate` are medians, in `unit` a second.
    """

    what: str
    baseline: str
    unit: str
    rate: float
    baseline_rate: float
    ratio: float


def compare(
    what: str,
    task: Callable[[], int],
    baseline: str,
    baseline_task: Callable[[], int],
    unit: str,
    turns: int = 7,
) -> Comparison:
    """Run both tasks in turns; each returns how many units of work it did."""
    rates, baseline_rates = [], []
    for _ in range(turns):
        baseline_rates.append(_rate(baseline_task))
        rates.append(_rate(task))
    ratios = [a / b for a, b in zip(rates, baseline_rates, strict=True)]
    medians = statistics.median(rates), statistics.median(baseline_rates)
    return Comparison(what, baseline, unit, *medians, statistics.median(ratios))


def _rate(task: Callable[[], int]) -> float:
    started = time.perf_counter()
    done = task()
    return done / (time.perf_counter() - started)
