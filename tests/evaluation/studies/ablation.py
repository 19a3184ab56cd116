"""The decoder without each of its mechanisms: what every one of them gains, and where.

A mechanism is left out by putting something simpler in its place for one decoding, of the very
reports that the whole decoder was given; what none of a case's decodings enters is the same
without it, and isn't run. Truth is the collected reports'. The regimes of listed strings are
random, with bits that are drawn, not hashed; google/rappor's cases, the open populations, tables
and categories are those of their own studies, and of the last two truth is the population's. The
tables in docs/understand/statistics.md are of this study.
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
from numpy.random import Generator
from scipy import special

from evaluation.laboratory import Figure, run_trials
from evaluation.measured_table import MeasuredTable
from evaluation.studies import categories, joint, open_populations, rappor_cases, regimes
from evaluation.studies.regimes import ALPHA, completed, distinct, draw_shares, log_uniform, timed
from evaluation.studies.study import OUTPUT, show
from evaluation.tables import score_joint
from evaluation.unlike_populations import HELD_OUT, TUNED
from hubbub.decoder import CohortCounts, Decoding, decode, decode_categories
from hubbub.inference import (
    ONCE_OF_REPORTS,
    Candidates,
    FloatArray,
    HashNull,
    JointDecoding,
    cores,
    decode_joint,
    estimate_bits,
    hashed,
    mapped,
)
from hubbub.inference.categories import shares as category_shares
from hubbub.inference.joint.table import JointEstimates
from hubbub.inference.open_strings.search import Gaps
from hubbub.inference.regression import estimates, search
from hubbub.inference.testing.multiple_testing import ShareInterval
from hubbub.protocol import RapporParams
from hubbub.reporting import progress_bar

WHOLE = "whole"
"""Names the decoder that nothing is left out of."""
# Of a regime, so that a decoding takes seconds at most.
_MOST_POSITIONS, _MOST_ROWS, _MOST_HELD = 1e6, 2**14, 300
_SHAPES_FROM = 10  # strings: of fewer, one has nearly all
_INFERENCE = "hubbub.inference."
_AT_ONCE = 20  # cases, after which the file of results is written again


def _alone(self: search.Search) -> search.SearchResult:
    fit = self._fit_fixed(np.empty(0, dtype=np.int64))
    sums = estimates.candidate_sums(fit, self.candidates)
    log_p = HashNull(
        estimates.bounded_scores(fit.scores, fit.weights, self.params), self.params.h
    ).log_tails(sums.total)
    return replace(self, allowance=search.SEARCHED)._run_proposed(fit, log_p)


def _normal_tails(self: HashNull, totals: FloatArray) -> FloatArray:
    return special.log_ndtr(-self.z_scores(totals))


def _plain(
    share: FloatArray, std_error: FloatArray, *_: Any, **__: Any
) -> tuple[FloatArray, FloatArray]:
    return share - 1.96 * std_error, share + 1.96 * std_error


def _no_gaps(*_: Any) -> Gaps:
    return Gaps(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.bool_), False)


def _nothing(*_: Any, **__: Any) -> None:
    return None


STRINGS: dict[str, Mapping[str, Any]] = {
    "random effects": {
        "regression.search.Search._run_random": lambda self, _fit: _alone(self),
    },
    "random effects of searched lists": {"regression.search._NEGLIGIBLE_PART": math.inf},
    "whole lists": {"regression.search.Search.run": _alone},
    "short lists": {"regression.search.is_short": lambda *_: False},
    "Lasso": {"regression.search.chosen_by_lasso": search.passing},
    "allowance of the search": {"regression.search.SEARCHED": 1.0},
    "bounded scores": {"regression.estimates._CLIP": math.inf},
    "correlated bits": {
        "regression.estimates.correlated_bits": lambda _f, _b, _p, each: np.zeros(each.shape[1])
    },
    "excess variance": {"regression.model.estimate_excess_variance": lambda *_: 0.0},
    "tails over the hash": {
        "testing.hash_null.HashNull.log_tails": _normal_tails,
        "testing.hash_null.HashNull.log_tail": lambda self, total: float(
            _normal_tails(self, np.array([total]))[0]
        ),
    },
    "counting the absent": {
        "regression.search.counted_tests": lambda log_p, _c, n=None, *_, **__: float(
            n or len(log_p)
        )
    },
    "intervals given detection": {"testing.multiple_testing.after_selection": _plain},
}
"""Of listed strings: by name, what is put in whose place, below `hubbub.inference`."""
LIKELIHOOD = "likelihood"
OPEN: dict[str, Mapping[str, Any]] = {
    "families": {"open_strings.decoding._FEWEST_REPORTS": math.inf},
    "gaps": {"open_strings.search._Step.gaps": _no_gaps},
    "far below gaps": {"open_strings.search._look_far_below_each": _nothing},
    "unfamiliar": {"open_strings.search._look_for_the_unfamiliar": _nothing},
    "all beginnings": {"open_strings.search._Step.exhaustive_search": _nothing},
    "survivors' certainty": {
        "open_strings.search._Step._real": lambda _, log_weighted: np.ones(len(log_weighted))
    },
    "survivors' saturation": {
        "open_strings.steps.RetainedPrefixes.worth_of": lambda _, expected: expected
    },
    "survivors reweighted": {
        "open_strings.search._Step._reweighted": lambda self: self.tests.log_weighted
    },
    "screening again": {"open_strings.search._MOST_SCREENINGS": 1},
    "learned letters": {"open_strings.mixture.Mixture.learned": lambda self, *_: self},
}  # fmt: skip
"""Of open strings."""


def _raw_rates(*args: Any) -> category_shares.CategoryEstimates:
    counts, metric = args[:2]
    found = category_shares.estimate_categories(*args)
    if metric.type.width == 1 or metric.response.ones is not None:
        return found
    rate = estimate_bits(counts, metric.params).rate[0, : metric.type.width]
    covariance = category_shares.rate_covariance(found.share, counts.total, metric.params)
    return replace(found, unbiased=rate, covariance=covariance)


def _cut_off(rate: FloatArray, _variance: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(rate, 0) / np.maximum(rate, 0).sum())


def _normal_counts(self: category_shares.PresenceTest) -> FloatArray:
    n, chance = self.n_reports, self.bit.chance
    z = (self.counts - n * chance) / math.sqrt(n * chance * (1 - chance))
    return np.asarray(special.log_ndtr(-z))


def _plain_share(share: FloatArray, std_error: FloatArray) -> ShareInterval:
    return ShareInterval(*_plain(share, std_error))


def _unselected(*_: Any, unselected: Any, **__: Any) -> Any:
    return unselected


def _scaled(table: FloatArray, variance: FloatArray, margins: list[FloatArray]) -> FloatArray:
    del variance
    table = np.maximum(table, 0.0)
    return np.asarray(table * (margins[0].sum() / table.sum()))


CELLS: dict[str, Mapping[str, Any]] = {
    "adding up to one": {"categories.decoding.estimate_categories": _raw_rates},
    "nearest distribution": {
        "categories.shares.nearest_distribution": _cut_off,
        "joint.table.nearest_distribution": _cut_off,
    },
    "exact tails of counts": {"categories.shares.PresenceTest.log_p_values": _normal_counts},
    "intervals near 0 and 1": {
        "categories.shares.share_interval": _plain_share,
        "joint.table.share_interval": _plain_share,
    },
    "detected cells' intervals": {"categories.shares.after_selection": _unselected},
    "cells drawn towards independence": {"joint.decoding.shrunk_cells": JointEstimates.constrained},
    "margins of refit": {"joint.table.fit_margins": _scaled},
    "ends of quotients": {"joint.table._END_STEPS": 1},
}
"""Of categories and tables."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a decoding found, summed over decodings; squares are of errors in standard errors."""

    found: float = 0
    false: float = 0
    present: float = 0
    present_held: float = 0
    detected_held: float = 0
    squares: float = 0
    known: float = 0
    variation: float = 0
    seconds: float = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)))

    @property
    def false_share(self) -> float:
        """False names among the detected; 0 if nothing was detected."""
        return self.false / max(self.found + self.false, 1)

    @property
    def of_present(self) -> tuple[float, float]:
        """Intervals of present strings that hold, and all."""
        return self.present_held, self.present

    @property
    def of_detected(self) -> tuple[float, float]:
        """Intervals of detected strings that hold, and all."""
        return self.detected_held, self.found + self.false


@contextmanager
def without(patches: Mapping[str, Any]) -> Iterator[None]:
    """Put something in the place of names below `hubbub.inference`."""
    with ExitStack() as stack:
        for target, instead in patches.items():
            stack.enter_context(patch(_INFERENCE + target, instead))
        yield


@contextmanager
def entered(mechanisms: Mapping[str, Mapping[str, Any]]) -> Iterator[set[str]]:
    """Collect which mechanisms a decoding enters; constants count as entered."""
    names = set[str]()

    def noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def noted(*args: Any, **kwargs: Any) -> Any:
            names.add(name)
            return original(*args, **kwargs)

        return noted

    of_target: dict[str, list[str]] = {}
    for name, patches in mechanisms.items():
        for target in patches:
            of_target.setdefault(target, []).append(name)
    with ExitStack() as stack:
        for target, whose in of_target.items():
            original = pkgutil.resolve_name(_INFERENCE + target)
            if not callable(original):
                names.update(whose)
                continue
            noted = original
            for name in whose:
                noted = noting(name, noted)
            stack.enter_context(patch(_INFERENCE + target, noted))
        yield names


def tallied(truth: FloatArray, decoding: Decoding, seconds: float) -> Tally:
    """Compare a decoding with the truth, shape (n,); candidates that set the same bits are one."""
    truth, found = distinct(truth, decoding)
    known, present, detected = ~np.isnan(found.share), truth > 0, found.detected
    held = (found.low <= truth) & (truth <= found.high)
    z = ((found.share - truth) / np.maximum(found.std_error, 1e-300))[known]
    constrained = found.constrained_share
    apart = abs(float(constrained.sum() - truth.sum()))
    return Tally(
        found=int((detected & present).sum()),
        false=int((detected & ~present).sum()),
        present=int((known & present).sum()),
        present_held=int((held & known & present).sum()),
        detected_held=int((held & detected).sum()),
        squares=float(z @ z),
        known=int(known.sum()),
        variation=(float(np.abs(constrained - truth).sum()) + apart) / 2,
        seconds=seconds,
    )


def each_without(
    made: Callable[[], tuple[Any, float]],
    scored: Callable[[Any, float], Tally],
    mechanisms: Mapping[str, Mapping[str, Any]],
) -> dict[str, Tally]:
    """Return what the whole decoder finds, and without each mechanism that it enters."""
    with entered(mechanisms) as names:
        tallies = {WHOLE: scored(*made())}
    for name in mechanisms.keys() & names:
        with without(mechanisms[name]):
            tallies[name] = scored(*made())
    return tallies


def listed_without(
    mechanisms: Sequence[str], counts: CohortCounts, params: RapporParams, candidates: Candidates,
    truth: FloatArray,
) -> dict[str, Tally]:  # fmt: skip
    made = partial(decode, counts, params, candidates, alpha=ALPHA, repeats=ONCE_OF_REPORTS)
    chosen = {name: STRINGS[name] for name in mechanisms if name in STRINGS}
    return each_without(lambda: timed(made), partial(tallied, truth), chosen)


@dataclass(frozen=True, slots=True)
class Regime:
    """Listed strings with drawn bits.

    `shares`, shape (v,): of the strings that are held, the listed ones first; then so many absent
    candidates. Twins are pairs of candidates that differ in one cohort.
    """

    name: str
    params: RapporParams
    reports: int
    shares: FloatArray
    listed: int
    absent: int
    twins: bool = False
    mechanisms: tuple[str, ...] = ()

    @property
    def work(self) -> float:
        return float(self.listed + self.absent) * self.params.m

    def collect(self, rng: Generator) -> tuple[CohortCounts, Candidates, FloatArray]:
        """Draw bits, people and coins; return each candidate's share of the reports as well."""
        params, n_held, n = self.params, len(self.shares), self.listed + self.absent
        k, h, m = params.k, params.h, params.m
        positions = rng.integers(k, size=(n_held + self.absent, m, h), dtype=np.int16)
        mine = np.append(np.arange(self.listed), np.arange(n_held, n_held + self.absent))
        if self.twins:
            rng.shuffle(mine)
            first, second = mine[: n // 2], mine[n // 2 : n // 2 * 2]
            own, cohort = positions[second].copy(), rng.integers(m, size=len(second))
            positions[second] = positions[first]
            rows = np.arange(len(second))
            positions[second, cohort] = own[rows, cohort]
        reports = rng.multinomial(self.reports, np.full(m, 1 / m))
        held, ones = np.zeros(n_held, dtype=np.int64), np.zeros((m, k), dtype=np.int64)
        for c, size in enumerate(reports.tolist()):
            of_cohort = rng.multinomial(size, self.shares)
            filters = np.zeros((n_held, k), dtype=np.int64)
            np.put_along_axis(filters, positions[:n_held, c].astype(np.intp), 1, axis=1)
            true = of_cohort @ filters
            held += of_cohort
            ones[c] = rng.binomial(true, params.q_star) + rng.binomial(size - true, params.p_star)
        truth = np.append(held / self.reports, np.zeros(self.absent))[mine]
        candidates = mapped([str(row) for row in mine], positions[mine], params)
        return CohortCounts(reports, ones), candidates, truth

    def run(self, number: int) -> dict[str, Tally]:
        counts, candidates, truth = self.collect(
            np.random.default_rng([59, number, *self.name.encode()])
        )
        return listed_without(self.mechanisms, counts, self.params, candidates, truth)


def draw_regime(number: int, mechanisms: tuple[str, ...] = ()) -> Regime:
    """Return a random regime of listed strings, the same for the same number."""
    rng = np.random.default_rng([59, number])
    k = 8 * int(log_uniform(rng, 1, 65))
    h, m = (
        int(log_uniform(rng, 1, min(8, k // 2) + 1)),
        int(log_uniform(rng, 1, min(512, _MOST_ROWS // k) + 1)),
    )
    f, p, q = (rng.uniform(0, 0.6) * rng.integers(3)) / 2, *np.sort(rng.uniform(0.02, 0.98, 2))
    p, q = (p, max(q, p + 0.1)) if rng.integers(4) else (max(q, p + 0.1), p)
    params = RapporParams(k, h, m, f if f > 1e-6 else 0.0, min(p, 0.99), min(q, 0.99))
    n = min(int(log_uniform(rng, 10, 10_001)), max(10, int(_MOST_POSITIONS / (m * h))))
    most = min(n, _MOST_HELD)
    there = (0, most, int(log_uniform(rng, 1, most + 1)))[min(int(rng.integers(12)), 2)]
    unlisted = float(rng.uniform(0, 0.95) * rng.integers(2)) if there else 1.0
    shares = (1 - unlisted) * _listed_shares(rng, there)
    if unlisted:
        others = draw_shares(rng, int(log_uniform(rng, 10, 301)))
        shares = np.append(shares, unlisted * others)
    reports = int(log_uniform(rng, 300, 1e7))
    twins = not rng.integers(8)
    return Regime(
        f"regime {number}", params, reports, shares / shares.sum(), there, n - there, twins,
        mechanisms,
    )  # fmt: skip


def _listed_shares(rng: Generator, n: int) -> FloatArray:
    if n >= _SHAPES_FROM and rng.integers(8):
        return draw_shares(rng, n)
    shares = np.append(0.99, np.full(max(n - 1, 0), 0.01 / max(n - 1, 1)))[:n]
    return np.asarray(shares / max(shares.sum(), 0.01))


@dataclass(frozen=True, slots=True)
class OfStudy:
    """A case of another study."""

    case: Any
    mechanisms: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.case.name)

    @property
    def work(self) -> float:
        return float(self.case.work)

    def chosen(self, every: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return those of some mechanisms that are to be left out."""
        return {name: every[name] for name in self.mechanisms if name in every}


class Crowded(OfStudy):
    """One to three candidates a row of bits, in at most six cohorts."""

    __slots__ = ()

    def run(self, number: int) -> dict[str, Tally]:
        drawn, params = self.case.collect(number), self.case.params
        candidates = hashed(drawn.candidates, params)
        return listed_without(self.mechanisms, drawn.counts, params, candidates, drawn.truth)


class Rappor(OfStudy):
    """One of google/rappor's cases, decoded as `auto` does."""

    __slots__ = ()

    def run(self, number: int) -> dict[str, Tally]:
        scenario = self.case.scenario(number)
        collected = self.case.collect(scenario, number)
        candidates = hashed(scenario.candidates, self.case.params)
        truth = scenario.candidates_share(collected.holders)

        def made(name: str = "auto") -> tuple[Decoding, float]:
            def work() -> Decoding:
                counted = decode(
                    collected.counts, self.case.params, candidates, repeats=ONCE_OF_REPORTS
                )
                return completed(name, counted, collected.reports, candidates) or counted

            return timed(work)

        scored = partial(tallied, truth)
        tallies = each_without(made, scored, self.chosen(STRINGS))
        if LIKELIHOOD in self.mechanisms:
            tallies[LIKELIHOOD] = scored(*made("counts"))
        return tallies


class Open(OfStudy):
    """A population of open strings, of whose strings nothing is known."""

    __slots__ = ()

    def run(self, number: int) -> dict[str, Tally]:
        people = self.case.people()
        truth = dict(zip(people.values, people.shares.tolist(), strict=True))

        def made() -> Any:
            return self.case.decoded(people, self.case.steps, np.random.default_rng([59, number]))

        def scored(decoding: Decoding, seconds: float) -> Tally:
            rows = decoding.largest_detected()
            shares = np.array([truth.get(decoding.candidates[row], 0.0) for row in rows.tolist()])
            there, low, high = shares > 0, decoding.low[rows], decoding.high[rows]
            held = float(((low <= shares) & (shares <= high) & there).sum())
            right = int(there.sum())
            return Tally(right, len(rows) - right, right, held, held, seconds=seconds)

        return each_without(made, scored, self.chosen(OPEN))


class Cells(OfStudy):
    """A table, or categories; of a table `present` are its conditional shares."""

    __slots__ = ()

    def run(self, number: int) -> dict[str, Tally]:
        rng = np.random.default_rng(number)
        if isinstance(self.case, joint.DrawnTable):
            experiment = self.case.experiment(number)
            drawn, truth = joint.draw_tuples(experiment, rng), experiment.population.shares
            fields = experiment.population.fields
            made: Callable[[], Any] = partial(decode_joint, drawn, experiment.metric, fields)
        else:
            truth = self.case.shares
            made = partial(decode_categories, self.case.draw(rng), self.case.metric)
        scored = partial(_tallied_cells, truth)
        return each_without(lambda: timed(made), scored, self.chosen(CELLS))


def _tallied_cells(truth: FloatArray, found: Any, seconds: float) -> Tally:
    there = truth > 0
    if isinstance(found, JointDecoding):
        cells, score = found.cells, score_joint(found, truth)
        share, std_error, refit, detected = (
            cells.share, cells.std_error, cells.refit, cells.detected,
        )  # fmt: skip
        low, high = cells.low, cells.high
        held_present, present = score.conditionals.held, score.conditionals.intervals
    else:
        share, std_error = found.estimates.unbiased, found.estimates.std_error
        refit, detected, (low, high) = found.estimates.share, found.detected, found.interval
        held_present = int(((low <= truth) & (truth <= high))[there].sum())
        present = int(there.sum())
    held, z = (low <= truth) & (truth <= high), (share - truth) / std_error
    return Tally(
        found=int((detected & there).sum()),
        false=int((detected & ~there).sum()),
        present=present,
        present_held=held_present,
        detected_held=int((held & detected).sum()),
        squares=float(z @ z),
        known=len(z),
        variation=float(np.abs(refit - truth).sum()) / 2,
        seconds=seconds,
    )


def open_cases(mechanisms: tuple[str, ...]) -> list[Open]:
    """Return all populations of a million clients at epsilon 4."""
    return [
        Open(open_populations.OpenPopulation(name, 4.0, 10**6), mechanisms)
        for name in (*TUNED, *HELD_OUT)
    ]


def ablation_table(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> MeasuredTable:
    """Return a table with a line for each part and mechanism, from what `main` writes."""
    headings = ("part", "without", "entered in", "right", "gained by it", "false share",
                "coverage", "given detection", "spread of z", "total variation",
                "CPU s")  # fmt: skip
    rows = []
    for part, cases in results.items():
        trials = [
            {name: Tally(**each) for name, each in run.items()}
            for case in cases
            for run in case["runs"]
        ]
        whole = sum((trial[WHOLE] for trial in trials), Tally())
        for name in dict.fromkeys(name for trial in trials for name in trial):
            each = [trial.get(name, trial[WHOLE]) for trial in trials]
            lost = [trial[WHOLE].found - one.found for trial, one in zip(trials, each, strict=True)]
            figure, n = Figure.of(lost), len(lost)
            of = max(whole.found, 1)
            sums = sum(each, Tally())
            rows.append((
                part, name, f"{sum(name in trial for trial in trials)} of {n}",
                f"{sums.found:,.0f}",
                f"{figure.mean * n / of:+.1%} ± {figure.std_error * n / of:.1%}",
                f"{sums.false_share:.3f}",
                str(covered([one.of_present for one in each])),
                str(covered([one.of_detected for one in each])),
                f"{math.sqrt(sums.squares / max(sums.known, 1)):.2f}",
                f"{sums.variation / n:.4f}", f"{sums.seconds / n:.2f}",
            ))  # fmt: skip
    return MeasuredTable("The decoder without each of its mechanisms", headings, tuple(rows))


def covered(held: Sequence[tuple[float, float]]) -> Figure:
    """Return the share of intervals that hold, of each run's that hold and all."""
    hits, intervals = np.array(held).T
    return Figure.of_ratio((hits / np.maximum(intervals, 1)).tolist(), intervals)


@click.command("ablation")
@click.option("--regimes", "n_regimes", default=200, show_default=True, type=click.IntRange(0))
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="Regime.")
@click.option("--crowded", default=40, show_default=True, type=click.IntRange(0))
@click.option("--rappor/--no-rappor", default=True, help="google/rappor's small cases.")
@click.option("--open/--no-open", "populations", default=True, help="20 open populations.")
@click.option("--cells/--no-cells", "cells", default=True, help="Tables and categories.")
@click.option("--mechanisms", help="Names, with commas between them; else all. 'none' for none.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1), help="Of each.")
@click.option("--workers", type=click.IntRange(1), help="Processes; else one a core.")
@click.option("--results", default="out/ablation.json", show_default=True,
              type=click.Path(dir_okay=False, path_type=Path),
              help="File for all that is found.")  # fmt: skip
@click.option("--print", "again", is_flag=True, help="Print the file's table; run nothing.")
@click.option("--each", is_flag=True, help="A table with rows for each case.")
@OUTPUT
def main(
    n_regimes: int,
    first: int,
    crowded: int,
    rappor: bool,
    populations: bool,
    cells: bool,
    mechanisms: str | None,
    runs: int,
    workers: int | None,
    results: Path,
    again: bool,
    each: bool,
    output: tuple[Path, ...],
) -> None:
    """Decode random regimes, google/rappor's cases, open strings and cells without each mechanism.

    \b
    gained by it names right with the mechanism and not without it, net, with its standard error
    coverage     of present strings' intervals (of tables: of conditional shares), and of the
                 detected's
    spread of z  root mean square of errors over standard errors
    """
    every = (*STRINGS, LIKELIHOOD, *OPEN, *CELLS)
    chosen = tuple(mechanisms.split(",")) if mechanisms else every
    if unknown := set(chosen) - {*every, "none"}:
        raise click.UsageError(f"no such mechanism: {unknown}; there are {', '.join(every)}")
    parts: dict[str, Sequence[Any]] = {
        "regimes": [draw_regime(number, chosen) for number in range(first, first + n_regimes)],
        "crowded": [Crowded(regimes.draw_outnumbered(7, i), chosen) for i in range(crowded)],
        "rappor": [
            Rappor(case, chosen)
            for case in rappor_cases.cases()
            if rappor and case.size not in {"medium", "large"}
        ],
        "open": open_cases(chosen) if populations else [],
        "tables": [Cells(case, chosen) for case in joint.CASES if cells],
        "categories": [Cells(case, chosen) for case in categories.CASES if cells],
    }
    if not again:
        results.parent.mkdir(parents=True, exist_ok=True)
        found: dict[str, list[Any]] = {}
        for part, cases in parts.items():
            with progress_bar(part) as bar:
                for begin in range(0, len(cases), _AT_ONCE):
                    some = cases[begin : begin + _AT_ONCE]
                    scores = run_trials(some, runs, workers or cores())
                    found.setdefault(part, []).extend(
                        {"case": case.name, "runs": [
                            {name: asdict(tally) for name, tally in run.items()} for run in trials]}
                        for case, trials in zip(some, scores, strict=True)
                    )  # fmt: skip
                    results.write_text(json.dumps(found))
                    bar(begin + len(some), len(cases))
    made = json.loads(results.read_text())
    if each:
        made = {case["case"]: [case] for cases in made.values() for case in cases}
    show(ablation_table(made), output)
