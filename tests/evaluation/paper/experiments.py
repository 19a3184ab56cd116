"""The experiments of the RAPPOR paper that aren't among its headline numbers.

Each takes a number of runs and returns what came out beside what the paper states (CCS 2014,
section 5 and appendix), and where the two differ, why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evaluation.laboratory import Figure
from evaluation.paper.headline import learnable_strings
from evaluation.paper.settings import (
    PRESENT,
    paper_params,
    paper_scenario,
    run_exponential,
    run_scenario,
)

_MILLION = 1_000_000  # reports, as in the paper
_CANDIDATES = 500  # strings and absent candidates together: more than the formula calls learnable
_GROWTH = paper_params(m=32)
_SIZES = (0.5, 0.75, 1.0)
"""How many strings share the population, as multiples of what the formula calls learnable."""


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """One experiment's outcome."""

    title: str
    stated: str  # what the paper says
    ours: str  # what was simulated here
    difference: str  # why the two differ, if they do


def experiments(
    runs: int, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[PaperFinding, ...]:
    todo = (parameters, growth)
    findings = []
    for done, experiment in enumerate(todo, start=1):
        findings.append(experiment(runs))
        progress(done, len(todo))
    return tuple(findings)


def parameters(runs: int) -> PaperFinding:
    """Vary k, h and m one at a time (figure on parameter selection)."""
    choices: dict[str, tuple[int, ...]] = {
        "k": (32, 64, 128, 256, 512),
        "h": (1, 2, 4, 8),
        "m": (4, 8, 16, 32, 64),
    }
    found, lowest = [], 1.0
    for name, values in choices.items():
        recalls = []
        for value in values:
            params = paper_params(**{name: value})
            done = [run_exponential(params, _MILLION, run) for run in range(runs)]
            recall = Figure.of([run.true_positives / PRESENT for run in done])
            recalls.append(f"{value}: {recall}")
            right = [
                run.true_positives / max(run.true_positives + run.false_positives, 1)
                for run in done
            ]
            lowest = min(lowest, float(np.mean(right)))
        found.append(f"recall over {name} = {', '.join(recalls)}")
    return PaperFinding(
        "Recall and precision over k, h and m, the others at k = 128, h = 2, m = 16",
        "Two hash functions are best for recall and precision together; the choices of k and m "
        "show no clear preference.",
        "; ".join(found) + f". Precision is at least {lowest:.2f} everywhere.",
        "f, p and q stay the same, as in the paper, so more hash functions spend more epsilon; "
        "strings that are told by more bits are then found more often, and a decoder with "
        "calibrated tests doesn't pay for it in precision.",
    )


def growth(runs: int) -> PaperFinding:
    """Count how many strings N reports can teach (appendix)."""
    sizes = (10_000, 100_000, _MILLION, 10 * _MILLION)
    # Two set bits tell a string twice, which the formula for one bit leaves out.
    formula = [
        math.sqrt(_GROWTH.h) * learnable_strings(_GROWTH, reports, _CANDIDATES) for reports in sizes
    ]
    learned = [_most_learned(n, most, runs) for n, most in zip(sizes, formula, strict=True)]
    slope = float(np.polyfit(np.log(sizes), np.log(np.maximum(learned, 0.5)), 1)[0])
    found = "; ".join(
        f"{mean:.1f} at N = {n:,} (formula {f:.1f})"
        for mean, n, f in zip(learned, sizes, formula, strict=True)
    )
    return PaperFinding(
        "How many strings can be learned from N reports, k = 128, h = 2, m = 32, f = p = 0.5, "
        "q = 0.75, equally common strings among 500 candidates",
        "The number grows like sqrt(N): a hundred times the reports teach ten times the strings.",
        f"{found}; it grows like N^{slope:.2f}.",
        "The formula takes a string as learned whose share is at the detection threshold, where "
        "half of them are; so crowds of fewer strings are tried, too, and the best one "
        "counts. 10,000 reports teach so few strings that whole numbers matter.",
    )


def _most_learned(reports: int, formula: float, runs: int) -> float:
    """Return how many strings a run found, of the population of which most were found."""
    best = 0.0
    for size in _SIZES:
        n = max(1, round(size * formula))
        scenarios = (paper_scenario(np.full(n, 1 / n), run, _CANDIDATES - n) for run in range(runs))
        done = [run_scenario(s, _GROWTH, reports, run) for run, s in enumerate(scenarios)]
        best = max(best, float(np.mean([run.true_positives for run in done])))
    return best
