"""Clients that report again: the same permanent response for the same value, whatever lies between.

tests/statistical compares their distribution with real clients.
"""

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.protocol import bloom_bits
from hubbub.simulations import LongitudinalClients

VALUES = ("alpha", "", "日本語", "x")
SHAPES = [(8, 1), (24, 7), (64, 5), (128, 64), (1024, 3)]


def make_clients(params: RapporParams, seed: int = 1) -> LongitudinalClients:
    return LongitudinalClients(VALUES, params, np.random.SeedSequence(seed))


@pytest.mark.parametrize(("k", "m"), SHAPES)
def test_permanent_response_is_the_same_on_every_day(k, m):
    clients = make_clients(make_params(k=k, m=m))
    numbers = np.arange(50)
    monday = clients.permanent(numbers, np.zeros(50, dtype=np.int64))
    clients.permanent(numbers, np.ones(50, dtype=np.int64))
    assert (clients.permanent(numbers, np.zeros(50, dtype=np.int64)) == monday).all()
    assert monday.shape == (50, k // 8)


def test_values_with_equal_bloom_bits_share_a_permanent_response():
    """With 8 bits and one cohort some of 200 values collide; clients key the memo by the bits."""
    params = make_params(k=8, m=1)
    values = tuple(f"value {i}" for i in range(200))
    clients = LongitudinalClients(values, params, np.random.SeedSequence(1))
    bits = [bloom_bits(value, 0, params) for value in values]
    twin = next(i for i in range(1, 200) if bits[i] == bits[0])
    numbers = np.arange(40)
    first = clients.permanent(numbers, np.zeros(40, dtype=np.int64))
    assert (clients.permanent(numbers, np.full(40, twin)) == first).all()


def test_other_value_client_or_seed_has_another_permanent_response():
    params = make_params(k=128, m=1)
    numbers, held = np.arange(20), np.zeros(20, dtype=np.int64)
    response = make_clients(params).permanent(numbers, held)
    assert (response != make_clients(params).permanent(numbers, held + 1)).any(axis=1).all()
    assert (response != make_clients(params).permanent(numbers + 20, held)).any(axis=1).all()
    assert (response != make_clients(params, seed=2).permanent(numbers, held)).any(axis=1).all()


def test_without_permanent_noise_the_response_is_the_bloom_filter():
    params = make_params(k=24, m=7, f=0.0)
    clients = make_clients(params)
    numbers, held = np.arange(60), np.arange(60) % len(VALUES)
    for cohort, value, row in zip(
        clients.cohorts(numbers), held, clients.permanent(numbers, held), strict=True
    ):
        assert int.from_bytes(row.tobytes(), "little") == bloom_bits(
            VALUES[value], int(cohort), params
        )


def test_reports_of_one_client_differ_though_its_permanent_response_stays():
    clients, rng = make_clients(make_params()), np.random.default_rng(1)
    numbers, held = np.arange(20), np.zeros(20, dtype=np.int64)
    first = clients.report(numbers, held, rng)
    assert (first != clients.report(numbers, held, rng)).any(axis=1).all()


def test_without_instantaneous_noise_reports_are_the_permanent_response():
    params = make_params(k=64, m=4, p=0.0, q=1.0)
    clients, numbers = make_clients(params), np.arange(40)
    held = np.arange(40) % len(VALUES)
    reports = clients.report(numbers, held, np.random.default_rng(1))
    assert (reports == clients.permanent(numbers, held)).all()


@pytest.mark.parametrize("m", [1, 7, 1024])
def test_cohort_is_for_life_and_in_range(m):
    clients = make_clients(make_params(k=8, m=m))
    numbers = np.arange(10_000)
    cohorts = clients.cohorts(numbers)
    assert ((cohorts >= 0) & (cohorts < m)).all()
    assert (clients.cohorts(numbers[::-1])[::-1] == cohorts).all()
