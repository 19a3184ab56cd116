"""Plans for joint metrics: the errors' laws, and bits or hashes."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from hubbub.inference import FloatArray, noise_variance
from hubbub.planning import Budget, cells_error, detection_limit, plan, table_goal
from hubbub.protocol import RapporParams
from parameters import examples

ONE_TIME, LIFELONG = Budget(math.inf, 4.0), Budget(6.0, 3.0)
SMALL = table_goal((6, 4))


def noisy(k: int, f: float = 0.0, p: float = 0.018, q: float = 0.5) -> RapporParams:
    return RapporParams(k, 1, 1, f, p, q)


def parameters() -> st.SearchStrategy[RapporParams]:
    """Noise of all kinds, also such that ones are rarer where they are true."""
    rates = st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
    far = rates.filter(lambda pq: abs(pq[0] - pq[1]) > 0.05)
    return st.builds(lambda f, pq: noisy(4096, f, *pq), st.sampled_from([0, 0.1, 0.5]), far)


@st.composite
def tables(draw: st.DrawFn) -> FloatArray:
    """Tables of two or three fields that add up to 1."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=2, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.dirichlet(np.full(math.prod(sizes), 0.5)).reshape(sizes)


def covariance_of(table: FloatArray, params: RapporParams) -> FloatArray:
    """Return the covariance of all cells, times N, cell by cell."""
    shares = table.ravel()
    noise = noise_variance(shares, 1, params)
    sampling = np.diag(shares) - np.outer(shares, shares)
    return np.asarray(np.diag(noise) + sampling - np.outer(noise, noise) / noise.sum())


@examples(50)
@given(tables(), parameters())
def test_errors_of_sums_are_those_of_the_whole_covariance(table, params):
    covariance, last = covariance_of(table, params), table.shape[-1]
    cell, value = np.zeros_like(table), np.zeros_like(table)
    cell.flat[1] = 1
    value[..., 0] = 1
    for weights, summed in ((cell, 1), (value, table.size // last)):
        flat = weights.ravel()
        error = cells_error(params, table.size, summed, float(flat @ table.ravel()))
        assert error**2 == pytest.approx(float(flat @ covariance @ flat), rel=1e-6)


@examples(100)
@given(parameters(), st.integers(10, 100_000), st.floats(0.51, 0.99))
def test_the_limit_is_found_with_exactly_its_power(params, n_reports, power):
    goal = table_goal((6, 4), power=power)
    limit = goal.limit(params, n_reports)
    upward = params.q_star > params.p_star
    absent, present = params.p_star, params.p_star + min(limit, 1) * (params.q_star - params.p_star)
    if not upward:
        absent, present = 1 - absent, 1 - present
    counts = np.arange(n_reports + 1)
    rejected = counts[stats.binom.sf(counts - 1, n_reports, absent) <= goal.test.level]
    found = stats.binom.sf(rejected[0] - 1, n_reports, present) if len(rejected) else 0.0
    if limit <= 1:
        assert found == pytest.approx(power, abs=1e-6)
        assert goal.power(params, n_reports, limit) == pytest.approx(power, abs=1e-6)
    else:
        assert found < power


@pytest.mark.parametrize("budget", [ONE_TIME, LIFELONG, Budget(math.inf, 0.5), Budget(2.0, 2.0)])
def test_a_bit_per_cell_has_the_least_noise(budget):
    params = plan(SMALL, budget, n_reports=1e6).best.params
    assert (params.k, params.h, params.m) == (24, 1, 1)
    error = SMALL.error(params, 1e6)
    least = 1 / math.sinh(budget.report / 2) / 1e3  # of a bit alone (Wang et al. 2017)
    if budget.permanent == math.inf:
        assert params.q == 0.5
        assert error == pytest.approx(least, rel=0.03)  # the sum of all cells is known
    for other in np.linspace(0.05, 0.95, 19).tolist():
        p_star = other / (other + math.exp(budget.report) * (1 - other))
        try:
            rival = noisy(24, 0.0 if budget.permanent == math.inf else params.f, p_star, other)
        except ValueError:
            continue
        if rival.epsilon_report <= budget.report:
            assert SMALL.error(rival, 1e6) > 0.999 * error


def test_cells_are_hashed_where_there_are_more_than_bits():
    goal = table_goal((64, 64))
    all_bits = plan(goal, ONE_TIME, n_reports=1e6, most_bits=4096).best
    assert all_bits.params[:3] == (4096, 1, 1)
    best = plan(goal, ONE_TIME, n_reports=1e6, most_bits=4088).best
    assert goal.width(best.params) is None
    assert best.params.k <= 4088
    assert best.limit == detection_limit(best.params, 1e6, goal.test)
    errors = [figure for name, figure in best.figures.items() if name != "hashed"]
    assert all(map(math.isnan, errors))
