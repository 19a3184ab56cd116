"""The convex solver, its densities and sums over reports: right, certified, the same anywhere."""

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    DOUBLE,
    SINGLE,
    FloatArray,
    PositionArray,
    ReportMixture,
    densities,
    distinct_positions,
    maximise,
    ratio_rows,
    unknown_density,
)
from unit.decoder.packed import every_report, every_tuple, likelihood_ratio, members_of, reports_of

CROWDED = make_params(k=8, h=2, m=4, f=0.3, p=0.2, q=0.8)
WIDE = make_params(k=32, h=2, m=3, f=0.3, p=0.2, q=0.8)
HELD = {"alpha": 6000, "beta": 3000, "gamma": 1000}
STRINGS = [*HELD, "delta", "epsilon"]


def mixture_of(params: RapporParams) -> ReportMixture:
    return ReportMixture(reports_of(HELD, params), members_of(STRINGS, params))


def all_at_once(mixture: ReportMixture) -> tuple[FloatArray, FloatArray]:
    """Return L at all rows, shape (1 + a, n), and the rows' weights."""
    parts, weights = [], []
    for block in mixture.reports.blocks(10**9):
        rows = ratio_rows(block.bits, mixture.reports.params)
        unknown = unknown_density(block.bits, mixture.reports.params)
        parts.append(np.vstack([unknown, densities(rows, mixture.members[:, block.cohort])]))
        weights.append(block.weights)
    return np.hstack(parts), np.concatenate(weights)


@pytest.mark.parametrize("params", [CROWDED, WIDE], ids=["grouped", "mostly once"])
def test_evaluation_is_what_the_formulas_say(params):
    mixture = mixture_of(params)
    shares = np.array([0.2, 0.3, 0.2, 0.1, 0.15, 0.05])
    density, weights = all_at_once(mixture)
    mixed = shares @ density
    at = mixture.evaluate(shares)
    assert weights.sum() == sum(HELD.values())
    assert at.value == pytest.approx(weights @ np.log(mixed), rel=1e-12)
    np.testing.assert_allclose(at.gradient, density @ (weights / mixed), rtol=1e-11)
    expected = (density * (weights / mixed**2)) @ density.T
    np.testing.assert_allclose(at.information, expected, rtol=1e-11)


@pytest.mark.parametrize("params", [CROWDED, WIDE], ids=["grouped", "mostly once"])
def test_sums_are_the_same_to_the_bit_on_any_number_of_threads(params, monkeypatch):
    shares = np.full(1 + len(STRINGS), 1 / (1 + len(STRINGS)))
    first = mixture_of(params).evaluate(shares)
    monkeypatch.setattr("hubbub.inference.likelihood.mixture.cores", lambda: 5)
    second = mixture_of(params).evaluate(shares)
    assert first.value == second.value
    np.testing.assert_array_equal(first.gradient, second.gradient)
    np.testing.assert_array_equal(first.information, second.information)


@pytest.mark.parametrize("params", [CROWDED, WIDE], ids=["grouped", "mostly once"])
def test_most_likely_shares_are_close_to_the_truth_and_certified(params):
    """The truth is what these clients hold; standard errors are at most 0.03."""
    mixture = mixture_of(params)
    start = np.full(1 + len(STRINGS), 1.0)
    gaps: list[float] = []
    found = maximise(
        mixture.evaluate, mixture.reports.total, start, tolerance=1e-6, progress=gaps.append
    )
    assert found.shares.min() >= 0
    assert found.shares.sum() == pytest.approx(1)
    assert found.gap <= 1e-6
    assert len(gaps) <= 12
    np.testing.assert_allclose(found.shares[1:], [0.6, 0.3, 0.1, 0, 0], atol=0.1)


def test_gap_bounds_the_log_likelihood_that_is_missing(rng):
    """At 100 random shares, some of them 0, and close to the maximum, too."""
    mixture = mixture_of(CROWDED)
    total = mixture.reports.total
    best = maximise(mixture.evaluate, total, np.ones(6), tolerance=1e-9)
    for distance in np.geomspace(1, 1e-5, 100):
        drawn = np.maximum(rng.dirichlet(np.full(6, 0.3)) - 0.01, 0)
        shares = (1 - distance) * best.shares + distance * drawn / drawn.sum()
        at = mixture.evaluate(shares)
        missing = best.at.value - at.value
        assert -1e-6 <= missing <= float(at.gradient.max()) - total + 1e-6


def test_moved_scores_are_sums_over_reports():
    """Of two components: one to first order, one exactly."""
    mixture = mixture_of(WIDE)
    shares = np.array([0.2, 0.3, 0.2, 0.1, 0.15, 0.05])
    moves = 0.01 * np.random.default_rng(1).normal(size=(6, 3))
    found = mixture.moved(shares, moves, np.array([1, 2]), np.array([False, True]))
    density, _ = all_at_once(mixture)
    ratio, change = density / (shares @ density), (moves.T @ density) / (shares @ density)
    np.testing.assert_allclose(found.score.sum(0), (ratio[[1, 2]] - 1).sum(1), atol=1e-7)
    np.testing.assert_allclose(found.variance.sum(0), (ratio[[1, 2]] ** 2 - 1).sum(1), atol=1e-7)
    factors = -change[0], -change[1], -change[0], 1 / (1 + change[2]) - 1
    expected = [(ratio[c] * f).sum() for c, f in zip((1, 1, 2, 2), factors, strict=True)]
    np.testing.assert_allclose(found.score_change.sum(0).ravel(), expected, atol=1e-7)
    factors = -2 * change[0], -2 * change[1], -2 * change[0], (1 + change[2]) ** -2 - 1
    expected = [(ratio[c] ** 2 * f).sum() for c, f in zip((1, 1, 2, 2), factors, strict=True)]
    np.testing.assert_allclose(found.variance_change.sum(0).ravel(), expected, atol=1e-7)


def test_other_strings_scores_move_as_their_crossings_say():
    """A component among the others moves, to first order, as it does as a component."""
    mixture = mixture_of(WIDE)
    shares = np.array([0.2, 0.3, 0.2, 0.1, 0.15, 0.05])
    moves = 0.01 * np.random.default_rng(1).normal(size=(6, 2))
    own = mixture.moved(shares, moves, np.array([4]), np.array([False]))
    other = mixture.crossings(shares, mixture.members[3:4]).moved(moves)
    for a, b in zip(own, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_many_reports_are_summed_in_single_precision_with_the_same_certificate():
    """150,000 reports: value and gradient to 1e-12, the information to 1e-6."""
    params = make_params(k=24, h=2, m=2, f=0.3, p=0.2, q=0.8)
    many = reports_of({name: 15 * count for name, count in HELD.items()}, params)
    mixture = ReportMixture(many, members_of(STRINGS, params))
    assert (mixture.precision, mixture_of(params).precision) == (SINGLE, DOUBLE)
    shares = np.array([0.2, 0.3, 0.2, 0.1, 0.15, 0.05])
    density, weights = all_at_once(mixture)
    mixed, at = shares @ density, mixture.evaluate(shares)
    assert at.value == pytest.approx(weights @ np.log(mixed), rel=1e-12)
    np.testing.assert_allclose(at.gradient, density @ (weights / mixed), rtol=1e-12)
    expected = (density * (weights / mixed**2)) @ density.T
    np.testing.assert_allclose(at.information, expected, rtol=1e-6)
    overlaps = mixture.overlaps(shares, mixture.members)
    np.testing.assert_allclose(overlaps.shared, expected[1:], rtol=1e-6)
    found = maximise(mixture.evaluate, mixture.reports.total, np.ones(6))
    assert found.gap <= 1e-3
    fitted, weight = all_at_once(mixture)[0], found.shares
    assert (fitted / (weight @ fitted)).sum(axis=1).max() - many.total <= 2e-3


TINY = tuple(make_params(k=8, h=h, m=2, f=0.3, p=0.2, q=0.7) for h in (1, 2, 3))


def positions_of(*strings: tuple[int, ...]) -> PositionArray:
    return np.array(strings, dtype=np.int16)


@pytest.mark.parametrize("params", TINY, ids=lambda params: f"{params.h} hashes")
def test_density_is_the_ratio_of_the_reports_probabilities(params):
    """All 256 reports, strings with and without repeated positions."""
    bits = every_report(params)
    strings = [(3,) * params.h, tuple(range(params.h)), (7, 2, 2, 5)[: params.h]]
    found = densities(ratio_rows(bits, params), distinct_positions(positions_of(*strings), params))
    for density, string in zip(found, strings, strict=True):
        np.testing.assert_allclose(density, likelihood_ratio(bits, string, params), rtol=1e-12)


@pytest.mark.parametrize("params", TINY, ids=lambda params: f"{params.h} hashes")
def test_unknown_strings_density_is_the_mean_over_all_strings(params):
    bits = every_report(params)
    mean = np.mean([likelihood_ratio(bits, string, params) for string in every_tuple(params)], 0)
    np.testing.assert_allclose(unknown_density(bits, params), mean, rtol=1e-12)
