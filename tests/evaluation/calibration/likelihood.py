"""The joint likelihood beside least squares: `python -m evaluation.calibration.likelihood`.

Both decode the same reports of the same made-up people. Least squares is also scored under the rule
"above two standard errors", as google/rappor's decoder keeps strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import click
import numpy as np
from rich import box
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from evaluation.calibration.cases import PAPER, synthetic_case, uniform, zipf
from evaluation.calibration.table import mean_and_error
from evaluation.calibration.trials import Case, collect_reports
from hubbub.decoder import Decoding, decode
from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.candidates import hashed
from hubbub.inference.likelihood.decoding import decode_reports
from hubbub.inference.packed import pack
from hubbub.protocol.params import RapporParams
from hubbub.reporting.formats.terminal import stdout_console
from hubbub.simulations.populations import family_shares

_Z_REFERENCE = 2.0
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
class Figures:
    """One run of both; nan where there is nothing to take the mean of.

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


def measure(truth: FloatArray, counted: Decoding, found: Decoding) -> Figures:
    """Compare both decodings with the truth."""
    known = ~np.isnan(found.share)
    covered = (found.low <= truth) & (truth <= found.high)
    kept = counted.share > _Z_REFERENCE * counted.std_error
    false = found.detected & (truth == 0)
    return Figures(
        coverage=float(covered[known].mean()),
        coverage_detected=float(covered[found.detected].mean()) if found.detected.any() else np.nan,
        false_share=float(false.sum()) / max(int(found.detected.sum()), 1),
        any_false=float(false.any()),
        found=float((found.detected & (truth > 0)).sum()),
        found_least_squares=float((counted.detected & (truth > 0)).sum()),
        distance=_distance(truth, found.constrained_share, found.detected),
        distance_least_squares=_distance(truth, counted.share, kept),
        error_to_least_squares=_root_mean_square((found.share - truth)[known])
        / _root_mean_square((counted.share - truth)[known & ~np.isnan(counted.share)]),
    )


def run(case: Case, seeds: Sequence[int]) -> list[Figures]:
    """Decode the reports of some seeds by both ways, at alpha = 0.05."""
    figures = []
    for seed in seeds:
        records, collected = collect_reports(case, seed)
        candidates = hashed(collected.candidates, case.params)
        counted = decode(collected.counts, case.params, candidates)
        reports = pack([records], case.params)
        found = decode_reports(reports, counted, candidates, reason="measured")
        figures.append(measure(collected.truth, counted, found))
    return figures


def crowded(name: str, noise: str, m: int, shares: FloatArray, absent: int = 20) -> Case:
    """Return a million reports on filters of 8 bits; every tenth string isn't listed."""
    params = RapporParams(8, 2, m, *NOISE[noise])
    return synthetic_case(name, params, 1_000_000, shares, 10, absent)


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
    synthetic_case("zipf 1", PAPER, 200_000, zipf(200), 10, 800),
    synthetic_case("zipf 1", NARROW, 200_000, zipf(100), 10, 200),
    *(
        synthetic_case("none listed", params, 1_000_000, shares, 1, 1_000)
        for params, shares in (
            (RapporParams(8, 2, 16, *NOISE["f .5"]), zipf(40)),
            (RapporParams(8, 2, 64, *NOISE["f 0"]), DISTRIBUTIONS["exponential"]),
        )
    ),
    synthetic_case("all listed", CLEAR, 3_000, family_shares("geometric:0.7", 4), absent=100),
)


def _distance(truth: FloatArray, estimate: FloatArray, detected: BoolArray) -> float:
    errors = estimate[detected] - truth[detected]
    return float(np.abs(errors).sum() + abs(errors.sum())) / 2


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt((values**2).mean()))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(2), help="Runs a case.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="Case.")
@click.option("--every", default=1, show_default=True, type=click.IntRange(1), help="Fewer cases.")
def main(seeds: int, first: int, every: int) -> None:
    """Print coverage, errors and detections of the joint likelihood beside least squares."""
    table = Table(box=box.MARKDOWN)
    for heading in ("case", "k, h, m", "f, p, q", "absent", *(f.name for f in fields(Figures))):
        table.add_column(heading.replace("_", " "), justify="right")
    with threadpool_limits(1):
        for case in CASES[first::every]:
            p, scenario = case.params, case.scenario(0)
            figures = run(case, range(seeds))
            cells = [mean_and_error([getattr(x, f.name) for x in figures]) for f in fields(Figures)]
            table.add_row(
                case.name,
                f"{p.k}, {p.h}, {p.m}",
                f"{p.f:g}, {p.p:g}, {p.q:g}",
                str(len(scenario.candidates) - len(scenario.listed)),
                *cells,
            )
    stdout_console(280).print(table)


if __name__ == "__main__":
    main(prog_name="evaluation.calibration.likelihood")
