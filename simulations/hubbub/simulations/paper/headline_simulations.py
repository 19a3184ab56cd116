"""Headline numbers that were simulated anew, by the fleet and the decoder."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.protocol.params import RapporParams
from hubbub.simulations.experiments.experiment import Experiment, run_in_memory
from hubbub.simulations.fleet.attacks import Attack, AttackKind
from hubbub.simulations.fleet.longitudinal import LongitudinalFleet
from hubbub.simulations.paper.headline import Headline
from hubbub.simulations.paper.worlds import (
    ABSENT,
    PRESENT,
    normal_errors,
    paper_params,
    paper_world,
    run_exponential,
)
from hubbub.simulations.populations import family_shares

_MILLION = 1_000_000
_TABLE_2 = 186_792
_CLIENTS_TRACKED = 2_000


def simulated_lines(runs: int) -> Iterator[Headline]:
    """Yield all of them, in the order of their numbers, each over so many runs."""
    yield from _count_deviations(runs)
    yield from _detections(runs)
    yield from _normal(runs)
    yield from _manipulation(runs)
    yield from _tracking()


def _count_deviations(runs: int) -> Iterator[Headline]:
    note = (
        "scatter of the absent strings' estimates; the formula has a string alone, a regression on "
        "200 in m k rows adds up to 1/sqrt(1 - 200 / (m k)) - 1"
    )
    for number, reports, m, stated in ((2, _MILLION, 16, 2806.0), (3, _TABLE_2, 8, 1212.8)):
        params = paper_params(m=m)
        done = [run_exponential(params, reports, run) for run in range(runs)]
        errors = np.concatenate([run.count_errors for run in done])
        shared = 1 / math.sqrt(1 - (PRESENT + ABSENT) / (m * params.k)) - 1
        yield Headline(
            number, f"RAPPOR, table {number - 1}", f"SD of a count, N={reports:,}, m={m}", stated,
            math.sqrt(float(np.mean(errors**2))), _deviation_tolerance(len(errors)) + shared,
            "simulation", f"{note}: {shared:.1%}",
        )  # fmt: skip


def _detections(runs: int) -> Iterator[Headline]:
    """Yield line 4: strings detected in the exponential population."""
    found = {
        correction: [
            run_exponential(paper_params(), _MILLION, run, correction) for run in range(runs)
        ]
        for correction in Correction
    }
    note = (
        "the paper's 47 with 2 false can't be Bonferroni's at 0.05, which has a false name in one "
        "run of twenty: without a correction, at 0.05 a string, about 5 false names are expected, "
        "with Benjamini-Hochberg about 2 of 47"
    )
    for correction, stated, name in (
        (Correction.BONFERRONI, 32.2, "Bonferroni"),
        (Correction.BH, 43.5, "Benjamini-Hochberg"),
    ):
        ours = float(
            np.mean([run.true_positives + run.false_positives for run in found[correction]])
        )
        false = float(np.mean([run.false_positives for run in found[correction]]))
        told = f"{false:.2f} false a run"
        yield Headline(
            4, "RAPPOR, 5.2 (simulated anew)", f"strings detected by {name}, of 200", stated, ours,
            0.1 + 0.3 / math.sqrt(runs), "simulation",
            told if correction is Correction.BONFERRONI else f"{told}; {note}",
        )  # fmt: skip


def _normal(runs: int) -> Iterator[Headline]:
    """Yield line 5: how far bins of basic one-time RAPPOR scatter."""
    rng = np.random.default_rng(5)
    for reports, stated in ((10_000, 200.0), (100_000, 632.0), (_MILLION, 2000.0)):
        squares = []
        for _ in range(runs):
            counts, estimates = normal_errors(reports, rng)
            squares.append(float(np.mean((estimates - counts)[counts == 0] ** 2)))
        yield Headline(
            5, "RAPPOR, 5.1", f"SD of an empty bin, basic one-time, N={reports:,}", stated,
            math.sqrt(float(np.mean(squares))), _deviation_tolerance(40 * runs), "simulation",
        )  # fmt: skip


def _manipulation(runs: int) -> Iterator[Headline]:
    """Yield line 10: what forged reports make of their target."""
    attack = Attack(AttackKind.MAXIMAL_GAIN, 0.01)
    rises = []
    for run in range(runs):
        world = paper_world(family_shares("zipf:1", 100), run)
        chrome = RapporParams(128, 2, 64, 0.5, 0.25, 0.75)
        outcome = run_in_memory(Experiment(world, chrome, _MILLION, attack=attack, seed=run), 1)
        rises += [100 * (target.estimate - target.truth) for target in outcome.targets]
    yield Headline(
        10, "manipulation", "points that a target rises, 1% forged", 2.5, float(np.mean(rises)),
        0.05 + 0.25 / math.sqrt(runs), "simulation",
    )  # fmt: skip


def _deviation_tolerance(n: int) -> float:
    """Return 3%, and four standard errors of a standard deviation that n errors estimate."""
    return 0.03 + 4 / math.sqrt(2 * n)


def _tracking() -> Iterator[Headline]:
    params = RapporParams(128, 2, 16, 0.5, 0.25, 0.75)
    clients, rng = np.arange(_CLIENTS_TRACKED), np.random.default_rng(11)
    held = np.zeros(len(clients), dtype=np.int64)
    fleet = LongitudinalFleet(("one value",), params, np.random.SeedSequence(11))
    permanent = np.unpackbits(fleet.permanent(clients, held), axis=1)
    ones = np.zeros(permanent.shape, dtype=np.int64)
    known = {}
    for report in range(1, 51):
        ones += np.unpackbits(fleet.report(clients, held, rng), axis=1)
        guess = 2 * ones + rng.integers(2, size=ones.shape) > report  # a tie is a coin's toss
        known[report] = float((guess == permanent).all(axis=1).mean())
    for reports, stated in ((25, 0.65), (50, 0.99)):
        what = f"chance that {reports} reports tell all 128 PRR bits"
        yield Headline(11, "tracking", what, stated, known[reports], 0.06, "simulation")
