"""Whether a case keeps what is promised: figures over its trials against bounds.

How a figure is compared with its bound is `evaluation.laboratory`'. Trials with any
false name under the null are counts, and tested by the binomial distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy import stats

from evaluation.laboratory import ALARM, UNKNOWN, Figure
from hubbub.simulations import Coverage, JointScore, Score

ScoreT = TypeVar("ScoreT", Score, JointScore)

ALPHA = 0.05
"""Level of the detections, which is the decoder's default."""
COVERAGE = (0.93, 0.97)
COVERAGE_DETECTED = (0.92, 0.98)
COVERAGE_CELLS = (0.94, 0.96)
"""Of all cells of a table; of its common cells, margins and conditional shares `COVERAGE`."""
LEAST_COVERAGE_OF_MASSES = 0.93
LEAST_OF_ORACLE = 0.85
TOTAL_VARIATION_RATIO = 1.05
"""The bounds of docs/measured/simulations.md, section "When a bound is broken"."""


@dataclass(frozen=True, slots=True)
class StringsTrial:
    """How the strings of one trial were decoded."""

    candidates: int  # strings that were looked for; 0 of open strings
    ours: Score  # of the decoder (Benjamini-Hochberg at `ALPHA`)
    # of least squares with the two-standard-error rule on the same counts; not of open strings
    baseline: Score | None
    oracle: int | None  # names that the oracle finds and somebody holds; not of open strings
    # unknown_covered, unlisted_covered: Whether the 95% interval of the mass that isn't detected
    # holds the truth; of the mass that isn't listed
    unknown_covered: bool | None
    unlisted_covered: bool | None
    seconds: float  # CPU time of the decoder
    # of open strings, names that would be found if all had been listed and reported whole
    if_listed: int | None = None


@dataclass(frozen=True, slots=True)
class CellsTrial(Generic[ScoreT]):
    """How the categories, or the table, of one trial were decoded."""

    cells: int  # how many there are
    score: ScoreT  # of their shares among the population that clients are drawn from
    seconds: float  # CPU time of the decoder


@dataclass(frozen=True, slots=True)
class TableBounds:
    """What is promised of a table; nothing where a bound is infinite, or the least 0."""

    # variation, refit_variation: Most total variation of the constrained shares, and of `refit`
    variation: float = math.inf
    refit_variation: float = math.inf
    # least and most chance that independence is rejected at .05
    rejected: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Figures of one case over its trials."""

    case: str  # the case's name
    runs: int  # runs, candidates: Trials; candidates, or cells, of each
    candidates: int
    # detected, true_positives: Names a run; of tables cells, which are all held by someone
    detected: Figure
    true_positives: Figure
    # coverage, coverage_detected: Of the 95% intervals over all candidates, over all detected ones
    # of all runs
    coverage: Figure
    seconds: Figure  # CPU time of a decoding
    broken: tuple[str, ...]  # what is promised and wasn't kept
    # total_variation, baseline_variation: Over the detected, of the decoder and of the baseline
    total_variation: Figure
    total_variation_all: Figure  # total_variation_all, baseline_variation_all: Over all strings
    coverage_detected: Figure = UNKNOWN
    # false names among the detected; of tables, false ones among the cells that are said to depart
    # from independence
    false_share: Figure = UNKNOWN
    any_false: Figure = UNKNOWN  # share of runs with a false name
    baseline_variation: Figure = UNKNOWN
    baseline_variation_all: Figure = UNKNOWN
    baseline_false_share: Figure = UNKNOWN  # false names among those that the baseline detects
    oracle: Figure = UNKNOWN  # names that the oracle finds and somebody holds
    # of open strings, names that would be found if all had been listed and reported whole
    if_listed: Figure = UNKNOWN
    # coverage_unknown, coverage_unlisted: Of the 95% intervals of the mass that isn't detected, and
    # isn't listed, over the runs that tell it
    coverage_unknown: Figure = UNKNOWN
    coverage_unlisted: Figure = UNKNOWN
    # coverage_common, coverage_margins, coverage_conditionals, coverage_strength: Of tables, of the
    # 95% intervals of cells with a true share above .002, of margins, of shares among the clients
    # with another value, and of Cramer's V
    coverage_common: Figure = UNKNOWN
    coverage_margins: Figure = UNKNOWN
    coverage_conditionals: Figure = UNKNOWN
    coverage_strength: Figure = UNKNOWN
    # of tables, total variation of the column `refit`; `total_variation` and `total_variation_all`
    # are those of the constrained shares, over all cells
    refit_variation: Figure = UNKNOWN
    rejected: Figure = UNKNOWN  # of tables, share of runs in which independence was rejected


def variation_ratios(results: Sequence[CaseResult]) -> list[float]:
    """Return each case's total variation over the baseline's, where something true was found."""
    return [
        result.total_variation.mean / result.baseline_variation.mean
        for result in results
        if result.true_positives.mean
        and result.baseline_variation.runs
        and result.baseline_variation.mean
    ]


def oracle_ratios(results: Sequence[CaseResult]) -> list[float]:
    """Return what part of the oracle's names each case's decodings find, where it finds any."""
    return [
        result.true_positives.mean / result.oracle.mean
        for result in results
        if result.oracle.runs and result.oracle.mean
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
    detected and aren't listed is at least 0.93. What a case doesn't have (open strings have no
    candidates and no baseline) isn't judged.
    """
    ours = [trial.ours for trial in trials]
    pairs = [(trial.ours, trial.baseline) for trial in trials if trial.baseline is not None]
    plain = [baseline for _, baseline in pairs]
    detected = np.array([each.detected for each in ours], dtype=np.float64)
    n_candidates = trials[0].candidates
    of_candidates = [each.interval_coverage for each in ours] if n_candidates else []
    coverage = Figure.of_shares(of_candidates, n_candidates * len(ours))
    covered = Figure.of_ratio([each.interval_coverage_detected for each in ours], detected)
    false_share = Figure.of_shares([each.false_share for each in ours], detected.sum())
    excess = Figure.of(
        [
            min(
                a.total_variation - TOTAL_VARIATION_RATIO * b.total_variation,
                a.total_variation_all - TOTAL_VARIATION_RATIO * b.total_variation_all,
            )
            for a, b in pairs
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
        detected=Figure.of(detected),
        true_positives=Figure.of([each.true_positives for each in ours]),
        coverage=coverage,
        coverage_detected=covered,
        false_share=false_share,
        any_false=Figure.of_shares(any_false, len(any_false)),
        total_variation=Figure.of([each.total_variation for each in ours]),
        total_variation_all=Figure.of([each.total_variation_all for each in ours]),
        baseline_variation=Figure.of([each.total_variation for each in plain]),
        baseline_variation_all=Figure.of([each.total_variation_all for each in plain]),
        baseline_false_share=Figure.of([each.false_share for each in plain]),
        oracle=Figure.of(_told([trial.oracle for trial in trials])),
        if_listed=Figure.of(_told([trial.if_listed for trial in trials])),
        coverage_unknown=unknown,
        coverage_unlisted=unlisted,
        seconds=Figure.of([trial.seconds for trial in trials]),
        broken=_names(broken),
    )


def judge_enum(case: str, trials: Sequence[CellsTrial[Score]]) -> CaseResult:
    """Sum up a case's trials of an enum and say which bounds they break.

    Bounds: coverage in 0.93 to 0.97, and a false share of at most 0.05.
    """
    scores = [trial.score for trial in trials]
    detected = np.array([each.detected for each in scores], dtype=np.float64)
    covered = [each.interval_coverage for each in scores]
    coverage = Figure.of_shares(covered, trials[0].cells * len(trials))
    false_share = Figure.of_shares([each.false_share for each in scores], detected.sum())
    broken = {
        "coverage": coverage.outside(COVERAGE),
        "false share": false_share.above(ALPHA),
    }
    return CaseResult(
        case=case,
        runs=len(trials),
        candidates=trials[0].cells,
        detected=Figure.of(detected),
        true_positives=Figure.of([each.true_positives for each in scores]),
        coverage=coverage,
        seconds=Figure.of([trial.seconds for trial in trials]),
        broken=_names(broken),
        total_variation=Figure.of([each.total_variation for each in scores]),
        total_variation_all=Figure.of([each.total_variation_all for each in scores]),
        false_share=false_share,
    )


def judge_table(
    case: str, trials: Sequence[CellsTrial[JointScore]], bounds: TableBounds
) -> CaseResult:
    """Sum up the trials of a table and say which bounds they break.

    Bounds: coverage of all cells in 0.94 to 0.96, of common cells, margins and conditional shares
    in 0.93 to 0.97, a false share of at most 0.05 among the cells that are said to depart from
    independence, and the case's own on total variation and on how often independence is rejected.
    """
    scores = [trial.score for trial in trials]
    names = ("cells", "common_cells", "margins", "conditionals", "strength")
    covered = {name: _covered([getattr(score, name) for score in scores]) for name in names}
    variation = Figure.of([score.total_variation for score in scores])
    refit = Figure.of([score.total_variation_refit for score in scores])
    tested = [score for score in scores if not math.isnan(score.p_value)]
    rejected = sum(score.rejected for score in tested)
    least, most = bounds.rejected
    too_few = stats.binom.cdf(rejected, len(tested), least) < ALARM
    too_many = stats.binom.sf(rejected - 1, len(tested), most) < ALARM
    detected = Figure.of([score.detected for score in scores])
    departures = sum(score.departures for score in scores)
    wrong = [score.wrong_departures / max(score.departures, 1) for score in scores]
    false_share = Figure.of_shares(wrong, departures)
    broken = {
        "coverage": covered["cells"].outside(COVERAGE_CELLS),
        **{
            f"coverage of {name.replace('_', ' ')}": covered[name].outside(COVERAGE)
            for name in names[1:-1]
        },
        "total variation": variation.above(bounds.variation),
        "variation of refit": refit.above(bounds.refit_variation),
        "independence": bool(tested and (too_few or too_many)),
        "false share": false_share.above(ALPHA),
    }
    return CaseResult(
        case=case,
        runs=len(trials),
        candidates=trials[0].cells,
        detected=detected,
        true_positives=detected,
        coverage=covered["cells"],
        seconds=Figure.of([trial.seconds for trial in trials]),
        broken=_names(broken),
        total_variation=variation,
        total_variation_all=variation,
        false_share=false_share,
        coverage_common=covered["common_cells"],
        coverage_margins=covered["margins"],
        coverage_conditionals=covered["conditionals"],
        coverage_strength=covered["strength"],
        refit_variation=refit,
        rejected=Figure.of_shares([float(score.rejected) for score in tested], len(tested)),
    )


def _covered(coverages: Sequence[Coverage]) -> Figure:
    intervals = np.array([each.intervals for each in coverages], dtype=np.float64)
    return Figure.of_ratio([each.share for each in coverages], intervals)


def _told(values: Sequence[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None]


def _too_few(covered: Figure) -> bool:
    hits = round(covered.mean * covered.runs) if covered.runs else 0
    return bool(stats.binom.cdf(hits, covered.runs, LEAST_COVERAGE_OF_MASSES) < ALARM)


def _names(broken: dict[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, is_broken in broken.items() if is_broken)
