"""How soon linked reports show a permanent response, against enumeration and published figures."""

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.planning import permanent_known, reports_to_know, share_of_ones
from hubbub.protocol import RapporParams
from parameters import examples

CHROME = make_params()
RATES = st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 1.0])


def enumerated(params: RapporParams, n: int, prior: float) -> float:
    """Return the probability by trying all series of n reports of a bit."""
    right = {True: 0.0, False: 0.0}
    for series in itertools.product((0, 1), repeat=n):
        chance = {
            bit: math.prod(rate if x else 1 - rate for x in series)
            for bit, rate in ((True, params.q), (False, params.p))
        }
        weighed = {True: prior * chance[True], False: (1 - prior) * chance[False]}
        tie = math.isclose(weighed[True], weighed[False], rel_tol=1e-9)
        for bit in (True, False):
            if tie:
                right[bit] += chance[bit] / 2
            elif weighed[bit] > weighed[not bit]:
                right[bit] += chance[bit]
    of_true = (1 - params.f / 2) * right[True] + params.f / 2 * right[False]
    of_others = params.f / 2 * right[True] + (1 - params.f / 2) * right[False]
    return of_true**params.h * of_others ** (params.k - params.h)


@examples(60)
@given(RATES, RATES, st.integers(1, 7), st.integers(1, 3), st.sampled_from([0.5, 0.23, 0.9]))
def test_probability_is_that_of_all_series_of_reports(p, q, n, h, prior):
    if p == q:
        return
    params = RapporParams(8, h, 1, 0.3, p, q)
    expected = enumerated(params, n, prior)
    assert permanent_known(params, n, prior) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("reports", "probability"), [(25, 0.65), (50, 0.99)])
def test_published_probabilities_are_reproduced(reports, probability):
    assert permanent_known(CHROME, reports) == pytest.approx(probability, abs=0.005)


@examples(40)
@given(RATES, RATES, st.floats(0.05, 0.999))
def test_so_many_reports_are_enough_and_one_less_is_not(p, q, probability):
    if p == q:
        return
    params = RapporParams(32, 2, 1, 0.3, p, q)
    reports, prior = reports_to_know(params, probability), share_of_ones(params)
    assert permanent_known(params, int(reports), prior) >= probability
    assert reports == 1 or permanent_known(params, int(reports) - 1, prior) < probability


def test_an_observer_who_knows_the_parameters_needs_fewer_reports():
    """Nearly all permanent bits are 0 with little permanent noise, and that alone says much."""
    params = RapporParams(128, 2, 64, f=0.05, p=0.4, q=0.6)
    assert share_of_ones(params) == pytest.approx(0.025 + 2 / 128 * 0.95)
    assert reports_to_know(params, 0.5) == 111
    assert permanent_known(params, 158) < 0.5 <= permanent_known(params, 159)
