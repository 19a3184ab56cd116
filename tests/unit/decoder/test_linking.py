"""How well reports are linked by content: the exact information, and what follows from it."""

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from hubbub.planning import link_information, linked_clients
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


def test_the_threshold_is_where_the_information_is_ln_of_clients_in_a_cohort():
    clients = linked_clients(EXAMPLE, None)
    assert math.log(clients / EXAMPLE.m) == pytest.approx(link_information(EXAMPLE, None))
    assert linked_clients(EXAMPLE._replace(k=4096, q=1.0, p=0.0), None) == math.inf
