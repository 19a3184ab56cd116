"""Counts of whole populations of sets and cells: as those of single reports by the real client."""

import numpy as np
import pytest
from scipy import stats

from factories import seeded_stream
from hubbub.client.encoder import draw_cells
from hubbub.protocol import UNARY, Subset, Window
from hubbub.simulations import draw_cell_counts

ALARM = 1e-6


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
