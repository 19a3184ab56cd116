"""How well reports are linked by content: exact information, and a prediction that behaves."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.planning import link_information, linked_clients, logsums, right_links
from hubbub.protocol import RapporParams
from parameters import examples

EXAMPLE = RapporParams(k=424, h=1, m=96, f=0.2, p=0.0683, q=0.5534)
PARAMS = st.builds(
    RapporParams,
    f0=st.none(),
    f1=st.none(),
    k=st.sampled_from([8, 64, 256]),
    h=st.integers(1, 4),
    m=st.sampled_from([1, 64]),
    f=st.floats(0.05, 0.9),
    p=st.floats(0.0, 0.4),
    q=st.floats(0.5, 1.0),
)


def information_of_a_bit(params: RapporParams, true: float, *, known: bool) -> float:
    """Return the mutual information of one bit of two reports, over all that can happen."""
    joint: dict[tuple[int, int], float] = {}
    one = true * (1 - params.f / 2) + (1 - true) * params.f / 2
    for permanent, first, second in itertools.product((0, 1), repeat=3):
        rate = params.q if permanent else params.p
        chance = one if permanent else 1 - one
        chance *= rate if second else 1 - rate
        if known:
            chance *= first == permanent
        else:
            chance *= rate if first else 1 - rate
        joint[first, second] = joint.get((first, second), 0.0) + chance
    left = [joint[a, 0] + joint[a, 1] for a in (0, 1)]
    right = [joint[0, b] + joint[1, b] for b in (0, 1)]
    return sum(x * math.log(x / left[a] / right[b]) for (a, b), x in joint.items() if x > 0)


@examples(40)
@given(PARAMS, st.booleans())
def test_information_is_that_of_all_bits(params, known):
    set_by_one_of_h = 1 - (1 - 1 / params.k) ** params.h
    hashed = params.k * information_of_a_bit(params, set_by_one_of_h, known=known)
    assert link_information(params, None, known=known) == pytest.approx(hashed, rel=1e-9)
    categories = 3 * information_of_a_bit(params, 1 / 3, known=known)
    categories += (params.k - 3) * information_of_a_bit(params, 0.0, known=known)
    assert link_information(params, 3, known=known) == pytest.approx(categories, rel=1e-9)


@pytest.mark.long
@examples(10)
@given(PARAMS, st.booleans())
def test_fewer_links_are_right_in_a_larger_crowd(params, known):
    shares = [right_links(params, None, n, known=known) for n in (300, 3_000, 30_000)]
    assert all(0 < share <= 1 for share in shares)
    assert all(larger <= smaller + 1e-3 for smaller, larger in itertools.pairwise(shares))


@pytest.mark.long
@examples(10)
@given(PARAMS, st.booleans())
def test_more_than_half_are_right_where_the_information_is_enough(params, known):
    clients = linked_clients(params, None, known=known)
    if 20 * params.m < clients < 1e9:
        assert right_links(params, None, int(clients), known=known) > 0.5


def test_the_threshold_is_where_the_information_is_ln_of_clients_in_a_cohort():
    clients = linked_clients(EXAMPLE, None)
    assert math.log(clients / EXAMPLE.m) == pytest.approx(link_information(EXAMPLE, None))
    assert linked_clients(EXAMPLE._replace(k=4096, q=1.0, p=0.0), None) == math.inf


# In the second two equal ones make just four cells more.
@pytest.mark.parametrize(("begin", "step"), [(-10, 0.3), (0, math.log(2) / 4)])
def test_sums_of_two_are_those_of_all_pairs(rng, begin, step):
    """Each is split between the cells beside it, and what lies beyond the end is the end's."""
    grid = step * (begin + np.arange(31.0))
    first, second = rng.dirichlet(np.full(31, 0.3), 2)
    sums = np.minimum(np.logaddexp(grid[:, None], grid), grid[-1])
    near = np.maximum(1 - np.abs(sums[:, :, None] - grid) / (grid[1] - grid[0]), 0)
    expected = np.einsum("i,j,ijc->c", first, second, near)
    np.testing.assert_allclose(logsums(grid)(first, second), expected, atol=1e-13)


def test_of_equal_reports_nobody_can_tell_which_is_whose():
    clear = RapporParams(k=8, h=1, m=1, f=0.5, p=0.0, q=1.0)
    assert right_links(clear, 3, 100_000) == 2**8 / 100_000
