"""The estimated distribution of shares, against sums over all that can be present or absent."""

import itertools

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.regression import sparse_effects as module
from hubbub.inference.regression.sparse_effects import Bells, Effects, sparse_effects

ROWS, N, HELD = 60, 40, 10
ERROR = 0.002


def regression(rng: np.random.Generator, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Gram matrix and sums of shares beside an unknown mass of 10%, with unit-like noise."""
    columns = (rng.random((len(shares), ROWS)) < 0.25).astype(float)
    basis = np.vstack([np.full((1, ROWS), 0.25), columns])
    noise = ERROR * np.sqrt(ROWS / 4) * rng.standard_normal(ROWS)
    weight = 1 / (ERROR**2 * ROWS / 4)
    rates = np.append(0.1, shares) @ basis + noise
    return weight * basis @ basis.T, weight * basis @ rates


def estimates(gram: FloatArray, sums: FloatArray, effects: Effects) -> FloatArray:
    """Return the shares' expectations in the model of normal distributions."""
    precision = gram + np.diag(np.append(0.0, effects.penalties))
    return np.asarray(np.linalg.solve(precision, sums + np.append(0.0, effects.pulls)))[1:]


def test_expectations_are_nearly_those_of_all_subsets(rng, monkeypatch):
    """Ten columns, each absent or of one of two sizes: 3^10 subsets; within a third of an error.

    The mixture's weights are the same in both, as they would be after many lists.
    """
    means, variances = np.array([0.0, 0.01, 0.02]), np.zeros(3)
    monkeypatch.setattr(module, "bells_of", lambda _own: Bells(means, variances))
    monkeypatch.setattr(module, "_WEIGHTINGS", 1)
    shares = np.append([0.02, 0.02, 0.01], np.zeros(7))
    gram, sums = regression(rng, shares)
    effects = sparse_effects(gram, sums, None, 30)
    sizes = np.array(list(itertools.product(range(3), repeat=10)))
    all_shares = means[sizes]
    unknown = (sums[0] - all_shares @ gram[0, 1:]) / gram[0, 0]
    whole = np.column_stack([unknown, all_shares])
    fit = whole @ sums - np.einsum("ij,ij->i", whole @ gram, whole) / 2
    weights = np.array([0.7, 0.1, 0.2])
    chance = np.exp(fit - fit.max()) * weights[sizes].prod(axis=1)
    expected = chance @ all_shares / chance.sum()
    assert np.abs(estimates(gram, sums, effects) - expected).max() < ERROR / 3


def test_absent_shares_are_drawn_to_zero_and_large_ones_left_alone(rng):
    """Half of the squared errors that one variance for all leaves, on average over 20 lists."""
    shares = np.append(np.full(HELD, 0.02), np.zeros(N - HELD))
    squares = np.zeros(2)
    for _ in range(20):
        gram, sums = regression(rng, shares)
        one = Effects(np.full(N, 1 / np.mean(shares**2)), np.zeros(N))
        for which, effects in enumerate([one, sparse_effects(gram, sums, None, 6)]):
            squares[which] += np.mean((estimates(gram, sums, effects) - shares) ** 2)
    assert squares[1] < squares[0] / 2
