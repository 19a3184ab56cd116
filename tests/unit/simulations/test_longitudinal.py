"""Clients that report again: the same permanent response for the same value, whatever lies between.

Their law is tested statistically.
"""

from __future__ import annotations

import numpy as np
import pytest
from hubbub.protocol.bloom import bloom_bits
from hypothesis import given
from hypothesis import strategies as st

from factories import make_params
from hubbub.client import RapporParams
from hubbub.simulations.fleet.longitudinal import LongitudinalFleet

VALUES = ("alpha", "", "日本語", "x")
SHAPES = [(8, 1), (24, 7), (64, 5), (128, 64), (1024, 3)]


def make_fleet(params: RapporParams, seed: int = 1) -> LongitudinalFleet:
    return LongitudinalFleet(VALUES, params, np.random.SeedSequence(seed))


@pytest.mark.parametrize(("k", "m"), SHAPES)
def test_permanent_response_is_the_same_on_every_day(k: int, m: int) -> None:
    fleet = make_fleet(make_params(k=k, m=m))
    clients = np.arange(50)
    monday = fleet.permanent(clients, np.zeros(50, dtype=np.int64))
    fleet.permanent(clients, np.ones(50, dtype=np.int64))
    assert (fleet.permanent(clients, np.zeros(50, dtype=np.int64)) == monday).all()
    assert monday.shape == (50, k // 8)


@given(st.permutations(range(30)), st.integers(1, 29))
def test_permanent_response_does_not_depend_on_who_else_is_asked(
    order: list[int], some: int
) -> None:
    fleet = make_fleet(make_params(k=64, m=8))
    held = np.arange(30) % len(VALUES)
    alone = np.array(order[:some])
    all_of_them = fleet.permanent(np.arange(30), held)
    assert (fleet.permanent(alone, held[alone]) == all_of_them[alone]).all()


def test_values_with_equal_bloom_bits_share_a_permanent_response() -> None:
    """With 8 bits and one cohort some of 200 values collide; clients key the memo by the bits."""
    params = make_params(k=8, m=1)
    values = tuple(f"value {i}" for i in range(200))
    fleet = LongitudinalFleet(values, params, np.random.SeedSequence(1))
    bits = [bloom_bits(value, 0, params) for value in values]
    twin = next(i for i in range(1, 200) if bits[i] == bits[0])
    clients = np.arange(40)
    first = fleet.permanent(clients, np.zeros(40, dtype=np.int64))
    assert (fleet.permanent(clients, np.full(40, twin)) == first).all()


def test_other_value_client_or_seed_has_another_permanent_response() -> None:
    params = make_params(k=128, m=1)
    clients, held = np.arange(20), np.zeros(20, dtype=np.int64)
    response = make_fleet(params).permanent(clients, held)
    assert (response != make_fleet(params).permanent(clients, held + 1)).any(axis=1).all()
    assert (response != make_fleet(params).permanent(clients + 20, held)).any(axis=1).all()
    assert (response != make_fleet(params, seed=2).permanent(clients, held)).any(axis=1).all()


def test_without_permanent_noise_the_response_is_the_bloom_filter() -> None:
    params = make_params(k=24, m=7, f=0.0)
    fleet = make_fleet(params)
    clients, held = np.arange(60), np.arange(60) % len(VALUES)
    for cohort, value, row in zip(
        fleet.cohorts(clients), held, fleet.permanent(clients, held), strict=True
    ):
        assert int.from_bytes(row.tobytes(), "little") == bloom_bits(
            VALUES[value], int(cohort), params
        )


def test_reports_of_one_client_differ_though_its_permanent_response_stays() -> None:
    fleet, rng = make_fleet(make_params()), np.random.default_rng(1)
    clients, held = np.arange(20), np.zeros(20, dtype=np.int64)
    first = fleet.report(clients, held, rng)
    assert (first != fleet.report(clients, held, rng)).any(axis=1).all()


def test_without_instantaneous_noise_reports_are_the_permanent_response() -> None:
    params = make_params(k=64, m=4, p=0.0, q=1.0)
    fleet, clients = make_fleet(params), np.arange(40)
    held = np.arange(40) % len(VALUES)
    reports = fleet.report(clients, held, np.random.default_rng(1))
    assert (reports == fleet.permanent(clients, held)).all()


@pytest.mark.parametrize("m", [1, 7, 1024])
def test_cohort_is_for_life_and_in_range(m: int) -> None:
    fleet = make_fleet(make_params(k=8, m=m))
    clients = np.arange(10_000)
    cohorts = fleet.cohorts(clients)
    assert ((cohorts >= 0) & (cohorts < m)).all()
    assert (fleet.cohorts(clients[::-1])[::-1] == cohorts).all()


def test_cohorts_without_a_share_stay_empty() -> None:
    shares = np.array([0.5, 0.0, 0.5, 0.0])
    fleet = LongitudinalFleet(VALUES, make_params(m=4), np.random.SeedSequence(1), shares)
    assert set(fleet.cohorts(np.arange(5_000)).tolist()) == {0, 2}
