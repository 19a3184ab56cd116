"""How subsets and windows hide one client among others: ratios of all reports, enumerated."""

import itertools
import math

import numpy as np
import pytest

from factories import make_metric
from hubbub.inference import cell_ratios
from hubbub.planning import amplified_epsilon, blanket_delta
from hubbub.protocol import EnumType, NumberType, Subset, Window

RESPONSES = [Subset(5, 2, 0.8), Subset(4, 1, 0.6), Subset(5, 4, 0.9), Window(6, 2, 0.7),
             Window(6, 3, 0.9), Window(6, 4, 0.9)]  # fmt: skip


def laws(response: Subset | Window) -> np.ndarray:
    """Return the chance of every report under every value, one row per value."""
    d, w, q = response.cells, response.width, response.chance
    if isinstance(response, Subset):
        sets = list(itertools.combinations(range(d), w))
        inside = np.array([[value in each for each in sets] for value in range(d)])
    else:
        inside = np.array([[s <= y < s + w for y in range(d)] for s in range(d - w + 1)])
    of_inside = q / inside.sum(axis=1, keepdims=True)
    of_others = (1 - q) / (~inside).sum(axis=1, keepdims=True)
    return np.where(inside, of_inside, of_others)


@pytest.mark.parametrize("response", RESPONSES, ids=repr)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_one_client_alone_is_hidden_as_its_worst_pair_of_values(response, epsilon):
    every = laws(response)
    ratios = cell_ratios(response)
    assert ratios.blanket == pytest.approx(every.min(axis=0).sum())
    for law in (ratios.first, ratios.second):
        assert ratios.chance @ law == pytest.approx(1)
    deltas = [
        np.maximum(one - math.exp(epsilon) * other, 0).sum()
        for one, other in itertools.permutations(every, 2)
    ]
    assert blanket_delta(ratios, 1, epsilon) == pytest.approx(max(deltas), abs=1e-8)


def test_many_clients_hide_one_better_than_it_hides_itself():
    for metric_type, response in (
        (EnumType(("a", "b", "c", "d")), Subset(4, 1, 0.7)),
        (NumberType(0, 60, 8, 4), Window(8, 4, 0.75)),
    ):
        metric = make_metric(metric_type=metric_type, response=response, mode="one-time")
        alone = metric.epsilon_report
        assert amplified_epsilon(metric, 10_000, 1e-6) < alone / 5
