"""Time two callables in turns, so that a busy moment of the machine hits both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure beside its baseline, as they are printed, and what the one is to the other."""

    what: str
    measured: str
    baseline: str
    baseline_measured: str
    verdict: str


def compare(
    what: str,
    task: Callable[[], int],
    baseline: str,
    baseline_task: Callable[[], int],
    unit: str,
    turns: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Run both tasks in turns; each returns how many units of work it did.

    The verdict is the median of the turns' ratios: above 1, `what` is faster. With
    `time.process_time` as the clock, it is about this process's CPU alone.
    """
    rates, baseline_rates = [], []
    for _ in range(turns):
        baseline_rates.append(_rate(baseline_task, clock))
        rates.append(_rate(task, clock))
    ratio = statistics.median(a / b for a, b in zip(rates, baseline_rates, strict=True))
    medians = (f"{statistics.median(r):,.0f} {unit}/s" for r in (rates, baseline_rates))
    return Comparison(what, next(medians), baseline, next(medians), f"{ratio:.2f} times")


def compare_calls(
    what: str, call: Callable[[], object], baseline: str, baseline_call: Callable[[], object]
) -> Comparison:
    """Compare the medians of single calls' durations: above 1, `what` takes longer."""
    durations, baseline_durations = [], []
    for _ in range(20_000):
        baseline_durations.append(_duration(baseline_call))
        durations.append(_duration(call))
    medians = statistics.median(durations), statistics.median(baseline_durations)
    shown = (f"{median / 1000:.1f} µs" for median in medians)
    verdict = f"{medians[0] / medians[1]:.2f} times the median"
    return Comparison(what, next(shown), baseline, next(shown), verdict)


def compare_amounts(
    what: str,
    measure: Callable[[], float],
    baseline: str,
    baseline_measure: Callable[[], float],
    unit: str,
    turns: int = 20,
) -> Comparison:
    """Compare the medians of measurements taken in turns; the verdict is what `what` adds."""
    pairs = [(measure(), baseline_measure()) for _ in range(turns)]
    amount, baseline_amount = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Comparison(
        what,
        f"{amount:.1f} {unit}",
        baseline,
        f"{baseline_amount:.1f} {unit}",
        f"adds {amount - baseline_amount:.1f} {unit}",
    )


def _rate(task: Callable[[], int], clock: Callable[[], float]) -> float:
    started = clock()
    done = task()
    return done / (clock() - started)


def _duration(call: Callable[[], object]) -> int:
    started = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - started
