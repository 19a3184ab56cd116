"""Subset selection and windows: exact laws of whole reports, and what they reveal.

Reports are drawn by the client's own code from a seeded generator.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from factories import make_params
from hubbub.client.encoder import draw_cells
from hubbub.protocol import EnumType, Subset, Window
from parameters import quick_and_full

LEVEL = 1e-7
RESPONSES = {
    "randomized response": Subset(4, 1, 0.6),
    "sets of two": Subset(5, 2, 0.7),
    "sets of all but one": Subset(4, 3, 0.9),
    "two categories": Subset(2, 1, 0.75),
    "one bit": Window(2, 1, 0.73),
    "window": Window(8, 3, 0.7),
    "window of all but one": Window(5, 4, 0.9),
}
cases = pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)


def inputs(response):
    return range(
        response.cells if isinstance(response, Subset) else 1 + response.cells - response.width
    )


def law(response, own):
    """Return the chance of every report, by the definition."""
    d, w, q = response.cells, response.width, response.chance
    if isinstance(response, Window):
        inside, outside = q / w, (1 - q) / (d - w)
        return {1 << c: inside if own <= c < own + w else outside for c in range(d)}
    held, other = q / math.comb(d - 1, w - 1), (1 - q) / math.comb(d - 1, w)
    sets = itertools.combinations(range(d), w)
    return {sum(1 << c for c in cells): held if own in cells else other for cells in sets}


@cases
@pytest.mark.parametrize("draws", quick_and_full(4_000, 10_000))
def test_reports_follow_their_law_as_a_whole(response, draws):
    """Chi-squared over all possible reports, at 1e-7 for each of at most 6 inputs.

    A chance of .7 that is off by .05 is seen in 4,000 draws, by .03 in 10,000.
    """
    for own in inputs(response):
        stream = np.random.default_rng(own).bytes
        found = Counter(draw_cells(response, own, stream) for _ in range(draws))
        expected = law(response, own)
        assert found.keys() <= expected.keys()
        observed = np.array([found[report] for report in expected])
        chances = np.array(list(expected.values()))
        assert math.isclose(chances.sum(), 1)
        chi_squared = ((observed - draws * chances) ** 2 / (draws * chances)).sum()
        assert stats.chi2.sf(chi_squared, len(chances) - 1) > LEVEL


@cases
def test_epsilon_is_the_largest_log_ratio_of_two_inputs_reports(response):
    laws = [law(response, own) for own in inputs(response)]
    largest = max(
        math.log(one[report] / other[report])
        for one, other in itertools.permutations(laws, 2)
        for report in one
    )
    kind = EnumType(("a", "b"))
    epsilon = response.epsilon_after(kind, make_params(f=0.0), 1)
    assert largest <= epsilon * (1 + 1e-12)
    assert epsilon == pytest.approx(largest, rel=1e-12)
    assert response.epsilon_after(kind, make_params(f=0.0), 3) == pytest.approx(3 * largest)


@cases
def test_a_report_is_never_likelier_than_its_bound(response):
    most = max(max(law(response, own).values()) for own in inputs(response))
    assert math.exp(response.log_chance(make_params(f=0.0))) == pytest.approx(most)


def test_other_categories_are_in_the_set_as_often_as_stated():
    response = Subset(6, 2, 0.6)
    chances = law(response, 0)
    for other in range(1, 6):
        share = sum(chance for report, chance in chances.items() if report >> other & 1)
        assert share == pytest.approx(response.other_chance)
