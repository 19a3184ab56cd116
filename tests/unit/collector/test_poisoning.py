"""Plausible numbers of set bits are right for every type of metric, and so is a forger's reach."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from factories import make_metric, make_params
from hubbub.client import RapporParams
from hubbub.protocol import (
    BooleanType,
    EnumType,
    OpenStringType,
    OrdinalType,
    Records,
    SetBits,
    StringType,
    Subset,
    columns,
    improbable,
    plausible_set_bits,
    set_bits,
    set_bits_distribution,
)
from unit.collector.forgeries import joined, records_of

TEXT = StringType()
OPEN_TEXT = OpenStringType((4, 7), 64)
YES_NO = BooleanType()
COLOURS = EnumType(tuple(f"colour {i}" for i in range(19)))
AGES = OrdinalType((18.0, 30.0, 50.0))
ONE_TIME = {"permanent alone": (0.4, 0.0, 1.0), "instantaneous alone": (0.0, 0.2, 0.7)}

numbers_of_bytes = st.integers(1, 20)
rates = st.floats(0, 1).map(lambda x: round(x, 3))


def outside(params: RapporParams, true_bits: int, bounds: SetBits) -> float:
    """Return the exact chance of a report outside the bounds, by scipy's binomials."""
    total = 0.0
    for hits in range(true_bits + 1):
        others = stats.binom(params.k - true_bits, params.p_star)
        below = others.cdf(bounds.low - hits - 1)
        total += stats.binom.pmf(hits, true_bits, params.q_star) * (
            below + others.sf(bounds.high - hits)
        )
    return total


@pytest.mark.parametrize("tail", [1e-2, 1e-5, 1e-9, 1e-15])
@pytest.mark.parametrize("noise", [(0.5, 0.25, 0.75), (0.2, 0.05, 0.75), (0.3, 0.8, 0.1),
                                   *ONE_TIME.values()])  # fmt: skip
@pytest.mark.parametrize(
    ("metric_type", "true_bits"),
    [(TEXT, (1, 2)), (OPEN_TEXT, (1,)), (COLOURS, (1,)), (AGES, (1,)), (YES_NO, (0, 1))],
    ids=lambda x: getattr(x, "name", ""),
)
def test_range_holds_for_every_value_and_no_narrower_one_does(metric_type, true_bits, noise, tail):
    given = make_params(128, 2, 16, *noise)
    params = make_metric(metric_type=metric_type, params=given).params
    bounds = plausible_set_bits(params, metric_type, tail)
    assert all(outside(params, j, bounds) <= tail for j in true_bits)
    low, high = SetBits(bounds.low + 1, params.k), SetBits(0, bounds.high - 1)
    assert max(outside(params, j, low) for j in true_bits) > tail / 2
    assert max(outside(params, j, high) for j in true_bits) > tail / 2


def test_colliding_hashes_are_plausible_too():
    """A string of 8 hashes may set a single bit; with loud bits that is 7 fewer."""
    params = make_params(k=8, h=8, f=0.0, p=0.001, q=0.999)
    assert plausible_set_bits(params, TEXT, 1e-2) == SetBits(1, 8)


def test_boolean_may_have_no_bit_at_all():
    params = make_params(k=8, h=1, m=1, f=0.0, p=0.001, q=0.999)
    assert plausible_set_bits(params, YES_NO, 1e-1) == SetBits(0, 1)
    assert plausible_set_bits(params, COLOURS, 1e-1) == SetBits(1, 1)


@pytest.mark.parametrize("k", [8, 1024, 4096])
def test_law_of_set_bits_is_that_of_two_binomials(k):
    params = make_params(k=k, h=3, f=0.3, p=0.2, q=0.6)
    hits = stats.binom.pmf(np.arange(4), 3, params.q_star)
    others = stats.binom.pmf(np.arange(k - 2), k - 3, params.p_star)
    assert set_bits_distribution(params, 3) == pytest.approx(
        np.convolve(hits, others), rel=1e-9, abs=1e-300
    )


def test_probabilities_next_to_none_and_one_are_handled():
    params = make_params(k=8, h=1, f=1e-300, p=0.0, q=1.0)
    assert plausible_set_bits(params, TEXT, 1e-9) == SetBits(1, 1)


@pytest.mark.parametrize("tail", [0.0, 1.0, -1.0, float("nan")])
def test_tail_that_is_no_probability_is_refused(tail):
    with pytest.raises(ValueError, match=r"tail = .*: must be between 0 and 1"):
        plausible_set_bits(make_params(), TEXT, tail)


@given(st.data(), numbers_of_bytes, st.integers(0, 30))
def test_set_bits_are_counted_for_every_width(data, size, n):
    records = Records(
        2 + size, data.draw(st.binary(min_size=n * (2 + size), max_size=n * (2 + size)))
    )
    expected = [
        int.from_bytes(records.data[start + 2 : start + records.width]).bit_count()
        for start in range(0, len(records.data), records.width)
    ]
    assert set_bits(columns(records).bits).tolist() == expected


def test_full_filters_of_the_largest_size_are_counted():
    records = records_of(np.ones((3, 4096)), cohorts=1023)
    assert set_bits(columns(records).bits).tolist() == [4096] * 3


def test_improbable_reports_are_those_outside():
    rows = np.arange(16) < np.array([2, 3, 10, 11, 0])[:, None]
    records = joined(records_of(rows, [5, 5, 5, 5, 700]), records_of(rows[:1], 5))
    bounds = SetBits(3, 10)
    assert improbable(records, bounds).tolist() == [True, False, False, True, True, True]


def test_bits_that_a_response_cannot_set_are_improbable_whatever_their_number():
    """Sets of 2 of the first 11 bits; the report's other 5 are padding."""
    response = Subset(11, 2, 0.7)
    bounds = plausible_set_bits(make_params(k=16, h=1, m=1, f=0.0), COLOURS, 1e-9, response)
    assert bounds == SetBits(2, 2, 11)
    rows = np.zeros((5, 16), dtype=bool)
    for row, places in zip(rows, [(0, 10), (3,), (1, 2, 3), (0, 11), (14, 15)], strict=True):
        row[list(places)] = True
    assert improbable(records_of(rows), bounds).tolist() == [False, True, True, True, True]


def test_no_records_hold_nothing_improbable():
    assert not improbable(Records(18, b""), SetBits(3, 10)).any()


@pytest.mark.parametrize("others", [0, 1])
def test_naively_forged_report_is_improbable_at_the_papers_parameters(others):
    """All bits of one string, and all others 0, or all others 1."""
    params = make_params()
    forged = np.full((1, params.k), others)
    forged[0, [3, 99]] = 1
    bounds = plausible_set_bits(params, TEXT, 1e-9)
    assert improbable(records_of(forged), bounds).all()
