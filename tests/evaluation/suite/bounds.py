"""Whether a case keeps what is promised: figures over its trials against bounds.

How a figure is compared with its bound is `evaluation.laboratory`'. Trials with any
false name under the null are counts, and tested by the binomial distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evaluation.laboratory import ALARM, Figure
from hubbub.simulations import Score

ALPHA = 0.05
"""Level of the detections, which is the decoder's default."""
COVERAGE = (0.93, 0.97)
COVERAGE_DETECTED = (0.92, 0.98)
LEAST_COVERAGE_OF_MASSES = 0.93
LEAST_OF_ORACLE = 0.85
TOTAL_VARIATION_RATIO = 1.05
"""The bounds of docs/measured/simulations.md, section "When a bound is broken"."""


@dataclass(frozen=True, slots=True)
class StringsTrial:
    """How the strings of one trial were decoded."""

    candidates: int  # strings that were looked for
    ours: Score  # of the decoder (Benjamini-Hochberg at `ALPHA`)
    baseline: Score  # of least squares with the two-standard-error rule on the same counts
    oracle: int  # names that the oracle finds and somebody holds
    # unknown_covered, unlisted_covered: Whether the 95% interval of the mass that isn't detected
    # holds the truth; of the mass that isn't listed, None where it isn't given
    unknown_covered: bool | None
    unlisted_covered: bool | None
    seconds: float  # CPU time of the decoder


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Figures of one case over its trials."""

    case: str  # the case's name
    runs: int  # runs, candidates: Trials; candidates of each
    candidates: int
    true_positives: Figure  # names a run that somebody holds
    # coverage, coverage_detected: Of the 95% intervals over all candidates, over all detected ones
    # of all runs
    coverage: Figure
    seconds: Figure  # CPU time of a decoding
    broken: tuple[str, ...]  # what is promised and wasn't kept
    # total_variation, baseline_variation: Over the detected, of the decoder and of the baseline
    total_variation: Figure
    baseline_variation: Figure
    coverage_detected: Figure
    false_share: Figure  # false names among the detected
    any_false: Figure  # share of runs with a false name
    baseline_false_share: Figure  # false names among those that the baseline detects
    oracle: Figure  # names that the oracle finds and somebody holds
    # coverage_unknown, coverage_unlisted: Of the 95% intervals of the mass that isn't detected, and
    # isn't listed, over the runs that tell it
    coverage_unknown: Figure
    coverage_unlisted: Figure


def variation_ratios(results: Sequence[CaseResult]) -> list[float]:
    """Return each case's total variation over the baseline's, where something true was found."""
    return [
        result.total_variation.mean / result.baseline_variation.mean
        for result in results
        if result.true_positives.mean and result.baseline_variation.mean
    ]


def oracle_ratios(results: Sequence[CaseResult]) -> list[float]:
    """Return what part of the oracle's names each case's decodings find, where it finds any."""
    return [
        result.true_positives.mean / result.oracle.mean for result in results if result.oracle.mean
    ]


def promises_kept(results: Sequence[CaseResult]) -> bool:
    """Whether no case breaks a bound, and averages over the cases don't either.

    Total variation must be below the baseline's on average, and what is found at least 0.85 of what
    the oracle finds.
    """
    ratios, of_oracle = variation_ratios(results), oracle_ratios(results)
    return (
        not any(result.broken for result in results)
        and sum(ratios) <= len(ratios)
        and sum(of_oracle) >= LEAST_OF_ORACLE * len(of_oracle)
    )


def judge_strings(case: str, trials: Sequence[StringsTrial], *, is_null: bool) -> CaseResult:
    """Sum up a case's trials and say which bounds they break.

    Bounds: coverage in 0.93 to 0.97; of the detected in 0.92 to 0.98, false share at most 0.05, and
    total variation at most 1.05 times the baseline's, over the detected or over all strings: who
    reports more names adds up more noise, and leaves out less. In a null case, instead of the last
    three, a false name in at most 5% of the runs. Coverage of the masses that aren't
    detected and aren't listed is at least 0.93.
    """
    ours = [trial.ours for trial in trials]
    plain = [trial.baseline for trial in trials]
    detected = np.array([each.detected for each in ours], dtype=np.float64)
    n_candidates = trials[0].candidates
    coverage = Figure.of_shares([each.interval_coverage for each in ours], n_candidates * len(ours))
    covered = Figure.of_ratio([each.interval_coverage_detected for each in ours], detected)
    false_share = Figure.of_shares([each.false_share for each in ours], detected.sum())
    excess = Figure.of(
        [
            min(
                a.total_variation - TOTAL_VARIATION_RATIO * b.total_variation,
                a.total_variation_all - TOTAL_VARIATION_RATIO * b.total_variation_all,
            )
            for a, b in zip(ours, plain, strict=True)
        ]
    )
    any_false = [float(each.false_positives > 0) for each in ours]
    unknown = Figure.of(_told([trial.unknown_covered for trial in trials]))
    unlisted = Figure.of(_told([trial.unlisted_covered for trial in trials]))
    broken = {
        "coverage": coverage.outside(COVERAGE),
        "unknown mass": _too_few(unknown),
        "unlisted mass": _too_few(unlisted),
    }
    if is_null:
        chance = stats.binom.sf(sum(any_false) - 1, len(any_false), ALPHA)
        broken["names under the null"] = bool(chance < ALARM)
    else:
        broken["coverage of detected"] = covered.outside(COVERAGE_DETECTED)
        broken["false share"] = false_share.above(ALPHA)
        broken["total variation"] = excess.above(0.0)
    return CaseResult(
        case=case,
        runs=len(trials),
        candidates=n_candidates,
        true_positives=Figure.of([each.true_positives for each in ours]),
        coverage=coverage,
        coverage_detected=covered,
        false_share=false_share,
        any_false=Figure.of_shares(any_false, len(any_false)),
        total_variation=Figure.of([each.total_variation for each in ours]),
        baseline_variation=Figure.of([each.total_variation for each in plain]),
        baseline_false_share=Figure.of([each.false_share for each in plain]),
        oracle=Figure.of([trial.oracle for trial in trials]),
        coverage_unknown=unknown,
        coverage_unlisted=unlisted,
        seconds=Figure.of([trial.seconds for trial in trials]),
        broken=tuple(name for name, is_broken in broken.items() if is_broken),
    )


def _told(values: Sequence[bool | None]) -> list[float]:
    return [float(value) for value in values if value is not None]


def _too_few(covered: Figure) -> bool:
    hits = round(covered.mean * covered.runs) if covered.runs else 0
    return bool(stats.binom.cdf(hits, covered.runs, LEAST_COVERAGE_OF_MASSES) < ALARM)
