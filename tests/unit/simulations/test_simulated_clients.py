"""Simulated reports can be repeated, and drawn counts are those of reports one by one."""

import numpy as np
import pytest
from scipy import stats

from evaluation.drawn_counts import draw_counts
from factories import make_params, seeded_stream
from hubbub.client import RapporParams
from hubbub.client.encoder import draw_cells
from hubbub.protocol import UNARY, EnumType, Subset, Window, bloom_bits
from hubbub.simulations import SimulatedClients, draw_cell_counts
from significance import ALARM, chi_squared_p

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


def test_drawn_counts_have_the_distribution_of_counted_reports(rng):
    """One bit's count over 4,000 draws, against the binomial; P(false alarm) = 1e-6.

    Everybody holds the first of three categories, so that counts of its bit are binomial.
    """
    params, kinds = make_params(8, 1, 1, f=0.5, p=0.25, q=0.75), EnumType(("a", "b", "c"))
    shares, reports = np.array([1.0, 0.0, 0.0]), 20
    ones = [
        draw_counts(("a", "b", "c"), shares, params, reports, rng, kinds).bits[0, 0]
        for _ in range(4_000)
    ]
    seen = np.bincount(ones, minlength=reports + 1)
    expected = 4_000 * stats.binom.pmf(np.arange(reports + 1), reports, params.q_star)
    usual = expected > 5
    assert usual.sum() > 8
    pooled = np.append(seen[usual], seen[~usual].sum())
    assert chi_squared_p(pooled, np.append(expected[usual], expected[~usual].sum())) > ALARM


def every_report(response, holders):
    """Return the counts of one report of each client, drawn as clients draw."""
    stream, counts = seeded_stream(f"{response}"), np.zeros(response.cells, dtype=np.int64)
    for own, clients in enumerate(holders.tolist()):
        for _ in range(clients):
            report = draw_cells(response, own, stream)
            counts += [report >> cell & 1 for cell in range(response.cells)]
    return counts


@pytest.mark.parametrize("response", [Subset(5, 2, 0.7), Subset(4, 1, 0.6), Window(6, 2, 0.7)],
                         ids=repr)  # fmt: skip
def test_counts_are_distributed_as_those_of_the_clients_own_reports(response):
    """Mahalanobis distance from the mean of 400 populations; seeded, P(false alarm) < 1e-6."""
    rng = np.random.default_rng(3)
    size = response.cells if isinstance(response, Subset) else 5
    holders = np.arange(size) * 100 + 50
    drawn = np.array([draw_cell_counts(response, holders, rng) for _ in range(400)])
    real = every_report(response, holders)
    assert set(drawn.sum(axis=1)) == {real.sum()}
    off, covariance = real - drawn.mean(axis=0), np.cov(drawn.T)
    squared = off @ np.linalg.pinv(covariance, rcond=1e-6) @ off / (1 + 1 / 400)
    degrees = response.cells - 1
    # Hotelling's T^2: the covariance is estimated, too.
    tail = stats.f.sf(squared * (400 - degrees) / (degrees * 399), degrees, 400 - degrees)
    assert tail > ALARM


def test_every_set_has_its_size_even_where_nearly_all_cells_are_in_it():
    rng, response = np.random.default_rng(4), Subset(6, 5, 0.9)
    counts = draw_cell_counts(response, np.array([1000, 0, 0, 0, 0, 1]), rng)
    assert counts.sum() == 5 * 1001
    assert counts.max() <= 1001


def test_bits_with_noise_of_their_own_are_drawn_elsewhere():
    with pytest.raises(TypeError, match="draws whole reports"):
        draw_cell_counts(UNARY, np.array([1]), np.random.default_rng(0))
