"""The experiments of the RAPPOR paper that public facts allow to repeat, each with its charts.

Each takes a number of runs and returns what came out beside what the paper states (CCS 2014,
section 5 and appendix), and where the two differ, why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.paper.headline import learnable_strings
from evaluation.paper.settings import (
    PRESENT,
    normal_errors,
    paper_params,
    paper_scenario,
    run_exponential,
    run_scenario,
)
from hubbub.inference import Z_CONFIDENCE, Correction
from hubbub.reporting import Chart, Labels, Series, XYChart
from hubbub.simulations import estimates_chart

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
    figure: str  # name of a .png file
    charts: tuple[Chart, ...]  # from the top down


def experiments(
    runs: int, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> tuple[PaperFinding, ...]:
    todo = (normal, exponential, parameters, growth)
    findings = []
    for done, experiment in enumerate(todo, start=1):
        findings.append(experiment(runs))
        progress(done, len(todo))
    return tuple(findings)


def normal(runs: int) -> PaperFinding:
    """Learn a normal distribution by basic one-time RAPPOR (section 5.1)."""
    charts, seen = [], []
    for reports in (_MILLION // 100, _MILLION // 10, _MILLION):
        rng = np.random.default_rng([1, reports])
        draws = [normal_errors(reports, rng) for _ in range(runs)]
        counts, estimates = draws[0]
        errors = np.concatenate([b - a for a, b in draws])
        deviation = float(np.sqrt(np.mean(errors**2)))
        seen.append(f"{deviation:,.0f} at N = {reports:,}")
        bins = np.arange(len(counts), dtype=np.float64)
        share, bar = estimates / reports, Z_CONFIDENCE * deviation / reports
        words = Labels(
            f"normal-{reports}",
            f"N = {reports:,}",
            f"True and estimated shares of {len(bins)} categories; the 95% intervals are "
            f"{2 * bar:.3g} wide.",
            "category",
            "share",
        )
        series = (
            Series("truth", bins, counts / reports),
            Series("estimate, 95%", bins, share, low=share - bar, high=share + bar),
        )
        charts.append(XYChart(words, series))
    return PaperFinding(
        "A normal distribution, basic one-time RAPPOR (p = 0.5, q = 0.75)",
        "From 10,000 reports little can be seen, from 100,000 the shape, from 1,000,000 a close "
        "fit; the standard deviation of a bin's count is 2 sqrt(N): 200, 632, 2,000.",
        f"Standard deviation of a bin's estimate: {'; '.join(seen)}.",
        "None.",
        "normal.png",
        tuple(charts),
    )


def exponential(runs: int) -> PaperFinding:
    """Find 100 strings of exponential frequencies among 200 candidates (section 5.2)."""
    found_by = []
    for m in (8, 16):
        for correction in Correction:
            done = [
                run_exponential(paper_params(m=m), _MILLION, run, correction) for run in range(runs)
            ]
            found = _shown([r.true_positives for r in done])
            false = _shown([r.false_positives for r in done])
            found_by.append(f"m = {m}, {correction.value}: {found} of 100 found, {false} false")
    shown = run_exponential(paper_params(), _MILLION, 0, Correction.BH)
    chart = estimates_chart(
        tuple(shown.decoding.candidates),
        shown.truth,
        shown.decoding,
        "1,000,000 reports, 200 candidates, 100 of them present",
    )
    return PaperFinding(
        "An exponential population: 100 strings among 200 candidates, 1,000,000 reports, k = 128, "
        "h = 2, f = p = 0.5, q = 0.75",
        "47 strings were found, 2 of them falsely, with a Bonferroni correction at 0.05.",
        "; ".join(found_by) + ".",
        "A Bonferroni correction at 0.05 lets one run in twenty report anything false, so it can't "
        "have made 2 false names but by a chance of about 0.001. Benjamini-Hochberg, which allows "
        "5% of false names, gives such numbers.",
        "exponential.png",
        (chart,),
    )


def parameters(runs: int) -> PaperFinding:
    """Vary k, h and m one at a time (figure on parameter selection)."""
    choices: dict[str, tuple[int, ...]] = {
        "k": (32, 64, 128, 256, 512),
        "h": (1, 2, 4, 8),
        "m": (4, 8, 16, 32, 64),
    }
    charts, best = [], []
    lowest = 1.0
    for name, values in choices.items():
        runs_of = [
            [run_exponential(paper_params(**{name: v}), _MILLION, run) for run in range(runs)]
            for v in values
        ]
        recall = [[r.true_positives / PRESENT for r in done] for done in runs_of]
        right = [
            [r.true_positives / max(r.true_positives + r.false_positives, 1) for r in done]
            for done in runs_of
        ]
        series = (_means("recall", values, recall), _means("precision", values, right))
        lowest = min(lowest, float(series[1].y.min()))
        described = (
            f"Share of the present strings found, and of the found that are right, by {name}."
        )
        words = Labels(f"varying-{name}", f"varying {name}", described, name, "share of strings")
        charts.append(XYChart(words, series))
        means = [float(np.mean(values_)) for values_ in recall]
        recalls = ", ".join(f"{v}: {mean:.2f}" for v, mean in zip(values, means, strict=True))
        best.append(f"recall over {name} = {recalls}")
    return PaperFinding(
        "Recall and precision over k, h and m, the others at k = 128, h = 2, m = 16",
        "Two hash functions are best for recall and precision together; the choices of k and m "
        "show no clear preference.",
        "; ".join(best) + f". Precision is at least {lowest:.2f} everywhere.",
        "f, p and q stay the same, as in the paper, so more hash functions spend more epsilon; "
        "strings that are told by more bits are then found more often, and a decoder with "
        "calibrated tests doesn't pay for it in precision.",
        "parameters.png",
        tuple(charts),
    )


def growth(runs: int) -> PaperFinding:
    """Count how many strings N reports can teach (appendix)."""
    sizes = (10_000, 100_000, _MILLION, 10 * _MILLION)
    # Two set bits tell a string twice, which the formula for one bit leaves out.
    formula = [
        math.sqrt(_GROWTH.h) * learnable_strings(_GROWTH, reports, _CANDIDATES) for reports in sizes
    ]
    learned = [_most_learned(n, most, runs) for n, most in zip(sizes, formula, strict=True)]
    means = np.array([np.mean(values) for values in learned])
    slope = float(np.polyfit(np.log(sizes), np.log(np.maximum(means, 0.5)), 1)[0])
    words = Labels(
        "growth",
        "Strings that N reports teach",
        "Strings found and what the formula says, by the number of reports; both axes logarithmic.",
        "reports",
        "strings",
    )
    series = (
        _means("found, at best", sizes, learned),
        Series("formula", np.array(sizes, dtype=np.float64), np.array(formula)),
    )
    chart = XYChart(words, series, log_x=True, log_y=True)
    found = "; ".join(
        f"{mean:.1f} at N = {n:,} (formula {f:.1f})"
        for mean, n, f in zip(means.tolist(), sizes, formula, strict=True)
    )
    return PaperFinding(
        "How many strings can be learned from N reports, k = 128, h = 2, m = 32, f = p = 0.5, "
        "q = 0.75, equally common strings among 500 candidates",
        "The number grows like sqrt(N): a hundred times the reports teach ten times the strings.",
        f"{found}; it grows like N^{slope:.2f}.",
        "The formula takes a string as learned whose share is at the detection threshold, where "
        "half of them are; so crowds of fewer strings are tried, too, and the best one "
        "counts. 10,000 reports teach so few strings that whole numbers matter.",
        "growth.png",
        (chart,),
    )


def _most_learned(reports: int, formula: float, runs: int) -> list[float]:
    """Return how many strings each run found, of the population of which most were found."""
    best: list[float] = []
    for size in _SIZES:
        n = max(1, round(size * formula))
        scenarios = (paper_scenario(np.full(n, 1 / n), run, _CANDIDATES - n) for run in range(runs))
        done = [run_scenario(s, _GROWTH, reports, run) for run, s in enumerate(scenarios)]
        best = max(best, [float(run.true_positives) for run in done], key=sum)
    return best


def _means(label: str, x: Sequence[int], runs_of: Sequence[Sequence[float]]) -> Series:
    means = np.array([float(np.mean(values)) for values in runs_of])
    bars = np.array([_std_error(values) for values in runs_of])
    return Series(label, np.array(x, dtype=np.float64), means, low=means - bars, high=means + bars)


def _std_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _shown(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ± {_std_error(values):.1f}"
