"""Attackers link shuffled days where it is stated that they can, whatever they know of values.

Right and wrong links come in twos and threes, so a share's variance is taken to be twice a
binomial's; 5 standard deviations are then P(false alarm) < 1e-6 a comparison (normal
approximation).
"""

import math

import numpy as np
import pytest

from evaluation.attacks import linking
from evaluation.attacks.linking import LinkedClients
from hubbub.planning import linked_clients
from hubbub.protocol import RapporParams
from significance import BitArray, FloatArray, IntArray

CASES = (
    LinkedClients(RapporParams(128, 2, 40, 0.5, 0.25, 0.75), None, 40 * 12),
    LinkedClients(RapporParams(424, 1, 4, 0.2, 0.0683, 0.5534), None, 4 * 1_000),
    LinkedClients(RapporParams(128, 1, 40, 0.05, 0.02, 0.9), None, 40 * 300),
)


def room(share: float, links: int) -> float:
    return 5 * math.sqrt(2 * share * (1 - share) / links)


@pytest.mark.long
def test_attacks_link_what_is_stated_and_put_whole_weeks_together():
    """Why nobody may rely on shuffling: nearly all seven-day histories of a thousand clients."""
    outcomes = list(linking.attack(quick=True))
    assert [outcome for outcome in outcomes if not outcome.holds] == []
    (weeks,) = [outcome for outcome in outcomes if "seven-day" in outcome.what]
    assert weeks.measured > 0.99


@pytest.mark.parametrize(
    "case",
    [CASES[0], *(pytest.param(case, marks=pytest.mark.long) for case in CASES[1:])],
    ids=lambda case: f"k={case.params.k}",
)
def test_more_than_half_of_the_links_are_right_where_it_is_stated(case, rng):
    assert 1 < linked_clients(case.params, case.width) / case.clients < 10
    days = linking.simulated_days(case, rng)
    assert linking.right_share(days, case.params, rng) > 0.5 + room(0.5, case.clients)


@pytest.mark.long
@pytest.mark.parametrize("shape", ["one value", "two values", "Zipf's law"])
def test_to_know_all_values_and_their_shares_helps_little(shape, rng):
    """The attacker weighs all values by their true shares: the exact likelihood ratio, h = 1."""
    weights = {
        "one value": np.ones(1),
        "two values": np.ones(2) / 2,
        "Zipf's law": 1 / np.arange(1, 2_001),
    }[shape]
    weights = weights / weights.sum()
    for params in (
        RapporParams(424, 1, 20, 0.2, 0.0683, 0.5534),
        RapporParams(128, 1, 20, 0.05, 0.02, 0.9),
        RapporParams(64, 1, 20, 0.2, 0.2, 0.6),
    ):
        clients, right, ignorant = 100 * params.m, 0, 0
        even = np.full(params.k, 1 / params.k)
        for _ in range(params.m):
            places = rng.integers(params.k, size=len(weights))
            held = places[rng.choice(len(weights), size=100, p=weights)]
            first, second = two_days(held, params, rng)
            order = rng.permutation(100)
            shares = np.zeros(params.k)
            np.add.at(shares, places, weights)
            ratios = ratios_of_mixture(first, second[order], shares, params)
            right += int((order[linking.best_links(ratios)] == np.arange(100)).sum())
            ratios = linking.log_ratios(first.astype(np.int64), 1, second[order], even, params)
            ignorant += int((order[linking.best_links(ratios)] == np.arange(100)).sum())
        assert right / clients < ignorant / clients + 0.02 + room(ignorant / clients, clients)


def two_days(held: IntArray, params: RapporParams, rng: np.random.Generator) -> BitArray:
    permanent = np.arange(params.k) == held[:, None]
    permanent ^= rng.random(permanent.shape) < params.f / 2
    rates = np.where(permanent, params.q, params.p)
    return (rng.random((2, *rates.shape)) < rates).astype(np.uint8)


def ratios_of_mixture(
    first: BitArray, second: BitArray, shares: FloatArray, params: RapporParams
) -> FloatArray:
    """Return ln P(both reports, one client) / P(one) P(other), over all places of the one true bit.

    Both likelihoods are relative to noise without a true bit: R for a pair, X for a report.
    """
    none = np.zeros(params.k)
    noise = linking.log_ratios(first.astype(np.int64), 1, second, none, params)
    low, high = params.p_star, params.q_star
    singles = []
    for reports in (first, second):
        factor = np.where(reports == 1, high / low, (1 - high) / (1 - low))
        singles.append(np.log(factor @ shares))
    mixed = np.zeros(noise.shape)
    for a in (0, 1):
        for b in (0, 1):
            chance = [
                sum(
                    weight * (rate if a else 1 - rate) * (rate if b else 1 - rate)
                    for weight, rate in ((one, params.q), (1 - one, params.p))
                )
                for one in (1 - params.f / 2, params.f / 2)
            ]
            mixed += chance[0] / chance[1] * ((first == a) * shares) @ (second == b).T
    return noise + np.log(mixed) - singles[0][:, None] - singles[1]
