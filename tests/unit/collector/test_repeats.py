"""Equal reports are counted in a bounded sample, and the bound on honest ones is a bound."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from factories import make_params
from hubbub.client import RapporParams
from hubbub.protocol import (
    Records,
    Repeats,
    chance_of_repeat,
    columns,
    log_binomial_tails,
    repeat_keys,
    repeats_among,
    sample_step,
)
from unit.collector.forgeries import joined, records_of

PARAMS = make_params(k=64)
ALARM = 1e-6


def noise(n: int, rng: np.random.Generator, params: RapporParams = PARAMS) -> Records:
    bits = rng.random((n, params.k)) < params.p_star
    return records_of(bits, rng.integers(params.m, size=n))


def copies(n: int, cohort: int = 3) -> Records:
    return records_of(np.tile(np.arange(PARAMS.k) % 2, (n, 1)), cohort)


def found(parts: Sequence[Records], params: RapporParams = PARAMS) -> Repeats:
    keys = [repeat_keys(columns(part)) for part in parts]
    return repeats_among(np.concatenate(keys), params, ALARM)


def test_repeated_report_is_counted_among_many(rng):
    repeats = found([noise(5000, rng), copies(40), noise(5000, rng), copies(17)])
    assert (repeats.assessed, repeats.sampled) == (True, 10_057)
    assert (repeats.most, repeats.suspicious) == (57, 57)
    assert 1 < repeats.plausible < 10


def test_reports_without_repeats_are_not_suspicious(rng):
    repeats = found([noise(20_000, rng)])
    assert (repeats.most, repeats.suspicious) == (1, 0)


def test_same_bits_in_different_cohorts_are_no_repeat(rng):
    spread = [copies(1, cohort) for cohort in range(PARAMS.m)]
    assert found([noise(5000, rng), *spread]).suspicious == 0


def test_each_of_65_535_cohorts_has_repeats_of_its_own(rng):
    """Copies in cohorts 1,024 apart, one each; then all of them in the last one."""
    params = make_params(k=64, h=1, m=65_535)
    others = noise(5000, rng, params)
    spread = [copies(1, cohort) for cohort in range(3, params.m, 1024)]
    assert found([others, *spread], params=params).most == 1
    assert found([others, copies(64, 65_534)], params=params).most == 64


def test_all_of_4096_set_bits_leave_the_cohort_as_it_is():
    params = make_params(k=4096)
    full = [records_of(np.ones((1, params.k)), cohort) for cohort in range(params.m)]
    assert found(full, params=params).most == 1
    assert found([*full, *full[5:6] * 9], params=params).most == 10


def test_repeats_among_reports_of_4096_bits_are_counted(rng):
    params = make_params(k=4096, h=1, m=1, f=0.0, p=0.018, q=0.5)
    others = noise(2000, rng, params)
    repeated = Records(others.width, others.data[: others.width] * 9)
    assert found([others], params=params).suspicious == 0
    assert found([others, repeated], params=params).suspicious == 10


def test_reports_that_differ_in_two_bits_are_no_repeat():
    """All 2,016 patterns of two bits among 64: what a weak hash would mix up."""
    pairs = [np.isin(np.arange(64), pair) for pair in itertools.combinations(range(64), 2)]
    assert found([records_of(pairs)]).most == 1


@pytest.mark.parametrize("n", [1, 255, 256, 257, 512, 1000, 5000])
def test_sample_is_everything_or_at_least_half_full(n, rng):
    keys = repeat_keys(columns(noise(n, rng)), step=sample_step(n, 256))
    assert len(keys) == n if n <= 256 else 128 <= len(keys) <= 256


def test_report_that_is_a_tenth_of_all_is_a_tenth_of_a_small_sample(rng):
    """100,000 shuffled reports, at most 1,024 looked at; P(false failure) < 1e-9 (binomial)."""
    ordered = joined(noise(90_000, rng), copies(10_000))
    rows = np.frombuffer(ordered.data, dtype=np.uint8).reshape(100_000, -1)
    shuffled = Records(ordered.width, rows[rng.permutation(100_000)].tobytes())
    keys = repeat_keys(columns(shuffled), step=sample_step(100_000, 1024))
    repeats = repeats_among(keys, PARAMS, ALARM)
    assert 0.04 < repeats.most / repeats.sampled < 0.18
    assert repeats.suspicious == repeats.most


@pytest.mark.parametrize("k", [8, 16])
def test_few_bits_are_not_assessed(k, rng):
    params = make_params(k=k)
    assert found([noise(10_000, rng, params)], params=params) == Repeats(False, 0, 0, 0, 0)


def test_nothing_is_not_suspicious():
    assert found([Records(10, b"")]) == Repeats(True, 0, 0, 0, 0)


@pytest.mark.parametrize("noise_of", [(0.5, 0.25, 0.75), (0.2, 0.05, 0.75), (0.3, 0.9, 0.2)])
def test_no_permanent_response_makes_any_report_likelier_than_the_bound(noise_of):
    """By the counts of the four pairs (permanent bit, pattern bit) among 8 bits: all of them."""
    params = make_params(8, 2, 4, *noise_of)
    p, q = params.p, params.q
    for ones in range(9):
        chances = [
            q**hit * p ** (ones - hit) * (1 - q) ** miss * (1 - p) ** (8 - ones - miss)
            for hit in range(ones + 1)
            for miss in range(9 - ones)
        ]
        bound = chance_of_repeat(params, np.array([ones]))[0]
        assert max(chances) == pytest.approx(bound, rel=1e-6)


def test_one_time_metric_without_second_response_is_judged_by_the_permanent_one():
    params = make_params(k=64, f=0.5, p=0.0, q=1.0)
    expected = 0.75**64 + 2**-35
    assert chance_of_repeat(params, np.array([0, 30])) == pytest.approx(expected)
    assert found([copies(5)], params=params).suspicious == 5


@given(st.integers(0, 2000), st.integers(0, 2000), st.floats(1e-9, 0.9))
def test_tail_bound_is_never_below_the_tail(reached, more, chance):
    n = max(reached + more, 1)
    bound = log_binomial_tails(np.array([reached]), np.array([n]), np.array([chance]))[0]
    assert bound >= stats.binom.logsf(reached - 1, n, chance) - 1e-6


def test_plausible_number_is_the_largest_that_is_not_suspicious():
    """The bound is asked for each number of copies among 2,000 others of their cohort."""
    params = make_params(k=24)
    rng = np.random.default_rng(1)
    others = records_of(rng.random((2000, 24)) < 0.5, 3)
    pattern = np.arange(24) < 12
    verdicts = {}
    for n in range(2, 60):
        repeats = found([others, records_of(np.tile(pattern, (n, 1)), 3)], params=params)
        if repeats.most >= n:
            verdicts[repeats.most] = (repeats.suspicious > 0, repeats.plausible)
    assert {suspicious for suspicious, _ in verdicts.values()} == {True, False}
    for most, (suspicious, plausible) in verdicts.items():
        assert suspicious == (most > plausible)


def test_plausible_number_grows_with_the_cohort_and_barely_with_the_others():
    params = make_params(k=24)
    rng = np.random.default_rng(1)
    mine, many_of_mine, others = (
        records_of(rng.random((n, 24)) < 0.5, cohort)
        for n, cohort in ((2000, 3), (30_000, 3), (30_000, 4))
    )
    repeated = records_of(np.tile(np.arange(24) < 12, (100, 1)), 3)
    alone, crowded, beside = (
        found([repeated, *parts], params=params).plausible
        for parts in ([mine], [mine, many_of_mine], [mine, others])
    )
    assert alone <= beside <= alone + 2
    assert crowded > 3 * alone
