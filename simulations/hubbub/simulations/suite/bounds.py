"""Whether a case keeps what is promised: figures with standard errors against bounds.

A figure is compared with its bound by a one-sided test: it breaks the bound only if it lies beyond
it by more standard errors than Student's t allows with probability `ALARM`. Standard errors come
from the scatter between runs, but are never taken below what independent names would give, so that
a few runs that happen to agree prove nothing. Runs with any false name under the null are counts,
and tested by the binomial distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hubbub.inference.arrays import FloatArray
from hubbub.simulations.experiments.joint_scoring import Coverage
from hubbub.simulations.suite.joint_matrix import JointBounds, JointCase
from hubbub.simulations.suite.matrix import AnyCase
from hubbub.simulations.suite.trials import ALPHA, AnyTrial, JointTrial, Trial, run_trials

ALARM = 1e-3
"""Chance that a figure which lies exactly on its bound is called broken."""
COVERAGE = (0.93, 0.97)
COVERAGE_DETECTED = (0.92, 0.98)
COVERAGE_CELLS = (0.94, 0.96)
"""Of all cells of a table; of its common cells, margins and conditional shares `COVERAGE`."""
LEAST_COVERAGE_OF_MASSES = 0.93
LEAST_OF_ORACLE = 0.85
TOTAL_VARIATION_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over runs with its standard error (nan where no run says anything).

    Attributes
    ----------
    runs : int
        Runs that it rests on.
    """

    mean: float
    std_error: float
    runs: int

    def above(self, bound: float) -> bool:
        """Whether it is above a bound beyond what chance allows."""
        return self.runs > 0 and self.mean - bound > self._margin()

    def below(self, bound: float) -> bool:
        """Whether it is below a bound beyond what chance allows."""
        return self.runs > 0 and bound - self.mean > self._margin()

    def _margin(self) -> float:
        if self.runs > 1:
            return float(stats.t.isf(ALARM, self.runs - 1)) * self.std_error
        return float(stats.norm.isf(ALARM)) * self.std_error


UNKNOWN = Figure(math.nan, math.nan, 0)
"""A figure that a case doesn't have."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Figures of one case over its runs.

    Attributes
    ----------
    detected, true_positives : Figure
        Names a run; of tables cells, which are all held by someone.
    coverage, coverage_detected : Figure
        Of the 95% intervals over all candidates, over all detected ones of all runs.
    false_share : Figure
        False names among the detected; of tables, false ones among the cells that are said to
        depart from independence.
    any_false : Figure
        Share of runs with a false name.
    total_variation, baseline_variation : Figure
        Over the detected, of the decoder and of the baseline.
    total_variation_all, baseline_variation_all : Figure
        Over all strings.
    oracle : Figure
        Names that the oracle finds and somebody holds.
    if_listed : Figure
        Of open strings, names that would be found if all had been listed and reported whole.
    coverage_unknown, coverage_unlisted : Figure
        Of the 95% intervals of the mass that isn't detected, and isn't listed, over the runs that
        tell it.
    coverage_common, coverage_margins, coverage_conditionals, coverage_strength : Figure
        Of tables, of the 95% intervals of cells with a true share above .002, of margins, of shares
        among the clients with another value, and of Cramer's V.
    refit_variation : Figure
        Of tables, total variation of the column `refit`; `total_variation` and
        `total_variation_all` are those of the constrained shares, over all cells.
    rejected : Figure
        Of tables, share of runs in which independence was rejected.
    seconds : Figure
        CPU time of a decoding.
    broken : tuple of str
        What is promised and wasn't kept.
    """

    case: str
    runs: int
    candidates: int
    detected: Figure
    true_positives: Figure
    coverage: Figure
    seconds: Figure
    broken: tuple[str, ...]
    total_variation: Figure
    total_variation_all: Figure
    coverage_detected: Figure = UNKNOWN
    false_share: Figure = UNKNOWN
    any_false: Figure = UNKNOWN
    baseline_variation: Figure = UNKNOWN
    baseline_variation_all: Figure = UNKNOWN
    baseline_false_share: Figure = UNKNOWN
    oracle: Figure = UNKNOWN
    if_listed: Figure = UNKNOWN
    coverage_unknown: Figure = UNKNOWN
    coverage_unlisted: Figure = UNKNOWN
    coverage_common: Figure = UNKNOWN
    coverage_margins: Figure = UNKNOWN
    coverage_conditionals: Figure = UNKNOWN
    coverage_strength: Figure = UNKNOWN
    refit_variation: Figure = UNKNOWN
    rejected: Figure = UNKNOWN


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


def run_suite(
    cases: Sequence[AnyCase],
    seeds: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[CaseResult, ...]:
    """Run cases as `run_trials` does, and judge them."""
    trials = run_trials(cases, seeds, workers, progress)
    return tuple(_judge_case(case, runs) for case, runs in zip(cases, trials, strict=True))


def _judge_case(case: AnyCase, trials: Sequence[AnyTrial]) -> CaseResult:
    if isinstance(case, JointCase):
        joint = [trial for trial in trials if isinstance(trial, JointTrial)]
        return judge_table(joint, case.bounds)
    return judge([t for t in trials if isinstance(t, Trial)], is_null=case.is_null)


def judge(trials: Sequence[Trial], *, is_null: bool) -> CaseResult:
    """Sum up a case's runs and say which bounds they break.

    Bounds: coverage in 0.93 to 0.97; of the detected in 0.92 to 0.98, false share at most 0.05, and
    total variation at most 1.05 times the baseline's, over the detected or over all strings: who
    reports more names adds up more noise, and leaves out less. In a null case, instead of the last
    three, a false name in at most 5% of the runs. Coverage of the masses that aren't
    detected and aren't listed is at least 0.93. What a case doesn't have (open strings have no
    candidates and no baseline) isn't judged.
    """
    ours = [trial.ours for trial in trials]
    plain = [trial.baseline for trial in trials if trial.baseline is not None]
    compared = [trial.ours for trial in trials if trial.baseline is not None]
    detected = np.array([s.detected for s in ours], dtype=np.float64)
    n_candidates = trials[0].candidates
    of_candidates = [s.interval_coverage for s in ours] if n_candidates else []
    coverage = _proportion(of_candidates, n_candidates * len(ours))
    covered = _ratio([s.interval_coverage_detected for s in ours], detected)
    false_share = _proportion([s.false_share for s in ours], detected.sum())
    variation = _mean([s.total_variation for s in ours])
    baseline = _mean([s.total_variation for s in plain])
    excess = _mean(
        [
            min(
                a.total_variation - TOTAL_VARIATION_RATIO * b.total_variation,
                a.total_variation_all - TOTAL_VARIATION_RATIO * b.total_variation_all,
            )
            for a, b in zip(compared, plain, strict=True)
        ]
    )
    any_false = [s.false_positives > 0 for s in ours]
    unknown = _of_masses([trial.unknown_covered for trial in trials])
    unlisted = _of_masses([trial.unlisted_covered for trial in trials])
    broken = _range_broken("coverage", coverage, COVERAGE)
    broken += ["unknown mass"] if _too_few(unknown) else []
    broken += ["unlisted mass"] if _too_few(unlisted) else []
    if is_null:
        too_many = stats.binom.sf(sum(any_false) - 1, len(any_false), ALPHA) < ALARM
        broken += ["names under the null"] if too_many else []
    else:
        broken += _range_broken("coverage of detected", covered, COVERAGE_DETECTED)
        broken += ["false share"] if false_share.above(ALPHA) else []
        broken += ["total variation"] if excess.above(0.0) else []
    return CaseResult(
        case=trials[0].case,
        runs=len(trials),
        candidates=n_candidates,
        detected=_mean(detected.tolist()),
        true_positives=_mean([s.true_positives for s in ours]),
        coverage=coverage,
        coverage_detected=covered,
        false_share=false_share,
        any_false=_proportion([float(a) for a in any_false], len(any_false)),
        total_variation=variation,
        total_variation_all=_mean([s.total_variation_all for s in ours]),
        baseline_variation=baseline,
        baseline_variation_all=_mean([s.total_variation_all for s in plain]),
        baseline_false_share=_mean([s.false_share for s in plain]),
        oracle=_mean([float(trial.oracle) for trial in trials if trial.oracle is not None]),
        if_listed=_mean(
            [float(trial.if_listed) for trial in trials if trial.if_listed is not None]
        ),
        coverage_unknown=unknown,
        coverage_unlisted=unlisted,
        seconds=_mean([trial.seconds for trial in trials]),
        broken=tuple(broken),
    )


def judge_table(trials: Sequence[JointTrial], bounds: JointBounds) -> CaseResult:
    """Sum up the runs of a table and say which bounds they break.

    Bounds: coverage of all cells in 0.94 to 0.96, of common cells, margins and conditional shares
    in 0.93 to 0.97, a false share of at most 0.05 among the cells that are said to depart from
    independence, and the case's own on total variation and on how often independence is rejected.
    """
    scores = [trial.score for trial in trials]
    names = ("cells", "common_cells", "margins", "conditionals", "strength")
    covered = {name: _covered([getattr(score, name) for score in scores]) for name in names}
    variation = _mean([score.total_variation for score in scores])
    refit = _mean([score.total_variation_refit for score in scores])
    tested = [score for score in scores if not math.isnan(score.p_value)]
    rejected = sum(score.rejected for score in tested)
    broken = _range_broken("coverage", covered["cells"], COVERAGE_CELLS)
    for name in names[1:-1]:
        broken += _range_broken(f"coverage of {name.replace('_', ' ')}", covered[name], COVERAGE)
    broken += ["total variation"] if variation.above(bounds.variation) else []
    broken += ["variation of refit"] if refit.above(bounds.refit_variation) else []
    least, most = bounds.rejected
    too_few = stats.binom.cdf(rejected, len(tested), least) < ALARM
    too_many = stats.binom.sf(rejected - 1, len(tested), most) < ALARM
    broken += ["independence"] if tested and (too_few or too_many) else []
    detected = _mean([float(score.detected) for score in scores])
    departures = [score.departures for score in scores]
    wrong = [score.wrong_departures / max(score.departures, 1) for score in scores]
    false_share = _proportion(wrong, sum(departures))
    broken += ["false share"] if false_share.above(ALPHA) else []
    return CaseResult(
        case=trials[0].case,
        runs=len(trials),
        candidates=trials[0].n_cells,
        detected=detected,
        true_positives=detected,
        coverage=covered["cells"],
        seconds=_mean([trial.seconds for trial in trials]),
        broken=tuple(broken),
        total_variation=variation,
        total_variation_all=variation,
        false_share=false_share,
        coverage_common=covered["common_cells"],
        coverage_margins=covered["margins"],
        coverage_conditionals=covered["conditionals"],
        coverage_strength=covered["strength"],
        refit_variation=refit,
        rejected=_proportion([float(score.rejected) for score in tested], len(tested)),
    )


def _covered(coverages: Sequence[Coverage]) -> Figure:
    """Return the share of all runs' intervals that hold the truth."""
    intervals = np.array([each.intervals for each in coverages], dtype=np.float64)
    return _ratio([each.share for each in coverages], intervals)


def _of_masses(covered: Sequence[bool | None]) -> Figure:
    return _mean([float(each) for each in covered if each is not None])


def _too_few(covered: Figure) -> bool:
    hits = round(covered.mean * covered.runs) if covered.runs else 0
    return bool(stats.binom.cdf(hits, covered.runs, LEAST_COVERAGE_OF_MASSES) < ALARM)


def _mean(values: Sequence[float]) -> Figure:
    if not values:
        return UNKNOWN
    array = np.array(values, dtype=np.float64)
    scatter = float(array.std(ddof=1)) / math.sqrt(len(array)) if len(array) > 1 else math.inf
    return Figure(float(array.mean()), scatter, len(array))


def _proportion(values: Sequence[float], names: float) -> Figure:
    """Return the mean of shares that rest on so many names; of one run, as if independent."""
    return _floored(_mean([v for v in values if not math.isnan(v)]), names)


def _ratio(shares: Sequence[float], weights: FloatArray) -> Figure:
    """Return the share over all runs' names together, with a ratio estimate's standard error."""
    used = weights > 0
    if not used.any():
        return UNKNOWN
    hits, total = np.array(shares)[used] * weights[used], float(weights.sum())
    mean, runs = float(hits.sum()) / total, int(used.sum())
    scatter = math.inf
    if runs > 1:
        deviations = hits - mean * weights[used]
        scatter = math.sqrt(float(deviations @ deviations) * runs / (runs - 1)) / total
    return _floored(Figure(mean, scatter, runs), total)


def _floored(figure: Figure, names: float) -> Figure:
    if not figure.runs or not names:
        return figure
    alone = math.sqrt(ALPHA * (1 - ALPHA) / names)
    scatter = alone if math.isinf(figure.std_error) else max(figure.std_error, alone)
    return Figure(figure.mean, scatter, figure.runs)


def _range_broken(name: str, figure: Figure, bounds: tuple[float, float]) -> list[str]:
    low, high = bounds
    return [name] if figure.below(low) or figure.above(high) else []
