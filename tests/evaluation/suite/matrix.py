"""The regression matrix: the cases that the decoder is measured on.

After google/rappor's regression tests, whose distributions, sizes and filters these are. Their full
cross product is thousands of cases; the selection varies one thing at a time about their own
"typical" case and about a larger one, so that every value of every axis occurs, and ends with null
cases, in which reports are plentiful and no candidate is true. Cases of strings that are asked once
a period follow. Open strings, tables and categories have studies of their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.laboratory import Progress, no_progress, run_trials, seed_of
from evaluation.studies.cases import collect, score_decoding
from evaluation.suite.baseline import least_squares_two_se, oracle_detections
from evaluation.suite.bounds import ALPHA, CaseResult, StringsTrial, judge_strings
from hubbub.inference import ONCE_OF_REPORTS, Z_CONFIDENCE, decode
from hubbub.protocol import RapporParams
from hubbub.simulations import DecodedShares, Scenario, family_shares, made_up, make_scenario, score

DISTRIBUTIONS = ("uniform", "exponential", "gauss", "zipf:1", "zipf:1.5")
FILTERS = (
    (8, 2, 16),
    (8, 2, 32),
    (8, 2, 128),
    (32, 1, 64),
    (128, 2, 8),
    (128, 2, 16),
    (128, 2, 64),
)
"""k, h, m."""
ONCE = (128, 1, 64)
"""k, h, m of strings that are asked once a period: the README's."""
PRIVACY = {
    "tight": (0.45, 0.39, 0.61),
    "loose": (0.0, 0.225, 0.775),
    "chrome": (0.5, 0.25, 0.75),
    "paper": (0.5, 0.5, 0.75),
    "once": (0.0, 0.0123, 0.5),
}
"""f, p, q; the last is optimal unary encoding at epsilon 4.39, the README's of a period."""
_NULL_CANDIDATES = 1_000
"""So many that without a correction fifty would be detected."""
_MILLION = 1_000_000
_ROUNDING = 1e-9  # of a mass of which nothing is detected


@dataclass(frozen=True, slots=True)
class ListedCase:
    """One line of the suite's table."""

    distribution: str  # as `family_shares` takes it
    unique: int  # unique, reports: Values that the population holds; reports, one a client
    reports: int
    k: int  # k, h, m: Bits, hash functions and cohorts
    h: int
    m: int
    privacy: str  # A key of `PRIVACY`
    extra: float  # candidates that nobody holds, as a multiple of `unique`
    # share of the values that are not among the candidates; 1 makes a null case
    missing: float = 0.1
    # in each of which every client reports once, with new coins and in a new cohort
    periods: int = 1

    @property
    def name(self) -> str:
        """A short name that says all of it, such as zipf1-100-1M-8x2x128-tight-x0.2."""
        reports = f"{self.reports / _MILLION:g}M"
        filters = f"{self.k}x{self.h}x{self.m}"
        listed = "null" if self.is_null else f"x{self.extra:g}" + ("" if self.missing else "-sharp")
        family = self.distribution.replace(":", "")
        often = f"-{self.periods}periods" if self.periods > 1 else ""
        return f"{family}-{self.unique}-{reports}-{filters}-{self.privacy}-{listed}{often}"

    @property
    def params(self) -> RapporParams:
        return RapporParams(self.k, self.h, self.m, *PRIVACY[self.privacy])

    @property
    def is_null(self) -> bool:
        """Whether no candidate is held by anybody."""
        return self.missing == 1

    @property
    def work(self) -> float:
        return self.reports + 100.0 * self.unique * (1 + self.extra)

    def seed(self, run: int) -> np.random.SeedSequence:
        return seed_of(self.name, run)

    def scenario(self, run: int) -> Scenario:
        """Return a run's population and candidates: strings that no other run has.

        So an error that one set of strings causes by the way it happens to hash isn't repeated.
        """
        population = made_up(family_shares(self.distribution, self.unique), f"run {run} v")
        n_absent = _NULL_CANDIDATES if self.is_null else round(self.extra * self.unique)
        absent = tuple(f"run {run} absent {i}" for i in range(n_absent))
        return make_scenario(population, self.missing, absent)

    def run(self, number: int) -> StringsTrial:
        scenario, clients = self.scenario(number), self.reports // self.periods
        collected = collect(scenario, self.params, clients, self.seed(number), self.periods)
        truth, candidates = collected.truth, collected.candidates
        started = time.process_time()
        ours = decode(
            collected.counts, self.params, candidates, alpha=ALPHA, repeats=ONCE_OF_REPORTS
        )
        seconds = time.process_time() - started
        plain = least_squares_two_se(collected.counts, self.params, candidates)
        oracle = oracle_detections(collected.counts, self.params, candidates, truth > 0, ALPHA)
        summary = ours.summary
        no_interval = np.full(len(candidates), np.nan)
        return StringsTrial(
            candidates=len(candidates),
            ours=score_decoding(truth, ours),
            baseline=score(
                truth, DecodedShares(plain.share, no_interval, no_interval, plain.detected)
            ),
            oracle=int(np.count_nonzero(oracle & (truth > 0))),
            unknown_covered=_covered(
                1 - float(truth[ours.detected].sum()),
                summary.unknown_share,
                summary.unknown_std_error,
            ),
            unlisted_covered=_covered(
                1 - float(truth.sum()), summary.unlisted_share, summary.unlisted_std_error
            ),
            seconds=seconds,
        )

    def judge(self, trials: Sequence[StringsTrial]) -> CaseResult:
        return judge_strings(self.name, trials, is_null=self.is_null)


def _covered(truth: float, estimate: float, std_error: float) -> bool | None:
    """Return whether the 95% interval of a mass holds it; None if the decoder gives no error."""
    if np.isnan(std_error):
        return None
    return abs(estimate - truth) <= Z_CONFIDENCE * std_error + _ROUNDING


def all_cases() -> tuple[ListedCase, ...]:
    """Return the selection, in the table's order."""
    return tuple(dict.fromkeys((*_selection(), *_asked_once())))


def quick_cases() -> tuple[ListedCase, ...]:
    """Return the few that continuous integration runs."""
    return (
        ListedCase("exponential", 100, _MILLION, 8, 2, 128, "tight", 0.2),
        ListedCase("zipf:1", 100, _MILLION, 8, 2, 128, "loose", 0.2),
        ListedCase("gauss", 100, _MILLION, 8, 2, 128, "tight", 0.0, 0.0),
        ListedCase("zipf:1.5", 1_000, _MILLION, 32, 1, 64, "chrome", 10.0),
        ListedCase("exponential", 100, _MILLION, 128, 2, 16, "paper", 1.0),
        ListedCase("uniform", 100, _MILLION, 128, 2, 64, "chrome", 10.0),
        ListedCase("zipf:1", 100, _MILLION, 8, 2, 32, "loose", 0.0, 1.0),
        ListedCase("zipf:1", 100, _MILLION, 128, 2, 64, "chrome", 0.0, 1.0),
    )


def run_suite(
    cases: Sequence[ListedCase], seeds: int, workers: int, progress: Progress = no_progress
) -> tuple[CaseResult, ...]:
    trials = run_trials(cases, seeds, workers, progress)
    return tuple(case.judge(each) for case, each in zip(cases, trials, strict=True))


def _selection() -> Iterator[ListedCase]:
    # Their small cases: typical, without noise in the list, loose, with 10 times as many.
    for distribution in DISTRIBUTIONS:
        small = (distribution, 100, _MILLION, 8, 2, 128)
        yield ListedCase(*small, "tight", 0.2)
        yield ListedCase(*small, "tight", 0.0, 0.0)
        yield ListedCase(*small, "loose", 0.2)
        yield ListedCase(*small, "tight", 10.0)
    for i, (k, h, m) in enumerate(FILTERS):
        distribution = ("exponential", "zipf:1")[i % 2]
        yield ListedCase(distribution, 100, _MILLION, k, h, m, "chrome", 0.2)
        yield ListedCase(distribution, 1_000, 10 * _MILLION, k, h, m, "loose", 10.0)
    for i, privacy in enumerate(tuple(PRIVACY)[:-1]):
        yield ListedCase(DISTRIBUTIONS[i], 100, _MILLION, 32, 1, 64, privacy, 10.0)
        yield ListedCase(DISTRIBUTIONS[i + 1], 1_000, _MILLION, 128, 2, 64, privacy, 0.0)
    # Sizes.
    yield ListedCase("uniform", 100, _MILLION // 10, 128, 2, 64, "chrome", 0.2)
    yield ListedCase("zipf:1", 100, _MILLION // 10, 8, 2, 128, "loose", 10.0)
    yield ListedCase("exponential", 100, _MILLION, 128, 2, 8, "paper", 1.0)
    yield ListedCase("gauss", 1_000, 10 * _MILLION, 128, 2, 16, "chrome", 0.2)
    yield ListedCase("zipf:1.5", 10_000, 10 * _MILLION, 128, 2, 64, "chrome", 0.2)
    yield ListedCase("zipf:1", 1_000, 10 * _MILLION, 128, 2, 64, "chrome", 100.0)
    yield ListedCase("exponential", 100, _MILLION, 32, 1, 64, "loose", 100.0)
    yield ListedCase("zipf:1", 10_000, 10 * _MILLION, 8, 2, 128, "loose", 10.0)
    # Null cases.
    for distribution, reports, (k, h, m), privacy in (
        ("zipf:1", _MILLION, (8, 2, 128), "tight"),
        ("zipf:1", 10 * _MILLION, (8, 2, 32), "loose"),
        ("zipf:1.5", 10 * _MILLION, (32, 1, 64), "chrome"),
        ("exponential", 10 * _MILLION, (128, 2, 16), "paper"),
        ("zipf:1", 10 * _MILLION, (128, 2, 64), "chrome"),
        ("uniform", 10 * _MILLION, (128, 2, 64), "loose"),
    ):
        yield ListedCase(distribution, 100, reports, k, h, m, privacy, 0.0, 1.0)


def _asked_once() -> Iterator[ListedCase]:
    yield ListedCase("zipf:1", 100, _MILLION // 10, *ONCE, "once", 10.0)
    yield ListedCase("zipf:1", 1_000, _MILLION, *ONCE, "once", 10.0, periods=6)
    yield ListedCase("zipf:1", 100, _MILLION, *ONCE, "once", 0.0, 1.0, periods=6)
