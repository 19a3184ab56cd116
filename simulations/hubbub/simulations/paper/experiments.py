"""The experiments of the RAPPOR paper that public facts allow to repeat, each with its figure.

Each takes a number of runs and returns what came out beside what the paper states (CCS 2014,
section 5 and appendix), and where the two differ, why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.inference.intervals import Z_CONFIDENCE
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.planning.noise import learnable_strings
from hubbub.simulations.figures import Line, Panel, plot_estimates, plot_panels
from hubbub.simulations.paper.worlds import (
    PRESENT,
    Run,
    normal_errors,
    paper_params,
    paper_world,
    run_exponential,
    run_world,
)

_MILLION = 1_000_000
_CANDIDATES = 500
_GROWTH = paper_params(m=32)
_CROWDS = (0.5, 0.75, 1.0)
"""How many strings share the population, as multiples of what the formula calls learnable."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One experiment's outcome.

    Attributes
    ----------
    title : str
    stated : str
        What the paper says.
    ours : str
        What was simulated here.
    difference : str
        Why the two differ, if they do.
    figure : Path
        A .png file.
    """

    title: str
    stated: str
    ours: str
    difference: str
    figure: Path


def experiments(
    folder: Path, runs: int, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[Finding, ...]:
    """Do all experiments and draw their figures into a folder that exists."""
    todo = (normal, exponential, parameters, growth)
    findings = []
    for done, experiment in enumerate(todo, start=1):
        findings.append(experiment(folder, runs))
        progress(done, len(todo))
    return tuple(findings)


def normal(folder: Path, runs: int) -> Finding:
    """Learn a normal distribution by basic one-time RAPPOR (section 5.1)."""
    panels, seen = [], []
    for reports in (_MILLION // 100, _MILLION // 10, _MILLION):
        rng = np.random.default_rng([1, reports])
        draws = [normal_errors(reports, rng) for _ in range(runs)]
        counts, estimates = draws[0]
        errors = np.concatenate([b - a for a, b in draws])
        deviation = float(np.sqrt(np.mean(errors**2)))
        seen.append(f"{deviation:,.0f} at N = {reports:,}")
        bins, none = np.arange(len(counts)).tolist(), [0.0] * len(counts)
        bars = [Z_CONFIDENCE * deviation / reports] * len(counts)
        lines = (
            Line("truth", bins, (counts / reports).tolist(), none),
            Line("estimate, 95%", bins, (estimates / reports).tolist(), bars),
        )
        panels.append(Panel(f"N = {reports:,}", "category", "share", lines))
    path = folder / "normal.png"
    plot_panels(path, panels)
    return Finding(
        "A normal distribution, basic one-time RAPPOR (p = 0.5, q = 0.75)",
        "From 10,000 reports little can be seen, from 100,000 the shape, from 1,000,000 a close "
        "fit; the standard deviation of a bin's count is 2 sqrt(N): 200, 632, 2,000.",
        f"Standard deviation of a bin's estimate: {'; '.join(seen)}.",
        "None.",
        path,
    )


def exponential(folder: Path, runs: int) -> Finding:
    """Find 100 strings of exponential frequencies among 200 candidates (section 5.2)."""
    told = []
    for m in (8, 16):
        for correction in Correction:
            done = [
                run_exponential(paper_params(m=m), _MILLION, run, correction) for run in range(runs)
            ]
            found = _shown([r.true_positives for r in done])
            false = _shown([r.false_positives for r in done])
            told.append(f"m = {m}, {correction.value}: {found} of 100 found, {false} false")
    path = folder / "exponential.png"
    _plot_run(path, run_exponential(paper_params(), _MILLION, 0, Correction.BH))
    return Finding(
        "An exponential population: 100 strings among 200 candidates, 1,000,000 reports, k = 128, "
        "h = 2, f = p = 0.5, q = 0.75",
        "47 strings were found, 2 of them falsely, with a Bonferroni correction at 0.05.",
        "; ".join(told) + ".",
        "A Bonferroni correction at 0.05 lets one run in twenty report anything false, so it can't "
        "have made 2 false names but by a chance of about 0.001. Benjamini-Hochberg, which allows "
        "5% of false names, gives such numbers.",
        path,
    )


def parameters(folder: Path, runs: int) -> Finding:
    """Vary k, h and m one at a time (figure on parameter selection)."""
    choices: dict[str, tuple[int, ...]] = {
        "k": (32, 64, 128, 256, 512),
        "h": (1, 2, 4, 8),
        "m": (4, 8, 16, 32, 64),
    }
    panels, best = [], []
    for name, values in choices.items():
        runs_of = [
            [run_exponential(paper_params(**{name: v}), _MILLION, run) for run in range(runs)]
            for v in values
        ]
        recall = [[r.true_positives / PRESENT for r in done] for done in runs_of]
        right = [[_precision(r) for r in done] for done in runs_of]
        lines = (_line("recall", values, recall), _line("precision", values, right))
        panels.append(Panel(f"varying {name}", name, "share of strings", lines))
        means = [float(np.mean(values_)) for values_ in recall]
        told = ", ".join(f"{v}: {mean:.2f}" for v, mean in zip(values, means, strict=True))
        best.append(f"recall over {name} = {told}")
    path = folder / "parameters.png"
    plot_panels(path, panels)
    return Finding(
        "Recall and precision over k, h and m, the others at k = 128, h = 2, m = 16",
        "Two hash functions are best for recall and precision together; the choices of k and m "
        "show no clear preference.",
        "; ".join(best) + ". Precision is at least "
        f"{min(min(line.y) for panel in panels for line in panel.lines[1:]):.2f} everywhere.",
        "f, p and q stay the same, as in the paper, so more hash functions spend more epsilon; "
        "strings that are told by more bits are then found more often, and a decoder with "
        "calibrated tests doesn't pay for it in precision.",
        path,
    )


def growth(folder: Path, runs: int) -> Finding:
    """Count how many strings N reports can teach (appendix)."""
    sizes = (10_000, 100_000, _MILLION, 10 * _MILLION)
    # Two set bits tell a string twice, which the formula for one bit leaves out.
    formula = [
        math.sqrt(_GROWTH.h) * learnable_strings(_GROWTH, reports, _CANDIDATES) for reports in sizes
    ]
    learned = [_most_learned(n, most, runs) for n, most in zip(sizes, formula, strict=True)]
    means: FloatArray = np.array([np.mean(values) for values in learned])
    slope = float(np.polyfit(np.log(sizes), np.log(np.maximum(means, 0.5)), 1)[0])
    path = folder / "growth.png"
    lines = (
        _line("found, at best", sizes, learned),
        Line("formula", sizes, formula, [0.0] * len(sizes)),
    )
    plot_panels(path, (Panel("Strings that N reports teach", "reports", "strings", lines, True),))
    told = "; ".join(
        f"{mean:.1f} at N = {n:,} (formula {f:.1f})"
        for mean, n, f in zip(means.tolist(), sizes, formula, strict=True)
    )
    return Finding(
        "How many strings can be learned from N reports, k = 128, h = 2, m = 32, f = p = 0.5, "
        "q = 0.75, equally common strings among 500 candidates",
        "The number grows like sqrt(N): a hundred times the reports teach ten times the strings.",
        f"{told}; it grows like N^{slope:.2f}.",
        "The formula takes a string as learned whose share is at the detection threshold, where "
        "half of them are; so crowds of fewer strings are tried, too, and the best one "
        "counts. 10,000 reports teach so few strings that whole numbers matter.",
        path,
    )


def _most_learned(reports: int, formula: float, runs: int) -> list[float]:
    """Return how many strings each run found, of the crowd of which most were found."""
    best: list[float] = []
    for crowd in _CROWDS:
        n = max(1, round(crowd * formula))
        worlds = (paper_world(np.full(n, 1 / n), run, _CANDIDATES - n) for run in range(runs))
        done = [run_world(w, _GROWTH, reports, run) for run, w in enumerate(worlds)]
        best = max(best, [float(run.true_positives) for run in done], key=sum)
    return best


def _plot_run(path: Path, run: Run) -> None:
    decoding = run.decoding
    plot_estimates(
        path,
        tuple(decoding.candidates),
        run.truth,
        decoding.share,
        Z_CONFIDENCE * decoding.std_error,
        decoding.detected,
        "1,000,000 reports, 200 candidates, 100 of them present",
    )


def _precision(run: Run) -> float:
    return run.true_positives / max(run.true_positives + run.false_positives, 1)


def _line(label: str, x: Sequence[int], runs_of: Sequence[Sequence[float]]) -> Line:
    means = [float(np.mean(values)) for values in runs_of]
    return Line(label, x, means, [_std_error(values) for values in runs_of])


def _std_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _shown(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ± {_std_error(values):.1f}"
