"""Subset selection: the covariance of its bits is that of all sets, enumerated."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import FloatArray, SubsetNoise

SMALL = [(d, w) for d in range(2, 7) for w in range(1, d)]


def all_sets(d: int, w: int, q: float, own: int) -> list[tuple[FloatArray, float]]:
    """Return every report of a client, as bits, and its chance, by the response's definition."""
    found = []
    for chosen in itertools.combinations(range(d), w):
        with_own = own in chosen
        alike = sum(own in each for each in itertools.combinations(range(d), w))
        if not with_own:
            alike = len(list(itertools.combinations(range(d), w))) - alike
        bits = np.isin(np.arange(d), chosen).astype(float)
        found.append((bits, (q if with_own else 1 - q) / alike))
    return found


def enumerated(d: int, w: int, q: float, own: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the covariance of one report's bits."""
    sets = all_sets(d, w, q, own)
    assert sum(chance for _, chance in sets) == pytest.approx(1.0, abs=1e-12)
    bits, chances = np.array([bits for bits, _ in sets]), np.array([chance for _, chance in sets])
    mean, second = chances @ bits, (chances[:, None] * bits).T @ bits
    return mean, second - np.outer(mean, mean)


def shares_of(d: int) -> FloatArray:
    shares = np.arange(1.0, d + 1) ** 2
    return shares / shares.sum()


@pytest.mark.parametrize(("d", "w"), SMALL)
@pytest.mark.parametrize("q", [0.13, 0.63, 0.95])
def test_the_rates_covariance_is_that_of_all_sets_of_all_clients(d, w, q):
    noise = SubsetNoise.of(d, w, q)
    shares, slope = shares_of(d), noise.own - noise.other
    expected = np.zeros((d, d))
    for own in range(d):
        mean, covariance = enumerated(d, w, q, own)
        np.testing.assert_allclose(mean, np.where(np.arange(d) == own, q, noise.other), atol=1e-12)
        expected += shares[own] * covariance / slope**2
    np.testing.assert_allclose(noise.covariance(shares, 7), expected / 7, atol=1e-10)


@given(
    st.sampled_from([each for each in SMALL if each[1] <= each[0] // 2]),
    st.floats(0.55, 0.94),
    st.integers(0, 2**32 - 1),
)
def test_errors_of_shares_add_up_to_0_and_differences_are_as_of_independent_rates(size, q, seed):
    noise, rng = SubsetNoise.of(size[0], size[1], q), np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(size[0], 0.5))
    covariance = noise.covariance(shares, 1)
    scale = np.abs(covariance).max()
    np.testing.assert_allclose(covariance.sum(axis=0), 0, atol=1e-9 * scale)
    assert np.linalg.eigvalsh(covariance).min() >= -1e-9 * scale
    weights = rng.normal(size=size[0])
    weights -= weights.mean()
    alone = weights**2 @ noise.variance(shares, 1)
    assert alone == pytest.approx(weights @ covariance @ weights, rel=1e-9, abs=1e-12 * scale)


def test_size_1_is_generalized_randomized_response():
    noise = SubsetNoise.of(4, 1, 0.7)
    assert noise.other == pytest.approx(0.1)
    assert (noise.own_and_other, noise.two_others) == (0, 0)


@pytest.mark.parametrize("q", [0.97, 0.999, 0.999999])
def test_weights_stay_above_0_where_a_set_of_half_of_all_nearly_always_holds_the_own(q):
    """Such sets are far too large for their epsilon; only then are weights made larger."""
    noise, shares = SubsetNoise.of(6, 3, q), np.array([1.0, 0, 0, 0, 0, 0])
    assert noise.variance(shares, 1).min() > 0
    weights = np.array([1.0, -1.0, 0, 0, 0, 0])
    exact = weights @ noise.covariance(shares, 1) @ weights
    assert weights**2 @ noise.variance(shares, 1) >= exact * (1 - 1e-9)
