"""Bounds on what shuffled reports reveal: above the exact figure where that can be enumerated."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from factories import make_metric, make_params
from hubbub.decoder import decoder_of
from hubbub.inference import DecodingParams, bit_ratios, cell_ratios, filter_ratios
from hubbub.planning import (
    amplified_epsilon,
    blanket_delta,
    blanket_epsilon,
    central_epsilon,
    mean_positive_part,
    most_periods,
)
from hubbub.protocol import (
    BooleanType,
    EnumType,
    Field,
    JointType,
    NumberType,
    RapporParams,
    StringType,
    Subset,
    Window,
)
from parameters import examples

N, DELTA = 100_000, 1e-6
EPSILONS = (0.0, 0.05, 0.2, 0.4)


def symmetric(h: int, epsilon: float) -> RapporParams:
    """Return one-time parameters with p = 1 - q that spend an epsilon on a report."""
    q = 1 / (1 + math.exp(-epsilon / (2 * h)))
    return RapporParams(128, h, 1, 0.0, 1 - q, q)


def positive_part(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def exact_delta_of_bits(params: RapporParams, n: int, epsilon: float) -> float:
    """Return delta of n shuffled bits: the others' values as bad as they can be."""
    worst = 0.0
    for j in range(n):
        held = stats.binom.pmf(np.arange(j + 1), j, params.q_star)
        others = np.convolve(held, stats.binom.pmf(np.arange(n - j), n - 1 - j, params.p_star))
        one = np.convolve(others, [1 - params.q_star, params.q_star])
        zero = np.convolve(others, [1 - params.p_star, params.p_star])
        parts = positive_part(one, zero, epsilon), positive_part(zero, one, epsilon)
        worst = max(worst, *parts)
    return worst


@pytest.mark.parametrize("n", [1, 2, 7, 50, 400])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bounds_of_a_boolean_are_above_the_exact_delta(n, epsilon):
    params = make_params(k=8, h=1, m=1)
    ratios = bit_ratios(params)
    exact = exact_delta_of_bits(params, n, epsilon)
    blanket = max(blanket_delta(r, n, epsilon) for r in (ratios, ratios.swapped()))
    assert blanket >= exact


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_blanket_is_exact_without_hidden_reports(epsilon):
    params = make_params(k=8, h=1, m=1)
    exact = exact_delta_of_bits(params, 1, epsilon)
    assert blanket_delta(bit_ratios(params), 1, epsilon) == pytest.approx(exact, abs=1e-8)


Law = dict[Any, float]


@cache
def message_law(value: tuple[frozenset[int], ...], params: RapporParams, reports: int) -> Law:
    """Return the law of a client's message: its cohort, and how often it reported each bit.

    value: The true bits in each cohort.
    """
    counts = np.arange(reports + 1)
    of_zero, of_one = (stats.binom.pmf(counts, reports, rate) for rate in (params.p, params.q))
    untrue = ((1 - params.f / 2) * of_zero + params.f / 2 * of_one).tolist()
    true = (params.f / 2 * of_zero + (1 - params.f / 2) * of_one).tolist()
    law: Law = {}
    for cohort, bits in enumerate(value):
        for ones in itertools.product(range(reports + 1), repeat=params.k):
            chances = [(true if j in bits else untrue)[n] for j, n in enumerate(ones)]
            law[cohort, ones] = math.prod(chances) / len(value)
    return law


def shuffled(laws: tuple[Law, ...]) -> Law:
    """Return the law of a multiset of messages."""
    law: defaultdict[Any, float] = defaultdict(float)
    for drawn in itertools.product(*(each.items() for each in laws)):
        law[tuple(sorted(what for what, _ in drawn))] += math.prod(chance for _, chance in drawn)
    return law


def exact_delta(laws: Sequence[Law], epsilon: float) -> float:
    one, other = laws
    ratio = math.exp(epsilon)
    return sum(max(chance - ratio * other[what], 0.0) for what, chance in one.items())


@pytest.mark.parametrize(
    ("k", "h", "m", "reports", "n"),
    [(2, 1, 1, 1, 2), (2, 1, 1, 1, 4), (3, 2, 1, 1, 3), (2, 1, 1, 3, 2), (2, 1, 2, 2, 2),
     (2, 1, 2, 1, 3), (3, 2, 1, 2, 2), (2, 1, 1, 6, 2)],
)  # fmt: skip
@pytest.mark.parametrize("f", [0.5, 0.02])
def test_bounds_of_a_string_are_above_the_exact_delta(k, h, m, reports, n, f):
    """Of cohort and reports as one message, shuffled once.

    Over all pairs of values, collisions and common bits included, and all others' values.
    """
    params = DecodingParams(k, h, m, f, 0.2, 0.75)
    filters = sorted({frozenset(hit) for hit in itertools.product(range(k), repeat=h)}, key=sorted)
    laws = [message_law(v, params, reports) for v in itertools.product(filters, repeat=m)]
    exact = dict.fromkeys(EPSILONS, 0.0)
    for others in itertools.combinations_with_replacement(laws, n - 1):
        crowds = [shuffled((law, *others)) for law in laws]
        for pair in itertools.permutations(crowds, 2):
            for epsilon in EPSILONS:
                exact[epsilon] = max(exact[epsilon], exact_delta(pair, epsilon))
    ratios = filter_ratios(params, reports)
    for epsilon in EPSILONS:
        assert blanket_delta(ratios, n, epsilon) >= exact[epsilon]


@pytest.mark.parametrize("reports", [1, 2, 4])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bounds_of_a_booleans_days_are_above_the_exact_delta(reports, epsilon):
    """Reports of several days by three clients; in both directions, with all others' values."""
    params = make_params(k=8, h=1, m=1, f=0.3)
    one_bit = DecodingParams(2, 1, 1, params.f, params.p, params.q)
    true, false = (message_law((frozenset(v),), one_bit, reports) for v in ((0,), ()))
    exact = 0.0
    for others in itertools.combinations_with_replacement((true, false), 2):
        crowds = [shuffled((law, *others)) for law in (true, false)]
        exact = max(exact, *(exact_delta(pair, epsilon) for pair in itertools.permutations(crowds)))
    ratios = bit_ratios(params, reports)
    assert max(blanket_delta(r, 3, epsilon) for r in (ratios, ratios.swapped())) >= exact


@pytest.mark.long
@examples(20)
@given(st.floats(0.05, 0.9), st.integers(1, 4), st.sampled_from([1, 2, 30, 365]))
def test_the_ratios_of_all_reports_are_those_of_the_exact_linked_loss(f, h, reports):
    for metric_type in (StringType(), BooleanType()):
        metric = make_metric(params=make_params(h=h, f=f), metric_type=metric_type)
        for ratios in decoder_of(metric).report_ratios(metric.params, reports):
            largest = math.log((ratios.first / ratios.second).max())
            assert largest <= metric.epsilon_after(reports) * (1 + 1e-9)
            for law in (ratios.first, ratios.second):
                assert ratios.chance @ law == pytest.approx(1, rel=1e-9)
        assert amplified_epsilon(metric, 1, DELTA, reports) <= metric.epsilon_after(reports)


def test_a_life_in_a_crowd_costs_little_more_than_a_month():
    """The permanent response bounds what many days say; adding up days would give 12 times that."""
    metric = make_metric(params=make_params(h=1))
    day, month, year = (amplified_epsilon(metric, N, DELTA, days) for days in (1, 30, 365))
    assert day < month < year < 1.1 * month


@pytest.mark.parametrize("days", [1, 30, 31, 365])
def test_periods_compose_each_with_its_part_of_delta(days):
    metric = make_metric(period_days=30, params=make_params(h=1))
    periods = most_periods(metric, days)
    each = amplified_epsilon(metric, N, DELTA / periods, min(days, 30))
    assert central_epsilon(metric, days, N, DELTA) == pytest.approx(periods * each, rel=1e-3)


def test_one_time_reports_are_amplified_once_however_many_days_pass():
    metric = make_metric(params=make_params(f=0.0), one_time=True)
    assert central_epsilon(metric, 1000, N, DELTA) == amplified_epsilon(metric, N, DELTA)


def test_published_figures_are_reproduced():
    """100,000 reports of epsilon 4, delta 1e-6; a bound below .106 is a better one."""
    blanket = blanket_epsilon(filter_ratios(symmetric(1, 4.0)), N, DELTA, 4.0)
    assert 0.1 < blanket < 0.106


@pytest.mark.parametrize(("n", "delta"), [(0, 1e-6), (10, 0.0), (10, 1.0)])
def test_no_crowd_or_no_delta_is_refused(n, delta):
    with pytest.raises(ValueError, match=f"clients = {n}, delta = {delta}"):
        amplified_epsilon(make_metric(), n, delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("hashed", [False, True], ids=["one bit per cell", "hashed"])
def test_a_tuple_hides_as_well_whichever_field_changes(epsilon, hashed):
    """The exact delta of one report, over all 256, for each pair of six tuples."""
    fields = (Field("mode", EnumType(("a", "b", "c"))), Field("on", BooleanType()))
    params = make_params(k=8, h=2 if hashed else 1, m=1)
    metric = make_metric(metric_type=JointType(fields, hashed), params=params)
    (ratios,) = decoder_of(metric).report_ratios(metric.params)
    bound = blanket_delta(ratios, 1, epsilon)
    tuples = [{"mode": mode, "on": on} for mode in "abc" for on in (False, True)]
    laws = [_law_of_report(metric.type.bits(each, 0, metric.params), params) for each in tuples]
    deltas = [positive_part(*pair, epsilon) for pair in itertools.permutations(laws, 2)]
    if hashed:  # some filters share a bit
        assert max(deltas) <= bound + 1e-8
    else:
        assert deltas == pytest.approx([bound] * len(deltas), abs=1e-8)


def _law_of_report(filter_bits: int, params: RapporParams) -> np.ndarray:
    patterns = np.arange(256)
    law = np.ones(256)
    for bit in range(8):
        rate = params.q_star if filter_bits >> bit & 1 else params.p_star
        law *= np.where(patterns >> bit & 1, rate, 1 - rate)
    return law


def enumerated(values: np.ndarray, chance: np.ndarray, n: int) -> float:
    outcomes = [*zip(values, chance, strict=True), (0.0, 1 - chance.sum())]
    return math.fsum(
        max(sum(value for value, _ in drawn), 0.0) * math.prod(p for _, p in drawn)
        for drawn in itertools.product(outcomes, repeat=n)
    )


@examples(50)
@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=3),
    st.floats(0.1, 0.9),
    st.integers(1, 5),
)
def test_bound_is_above_the_enumeration_and_close_to_it(values, total, n):
    given_values = np.array([*values, 1.0])
    chance = np.full(len(given_values), total / len(given_values))
    exact = enumerated(given_values, chance, n)
    bound = mean_positive_part(given_values, chance, n, 1e-9)
    assert exact <= bound * (1 + 1e-12)
    assert bound <= exact * 1.02 + 1e-6


def test_many_draws_are_those_of_the_normal_law():
    n, values, chance = 200_000, np.array([1.0, -1.01]), np.array([0.3, 0.3])
    mean, second = float(chance @ values), float(chance @ values**2)
    spread = math.sqrt(n * (second - mean**2))
    z = n * mean / spread
    expected = spread * (stats.norm.pdf(z) + z * stats.norm.cdf(z))
    bound = mean_positive_part(values, chance, n, 1e-3 * expected)
    assert bound == pytest.approx(expected, rel=0.01)


def test_a_sum_that_is_never_positive_has_none():
    values, chance = np.array([-1.0, 0.0]), np.array([0.3, 0.1])
    assert mean_positive_part(values, chance, 1_000, 1e-6) < 1e-6


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
