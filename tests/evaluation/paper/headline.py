"""Published numbers beside ours: by formula, and where that says more by simulation.

Formulas are without collisions, for one string at a time. They must agree to the digits that are
given, simulations to within their noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from evaluation.paper.settings import (
    ABSENT,
    PRESENT,
    normal_errors,
    paper_params,
    paper_scenario,
    run_exponential,
)
from hubbub.inference import Correction, filter_ratios
from hubbub.planning import Budget, amplification, common_rates, permanent_known, rare_rate
from hubbub.protocol import RapporParams
from hubbub.simulations import (
    Experiment,
    LongitudinalClients,
    ReportingPlan,
    family_shares,
    run_experiment,
)

_MILLION = 1_000_000  # reports, as in the paper
_TABLE_2 = 186_792
"""Reports in the paper's table 2."""
_CHROME = RapporParams(128, 2, 16, 0.5, 0.25, 0.75)
_ONE_TIME = RapporParams(128, 1, 1, 0.0, 0.5, 0.75)
"""The paper's basic one-time RAPPOR (section 5.1)."""
_COUNTS = ((2, _MILLION, 16, 2806.0), (3, _TABLE_2, 8, 1212.8))
"""Line, reports, cohorts and standard deviation of a count."""
_BINS = ((10_000, 200.0), (100_000, 632.0), (_MILLION, 2000.0))
"""Reports, and standard deviation of an empty bin."""
_TRACKED = ((25, 0.65), (50, 0.99))
"""Reports, and chance that they tell all bits of the permanent response."""
_CLIENTS_TRACKED = 2_000
"""A share of .65 then has a standard error of .01."""
_ROUNDED = 2e-4
"""Of a number that is given to four digits."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One published number beside ours."""

    number: int  # of the source's line; several lines may share one
    source: str
    what: str
    stated: float
    ours: float
    tolerance: float  # how far ours may be from the stated, as a share of it
    way: str  # "formula" or "simulation"
    note: str = ""  # where they differ, why

    @property
    def within(self) -> bool:
        """Whether ours is as close as it must be."""
        return abs(self.ours - self.stated) <= self.tolerance * abs(self.stated)


def formula_lines() -> Iterator[Headline]:
    """Yield all of them, in the order of their numbers."""
    for f, p, report, permanent in (
        (0.5, 0.5, 1.0743, 4.3944),
        (0.75, 0.5, 0.5343, 2.0433),
        (0.5, 0.25, 2.0433, 4.3944),
    ):
        params, source = RapporParams(128, 2, 16, f, p, 0.75), "RAPPOR, theorems 1, 2"
        where = f"h=2, f={f:g}, p={p:g}, q=0.75"
        yield _line(1, source, f"epsilon_report, {where}", report, params.epsilon_report)
        yield _line(1, source, f"epsilon_permanent, {where}", permanent, params.epsilon_permanent)
    for number, reports, m, stated in _COUNTS:
        ours = count_deviation(paper_params(m=m), reports)
        what = f"SD of a count, N={reports:,}, m={m}"
        yield _line(number, f"RAPPOR, table {number - 1}", what, stated, ours)
    z = 4860 / count_deviation(paper_params(m=8), _TABLE_2)
    yield _line(3, "RAPPOR, table 2", "z of a count of 4,860", 4.01, z, 2e-3)
    for reports, stated in _BINS:
        ours = count_deviation(_ONE_TIME, reports)
        what = f"SD of an empty bin, basic one-time, N={reports:,}"
        yield _line(5, "RAPPOR, 5.1", what, stated, ours, 1e-3)
    for reports, stated in ((_MILLION, 93.9), (100 * _MILLION, 938.7)):
        what = f"learnable strings, N={reports:,}, M=1,000,000"
        ours = learnable_strings(_ONE_TIME, reports, _MILLION)
        yield _line(6, "RAPPOR, appendix", what, stated, ours, 1e-3)
    yield from _variances()
    yield from _shuffling()
    up = 0.01 * (1 - _CHROME.p_star) / (_CHROME.q_star - _CHROME.p_star)
    yield _line(10, "manipulation", "points that a target rises, 1% forged", 2.5, 100 * up)
    for reports, stated in _TRACKED:
        what = f"chance that {reports} reports tell all 128 PRR bits"
        yield _line(11, "tracking", what, stated, permanent_known(_CHROME, reports), 5e-3)
    floored, exact = quantised_epsilon(2, 0.45), _CHROME._replace(f=0.45)
    what = "epsilon_permanent, f=0.45"
    yield _line(12, "quantised f", f"{what} floored to 1/128", 5.001, floored)
    yield _line(12, "quantised f", f"{what} exact", 4.947, exact.epsilon_permanent)


def _line(
    number: int, source: str, what: str, stated: float, ours: float, tolerance: float = _ROUNDED
) -> Headline:
    return Headline(number, source, what, stated, float(ours), tolerance, "formula")


def _variances() -> Iterator[Headline]:
    for epsilon, stated in ((0.01, 2.0), (4 * math.log(3), 7.4)):
        ours = symmetric_oue_ratio(2, epsilon)
        what = f"variance over OUE's, h=2, epsilon={epsilon:.2f}"
        yield _line(7, "Wang 2017", what, stated, ours, 0.01)
    budget = Budget(_CHROME.epsilon_permanent, _CHROME.epsilon_report)
    for name, stated, ours in (
        ("L-OSUE, one report", 0.684, longitudinal_optimum(budget)),
        ("symmetric chaining", 0.879, symmetric_chaining(budget)),
    ):
        what = f"N times the variance, {name}"
        yield _line(8, "longitudinal optimum", what, stated, ours, 1e-3)


def _shuffling() -> Iterator[Headline]:
    reports, local, delta = 100_000, 4.0, 1e-6
    p = 1 / (1 + math.exp(local / 2))
    ratios = filter_ratios(RapporParams(128, 1, 16, 0.0, p, 1 - p))
    blanket = amplification.blanket_epsilon(ratios, reports, delta, local)
    what = "central epsilon, n=100,000, epsilon0=4, bound of its own ratios, h=1"
    yield _line(9, "shuffling", what, 0.106, blanket, 0.02)


def simulated_lines(runs: int) -> Iterator[Headline]:
    """Yield all of them, in the order of their numbers, each over so many runs."""
    yield from _simulated_deviations(runs)
    yield from _detections(runs)
    yield from _normal(runs)
    yield from _manipulation(runs)
    yield from _tracking()


def _simulated_deviations(runs: int) -> Iterator[Headline]:
    note = (
        "scatter of the absent strings' estimates; the formula has a string alone, a regression on "
        "200 in m k rows adds up to 1/sqrt(1 - 200 / (m k)) - 1"
    )
    for number, reports, m, stated in _COUNTS:
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
        false_names = f"{false:.2f} false a run"
        yield Headline(
            4, "RAPPOR, 5.2 (simulated anew)", f"strings detected by {name}, of 200", stated, ours,
            0.1 + 0.3 / math.sqrt(runs), "simulation",
            false_names
            if correction is Correction.BONFERRONI
            else f"{false_names}; {note}",
        )  # fmt: skip


def _normal(runs: int) -> Iterator[Headline]:
    """Yield line 5: how far bins of basic one-time RAPPOR scatter."""
    rng = np.random.default_rng(5)
    for reports, stated in _BINS:
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
    chrome = _CHROME._replace(m=64)
    rises = []
    for run in range(runs):
        scenario = paper_scenario(family_shares("zipf:1", 100), run)
        plan = ReportingPlan(scenario.population, chrome, _MILLION)
        target = scenario.rarest()
        outcome = run_experiment(Experiment(scenario, plan, 0.01, target, seed=run))
        place = outcome.strings.index(target)
        rises.append(100 * (outcome.estimates.share[place] - outcome.truth[place]))
    yield Headline(
        10, "manipulation", "points that a target rises, 1% forged", 2.5, float(np.mean(rises)),
        0.05 + 0.25 / math.sqrt(runs), "simulation",
    )  # fmt: skip


def _deviation_tolerance(n: int) -> float:
    return 0.03 + 4 / math.sqrt(2 * n)


def _tracking() -> Iterator[Headline]:
    numbers, rng = np.arange(_CLIENTS_TRACKED), np.random.default_rng(11)
    held = np.zeros(len(numbers), dtype=np.int64)
    clients = LongitudinalClients(("one value",), _CHROME, np.random.SeedSequence(11))
    permanent = np.unpackbits(clients.permanent(numbers, held), axis=1)
    ones = np.zeros(permanent.shape, dtype=np.int64)
    known = {}
    for report in range(1, 51):
        ones += np.unpackbits(clients.report(numbers, held, rng), axis=1)
        guess = 2 * ones + rng.integers(2, size=ones.shape) > report  # a tie is a coin's toss
        known[report] = float((guess == permanent).all(axis=1).mean())
    for reports, stated in _TRACKED:
        what = f"chance that {reports} reports tell all 128 PRR bits"
        yield Headline(11, "tracking", what, stated, known[reports], 0.06, "simulation")


def count_deviation(params: RapporParams, n_reports: float) -> float:
    """Return the standard deviation of an absent string's count (Erlingsson et al. 2014, 5.2)."""
    return math.sqrt(n_reports * _rate_variance(params.p_star, params.q_star) / params.h)


def learnable_strings(params: RapporParams, n_reports: float, candidates: float) -> float:
    """Return how many strings N reports can teach at most (Erlingsson et al. 2014, appendix).

    sqrt(N) (q* - p*) / (z sqrt(p*(1 - p*))), z being the normal quantile of 0.05 / candidates.
    """
    z = -float(special.ndtri(0.05 / candidates))
    return math.sqrt(n_reports / _rate_variance(params.p_star, params.q_star)) / z


def longitudinal_optimum(budget: Budget) -> float:
    """Return N times the variance of the best one-hot noise under both epsilons.

    As L-OSUE (Arcolezi et al. 2022) for one report: q* = 1/2 and p* = 1 / (1 + e^report), or the
    nearest q* that the permanent epsilon allows.
    """
    low, high = common_rates(budget)
    q_star = min(max(0.5, low), high)
    return _rate_variance(rare_rate(budget.report, q_star), q_star)


def symmetric_chaining(budget: Budget) -> float:
    """Return N times the variance of one-hot noise with p* = 1 - q*, at the report's epsilon."""
    p_star = 1 / (1 + math.exp(budget.report / 2))
    return _rate_variance(p_star, 1 - p_star)


def symmetric_oue_ratio(h: int, epsilon: float) -> float:
    """Return how much more RAPPOR with p* = 1 - q* varies than optimal unary encoding.

    sinh^2(eps/2) / (4h sinh^2(eps/4h)): h at eps = 0, and more above.
    """
    return (math.sinh(epsilon / 2) / math.sinh(epsilon / (4 * h))) ** 2 / (4 * h)


def quantised_epsilon(h: int, f: float, steps: int = 128) -> float:
    """Return the permanent epsilon of a client that rounds f down to a multiple of 1/steps."""
    return RapporParams(8, h, 1, math.floor(f * steps) / steps, 0.25, 0.75).epsilon_permanent


def _rate_variance(p_star: float, q_star: float) -> float:
    return p_star * (1 - p_star) / (q_star - p_star) ** 2
