"""Intervals of tables from google/rappor's reports hold the truth as often as they say.

Cells of one run share its people and coins, so the run is the unit of every bound.
"""

import numpy as np
import pytest
from scipy import stats

from association_data import AssociationCase, PairPopulation, draw, reports_of, strings_and_flags
from hubbub.inference.association.decoding import decode_association
from hubbub.inference.association.reports import STRING, Variable
from hubbub.inference.params import DecodingParams
from significance import ALARM

RUNS = 24


def two_strings() -> PairPopulation:
    table = 0.7 * np.outer([0.5, 0.3, 0.15, 0.05], [0.6, 0.3, 0.1])
    table[[0, 1, 2], [2, 0, 1]] += 0.1
    both = (Variable("page", STRING), Variable("link", STRING))
    return PairPopulation(both, (3, 3), table)


FLAGS = np.random.default_rng(1).random(20)
ZIPF = 1 / np.arange(1.0, 21.0)
CASES = (
    AssociationCase(
        "a fifth not listed",
        strings_and_flags(np.append(ZIPF, 0.25 * ZIPF.sum()), [*FLAGS, 0.5], 10, [20]),
        DecodingParams(k=8, h=1, m=64, f=0.5, p=0.25, q=0.75),
        150_000,
    ),
    AssociationCase(
        "few reports",
        strings_and_flags(ZIPF[:8], FLAGS[:8], 4, [3]),
        DecodingParams(k=16, h=2, m=64, f=0.25, p=0.25, q=0.75),
        20_000,
    ),
    AssociationCase(
        "two strings", two_strings(), DecodingParams(k=8, h=2, m=64, f=0.0, p=0.2, q=0.8), 50_000
    ),
)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_intervals_cover_the_truth(case):
    """Coverage is within .02 of .95, and mean squared z-scores within .1 of 1.

    Beyond what 24 runs leave uncertain (Student's t); P(false alarm) < 1e-6 by Bonferroni.
    """
    truth = case.population.cells.ravel()
    covered, squares = np.zeros(RUNS), np.zeros(RUNS)
    for seed in range(RUNS):
        data = draw(case.population, case.params, case.reports, np.random.default_rng(seed))
        cells = decode_association(reports_of(data), data.candidates).cells
        covered[seed] = ((cells.low <= truth) & (truth <= cells.high)).mean()
        squares[seed] = (((cells.share - truth) / cells.std_error) ** 2).mean()
    limit = stats.t.isf(ALARM / (4 * len(CASES)), RUNS - 1) / np.sqrt(RUNS)
    assert abs(covered.mean() - 0.95) < 0.02 + limit * covered.std(ddof=1)
    assert abs(squares.mean() - 1) < 0.1 + limit * squares.std(ddof=1)
