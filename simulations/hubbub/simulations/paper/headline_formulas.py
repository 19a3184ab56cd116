"""Headline numbers that follow from formulas: epsilons, deviations, variances, amplification."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hubbub.collector.poisoning.set_bits import forgery_shift
from hubbub.decoder.planning import noise as planning_noise
from hubbub.decoder.privacy import amplification
from hubbub.decoder.privacy.tracking import permanent_known
from hubbub.protocol.params import RapporParams
from hubbub.simulations.paper.headline import Headline
from hubbub.simulations.paper.worlds import paper_params

_MILLION = 1_000_000
_TABLE_2 = 186_792
_CHROME = RapporParams(128, 2, 16, 0.5, 0.25, 0.75)
_ONE_TIME = RapporParams(128, 1, 1, 0.0, 0.5, 0.75)
_ROUNDED = 2e-4
"""Of a number that is given to four digits."""


def formula_lines() -> Iterator[Headline]:
    """Yield all of them, in the order of their numbers."""
    yield from _epsilons()
    yield from _count_deviations()
    yield from _learnable()
    yield from _variances()
    yield from _shuffling()
    yield from _attackers()
    yield from _quantised()


def _line(
    number: int, source: str, what: str, stated: float, ours: float, tolerance: float = _ROUNDED
) -> Headline:
    return Headline(number, source, what, stated, float(ours), tolerance, "formula")


def _epsilons() -> Iterator[Headline]:
    source = "RAPPOR, theorems 1, 2"
    for f, p, report, permanent in (
        (0.5, 0.5, 1.0743, 4.3944),
        (0.75, 0.5, 0.5343, 2.0433),
        (0.5, 0.25, 2.0433, 4.3944),
    ):
        params = RapporParams(128, 2, 16, f, p, 0.75)
        where = f"h=2, f={f:g}, p={p:g}, q=0.75"
        yield _line(1, source, f"epsilon_report, {where}", report, params.epsilon_report)
        yield _line(1, source, f"epsilon_permanent, {where}", permanent, params.epsilon_permanent)


def _count_deviations() -> Iterator[Headline]:
    for number, reports, m, stated in ((2, _MILLION, 16, 2806.0), (3, _TABLE_2, 8, 1212.8)):
        ours = planning_noise.count_deviation(paper_params(m=m), reports)
        what = f"SD of a count, N={reports:,}, m={m}"
        yield _line(number, f"RAPPOR, table {number - 1}", what, stated, ours)
    z = 4860 / planning_noise.count_deviation(paper_params(m=8), _TABLE_2)
    yield _line(3, "RAPPOR, table 2", "z of a count of 4,860", 4.01, z, 2e-3)
    for reports, stated in ((10_000, 200.0), (100_000, 632.0), (_MILLION, 2000.0)):
        ours = planning_noise.count_deviation(_ONE_TIME, reports)
        what = f"SD of an empty bin, basic one-time, N={reports:,}"
        yield _line(5, "RAPPOR, 5.1", what, stated, ours, 1e-3)


def _learnable() -> Iterator[Headline]:
    for reports, stated in ((_MILLION, 93.9), (100 * _MILLION, 938.7)):
        ours = planning_noise.learnable_strings(_ONE_TIME, reports, _MILLION)
        what = f"learnable strings, N={reports:,}, M=1,000,000"
        yield _line(6, "RAPPOR, appendix", what, stated, ours, 1e-3)


def _variances() -> Iterator[Headline]:
    for epsilon, stated in ((0.01, 2.0), (4 * math.log(3), 7.4)):
        ours = planning_noise.symmetric_oue_ratio(2, epsilon)
        what = f"variance over OUE's, h=2, epsilon={epsilon:.2f}"
        yield _line(7, "Wang 2017", what, stated, ours, 0.01)
    budget = planning_noise.Budget(_CHROME.epsilon_permanent, _CHROME.epsilon_report)
    for name, stated, ours in (
        ("L-OSUE", 0.684, planning_noise.longitudinal_optimum(budget)),
        ("symmetric chaining", 0.879, planning_noise.symmetric_chaining(budget)),
    ):
        what = f"N times the variance, {name}"
        yield _line(8, "longitudinal optimum", what, stated, ours, 1e-3)


def _shuffling() -> Iterator[Headline]:
    reports, local, delta = 100_000, 4.0, 1e-6
    p = 1 / (1 + math.exp(local / 2))
    ratios = amplification.filter_ratios(RapporParams(128, 1, 16, 0.0, p, 1 - p))
    clones = amplification.smallest_epsilon(
        lambda epsilon: amplification.clone_delta(epsilon, local, reports), delta, local
    )
    closed = amplification.closed_form(local, reports, delta)
    blanket = amplification.blanket_epsilon(ratios, reports, delta, local)
    for name, stated, ours, tolerance in (
        ("closed form", 0.538, closed, 1e-3),
        ("numerical bound", 0.173, clones, 0.02),
        ("bound of its own ratios, h=1", 0.106, blanket, 0.02),
    ):
        what = f"central epsilon, n=100,000, epsilon0=4, {name}"
        yield _line(9, "shuffling", what, stated, ours, tolerance)


def _attackers() -> Iterator[Headline]:
    _, up = forgery_shift(_CHROME, 0.01)
    yield _line(10, "manipulation", "points that a target rises, 1% forged", 2.5, 100 * up)
    for reports, stated in ((25, 0.65), (50, 0.99)):
        what = f"chance that {reports} reports tell all 128 PRR bits"
        yield _line(11, "tracking", what, stated, permanent_known(_CHROME, reports), 5e-3)


def _quantised() -> Iterator[Headline]:
    exact = RapporParams(128, 2, 16, 0.45, 0.25, 0.75).epsilon_permanent
    for name, stated, ours in (
        ("floored to 1/128", 5.001, planning_noise.quantised_epsilon(2, 0.45)),
        ("exact", 4.947, exact),
    ):
        yield _line(12, "quantised f", f"epsilon_permanent, f=0.45 {name}", stated, ours)
