"""Simulated reports have the right shape and can be repeated; tests/statistical has the rest."""

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.protocol import bloom_bits
from hubbub.simulations import SimulatedClients

VALUES = ("alpha", "", "日本語")


def reports_of(held: list[int], params: RapporParams, seed: int = 1) -> tuple[list[int], list[int]]:
    """Return cohorts and bits, the latter as integers whose bit j is bit j of the filter."""
    cohorts, bits = SimulatedClients(VALUES, params, np.random.default_rng(seed)).report(
        np.array(held)
    )
    return cohorts.tolist(), [int.from_bytes(row.tobytes(), "little") for row in bits]


@pytest.mark.parametrize(("p", "q"), [(2**-60, 1 - 2**-53), (1 - 2**-53, 2**-60)])
def test_without_noise_a_report_is_the_clients_filter(p, q):
    """Chance of even one of the 38,400 bits turning over: below 5e-12."""
    params = make_params(k=128, m=4, f=0.0, p=p, q=q)
    held = [i % 3 for i in range(300)]
    cohorts, bits = reports_of(held, params)
    filters = [
        bloom_bits(VALUES[i], cohort, params) for i, cohort in zip(held, cohorts, strict=True)
    ]
    full = 2**params.k - 1
    assert bits == (filters if p < q else [full ^ filter_bits for filter_bits in filters])


def test_clients_who_report_again_draw_again():
    clients = SimulatedClients(VALUES, make_params(), np.random.default_rng(1))
    first, second = clients.report(np.zeros(50, np.int64)), clients.report(np.zeros(50, np.int64))
    assert (first[0] != second[0]).any()
    assert (first[1] != second[1]).any()
