"""The joint likelihood beside least squares (docs/measured/estimates.md).

Both decode the same reports of the same made-up people. Least squares is also scored under the rule
"above two standard errors", as google/rappor's decoder keeps strings.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from evaluation.studies.cases import PAPER, StringsCase, score_decoding, uniform, zipf
from evaluation.studies.study import Study, means
from hubbub.decoder import Decoding, decode
from hubbub.inference import ONCE_OF_REPORTS, BoolArray, FloatArray, decode_reports, hashed, pack
from hubbub.protocol import RapporParams
from hubbub.simulations import DecodedShares, family_shares, score

_Z_REFERENCE = 2.0  # google/rappor's rule
NOISE = {
    "f .45": (0.45, 0.39, 0.61),
    "f 0": (0.0, 0.225, 0.775),
    "f .5": (0.5, 0.25, 0.75),
    "f .5, p .5": (0.5, 0.5, 0.75),
}
"""The settings of f, p, q in google/rappor's regression suite."""


def gauss(n: int) -> FloatArray:
    """Return shares on a bell, three standard deviations to either side."""
    weights = np.exp(-0.5 * np.linspace(-3, 3, n) ** 2)
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True)
class BothWays:
    """One trial of both; nan where there is nothing to take the mean of.

    `distance` is the total variation distance over a decoder's detected strings and anything else;
    `least_squares` ends the names of what the counts give; their distance is by two standard
    errors.
    """

    coverage: float
    coverage_detected: float
    false_share: float
    any_false: float
    found: float
    found_least_squares: float
    distance: float
    distance_least_squares: float
    error_to_least_squares: float


class LikelihoodCase(StringsCase):
    """Strings whose reports are decoded both ways, at alpha = 0.05."""

    __slots__ = ()

    def run(self, number: int) -> BothWays:
        records, collected = self.collect_reports(number)
        candidates, truth = hashed(collected.candidates, self.params), collected.truth
        counted = decode(collected.counts, self.params, candidates, repeats=ONCE_OF_REPORTS)
        reports = pack([records], self.params)
        found = decode_reports(reports, counted, candidates, reason="measured")
        ours, known = score_decoding(truth, found), ~np.isnan(found.share)
        kept = _at_two_standard_errors(truth, counted)
        return BothWays(
            coverage=ours.interval_coverage,
            coverage_detected=ours.interval_coverage_detected,
            false_share=ours.false_share,
            any_false=float(ours.false_positives > 0),
            found=ours.true_positives,
            found_least_squares=float((counted.detected & (truth > 0)).sum()),
            distance=ours.total_variation,
            distance_least_squares=kept,
            error_to_least_squares=_root_mean_square(found, truth, known)
            / _root_mean_square(counted, truth, known & ~np.isnan(counted.share)),
        )


def _at_two_standard_errors(truth: FloatArray, counted: Decoding) -> float:
    kept: BoolArray = counted.share > _Z_REFERENCE * counted.std_error
    return score(
        truth, DecodedShares(counted.share, counted.low, counted.high, kept)
    ).total_variation


def _root_mean_square(decoding: Decoding, truth: FloatArray, known: BoolArray) -> float:
    return float(np.sqrt(((decoding.share - truth)[known] ** 2).mean()))


def crowded(name: str, noise: str, m: int, shares: FloatArray, absent: int = 20) -> LikelihoodCase:
    """Return a million reports on filters of 8 bits; every tenth string isn't listed."""
    params = RapporParams(8, 2, m, *NOISE[noise])
    return LikelihoodCase.made_up(name, params, 1_000_000, shares, 10, absent)


DISTRIBUTIONS = {
    "uniform": uniform(100),
    "exponential": family_shares("geometric:0.95", 100),
    "gauss": gauss(100),
    "zipf 1": zipf(100),
    "zipf 1.5": family_shares("zipf:1.5", 100),
}
NARROW = RapporParams(32, 2, 16, *NOISE["f 0"])
CLEAR = RapporParams(128, 2, 8, 0.2, 0.1, 0.9)
CASES = (
    *(
        crowded(name, noise, m, shares)
        for name, shares in DISTRIBUTIONS.items()
        for noise in NOISE
        for m in (16, 32, 64, 128)
    ),
    *(crowded("exponential", noise, 32, DISTRIBUTIONS["exponential"], 1_000) for noise in NOISE),
    LikelihoodCase.made_up("zipf 1", PAPER, 200_000, zipf(200), 10, 800),
    LikelihoodCase.made_up("zipf 1", NARROW, 200_000, zipf(100), 10, 200),
    *(
        LikelihoodCase.made_up("none listed", params, 1_000_000, shares, 1, 1_000)
        for params, shares in (
            (RapporParams(8, 2, 16, *NOISE["f .5"]), zipf(40)),
            (RapporParams(8, 2, 64, *NOISE["f 0"]), DISTRIBUTIONS["exponential"]),
        )
    ),
    LikelihoodCase.made_up(
        "all listed", CLEAR, 3_000, family_shares("geometric:0.7", 4), absent=100
    ),
)


def _absent(case: LikelihoodCase) -> int:
    scenario = case.scenario(0)
    return len(scenario.candidates) - len(scenario.listed)


STUDY = Study(
    "The joint likelihood beside least squares",
    "Coverage, errors and detections of the joint likelihood beside those of least squares.",
    lambda: CASES,
    {
        "case": lambda case, _: case.name,
        "k, h, m": lambda case, _: f"{case.params.k}, {case.params.h}, {case.params.m}",
        "f, p, q": lambda case, _: ", ".join(f"{x:g}" for x in case.params[3:6]),
        "absent": lambda case, _: _absent(case),
        **means(*(field.name for field in fields(BothWays))),
    },
    runs=10,
)
