import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from evaluation.drawn_counts import draw_counts
from factories import make_metric, make_params
from hubbub.inference import (
    Z_CONFIDENCE,
    Groups,
    RepeatedReports,
    ReportGroup,
    ShareEstimates,
    after_marking,
    compare_categories,
    compare_strings,
    decode,
    hashed,
    ratio_interval,
    sample_ratio,
)
from hubbub.planning import DetectionTest, string_errors
from hubbub.protocol import CohortCounts, EnumType
from parameters import examples

PARAMS = make_params(64, 2, 8, f=0.0, p=0.25, q=0.75)
NAMES = [f"name {i}" for i in range(12)]
KINDS = ("dark", "light", "system")
THEMES = make_metric(metric_type=EnumType(KINDS), params=make_params(8, 1, 1))


def strings(seed, first=20_000, second=20_000):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(len(NAMES)), 2)
    return Groups(
        *(
            ReportGroup(draw_counts(NAMES, each, PARAMS, reports, rng))
            for each, reports in zip(shares, (first, second), strict=True)
        )
    )


def themes(seed, shares, reports=5_000):
    rng = np.random.default_rng(seed)
    return ReportGroup(
        draw_counts(KINDS, np.array(shares), THEMES.params, reports, rng, THEMES.type)
    )


def compared(groups, **options):
    listed = hashed(NAMES[:8], PARAMS)
    return compare_strings(groups, decode(groups.together, PARAMS, listed), listed, **options)


def sized(control: int, treatment: int, repeats: float = 1.0) -> Groups:
    """Return groups of so many reports, of which nothing else matters."""
    bits = np.zeros((1, 8), dtype=np.int64)
    return Groups(
        *(
            ReportGroup(CohortCounts(np.array([reports]), bits), RepeatedReports(clients=repeats))
            for reports in (control, treatment)
        )
    )


@given(st.integers(0, 2**32), st.floats(0.2, 5.0), st.integers(3_000, 100_000))
def test_sizes_are_tested_as_the_exact_test_does(seed, assigned, total):
    part = assigned / (1 + assigned)
    treatment = int(np.random.default_rng(seed).binomial(total, part))
    found = sample_ratio(sized(total - treatment, treatment), assigned)
    exact = stats.binomtest(treatment, total, part).pvalue
    # Which falls in steps, of two of the likeliest sizes at most.
    assert abs(found.p_value - exact) < 2 * stats.binom.pmf(int((total + 1) * part), total, part)
    assert found.found == pytest.approx(treatment / (total - treatment))


def test_clients_who_report_often_scatter_sizes_more():
    """P(false failure) < 1e-6: 4,000 tests of which .05 reject within 5 standard errors."""
    rng, rejected = np.random.default_rng(7), 0
    for _ in range(4000):
        # 500 clients with 1 report, 500 with 9: D = (500 + 500 * 81) / 5,000 = 8.2.
        once, often = rng.binomial(500, 0.5, 2)
        treatment = int(once + 9 * often)
        rejected += sample_ratio(sized(5000 - treatment, treatment, 8.2), 1.0).p_value < 0.05
    assert abs(rejected / 4000 - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 4000)
    assert not sample_ratio(sized(5100, 4900, 8.2), 1.0).mismatches
    assert sample_ratio(sized(6000, 4000, 8.2), 1.0).mismatches


@examples(15)
@given(st.integers(0, 2**32), st.integers(3_000, 40_000), st.integers(3_000, 40_000))
def test_groups_in_the_other_order_differ_by_as_much_the_other_way(seed, first, second):
    groups = strings(seed, first, second)
    there, back = compared(groups), compared(Groups(*reversed(groups)))
    assert there.names == back.names
    np.testing.assert_allclose(there.difference.value, -back.difference.value, atol=1e-9)
    np.testing.assert_allclose(there.difference.std_error, back.difference.std_error, rtol=1e-9)
    np.testing.assert_allclose(there.low, -back.high, atol=1e-7)
    np.testing.assert_allclose(there.q_value, back.q_value, rtol=1e-6)


@examples(15)
@given(st.integers(0, 2**32))
def test_a_difference_is_that_of_the_two_shares(seed):
    found = compared(strings(seed))
    difference = found.treatment.value - found.control.value
    np.testing.assert_allclose(found.difference.value, difference, atol=1e-12)
    assert (found.low <= found.high).all()


def test_a_string_that_only_one_group_has_is_seen_to_differ():
    rng = np.random.default_rng(1)
    steady = np.full(6, 1 / 6)
    groups = Groups(
        ReportGroup(draw_counts(NAMES[:6], steady, PARAMS, 50_000, rng)),
        ReportGroup(draw_counts(NAMES[1:7], steady, PARAMS, 50_000, rng)),
    )
    found = compared(groups)
    of = dict(zip(found.names, zip(found.low, found.high, found.differs, strict=True), strict=True))
    assert of[NAMES[6]][0] > 0
    assert of[NAMES[6]][2]
    assert of[NAMES[0]][1] < 0
    assert of[NAMES[0]][2]
    assert not any(of[name][2] for name in NAMES[1:6])


def test_categories_differ_by_the_estimates_of_each_group():
    found = compare_categories(
        Groups(themes(1, [0.5, 0.3, 0.2]), themes(2, [0.2, 0.6, 0.2])), THEMES
    )
    assert found.names == KINDS
    assert found.differs.tolist() == [True, True, False]
    assert found.reports == (5_000, 5_000)
    variance = found.control.std_error**2 + found.treatment.std_error**2
    np.testing.assert_allclose(found.difference.std_error**2, variance)


def test_reports_of_the_same_clients_widen_intervals():
    control, treatment = themes(1, [0.5, 0.3, 0.2]), themes(2, [0.2, 0.6, 0.2])
    again = RepeatedReports(responses=7.0, clients=7.0)
    once = compare_categories(Groups(control, treatment), THEMES)
    often = compare_categories(Groups(control._replace(repeats=again), treatment), THEMES)
    assert (often.difference.std_error > once.difference.std_error).all()


def test_the_least_difference_is_found_nine_times_in_ten():
    """Were it the only row that differs, at the level that Benjamini-Hochberg leaves for one."""
    found = compare_categories(
        Groups(themes(1, [0.5, 0.3, 0.2]), themes(2, [0.5, 0.3, 0.2])), THEMES
    )
    needed = found.least_difference / found.difference.std_error
    cutoff = stats.norm.isf(0.05 / 3 / 2)
    np.testing.assert_allclose(stats.norm.sf(cutoff - needed), 0.9, rtol=1e-9)


@examples(15)
@given(st.integers(0, 2**32), st.floats(0.0, 0.2))
def test_of_several_looks_a_row_differs_if_its_interval_leaves_out_0(seed, more):
    """At the level that the correction leaves it, both where it differs and where it doesn't."""
    groups = Groups(themes(seed, [0.5, 0.3, 0.2]), themes(seed + 1, [0.5 - more, 0.3 + more, 0.2]))
    once, every = (compare_categories(groups, THEMES, sequential=each) for each in (False, True))
    assert once.widening is None
    assert (every.widening or 0.0) > 1.5
    assert (every.p_value >= once.p_value).all()
    left_out = (every.low > 0) | (every.high < 0)
    assert left_out[every.differs].all()
    assert (every.q_value[left_out] <= 3 * 0.05).all()
    assert (every.high - every.low > once.high - once.low)[~once.differs].all()
    assert (every.ratio_low <= once.ratio_low).all()


def test_bits_of_one_report_belong_together():
    """A string's two bits are drawn at once, so half of all clients are no better known for them.

    The theory of plans is independent of the decoder's sums; P(false failure) < 1e-6, for standard
    errors scatter by under 1%.
    """
    rng = np.random.default_rng(3)
    shares = np.array([0.5, 0.5 / 3, 0.5 / 3, 0.5 / 3])
    found = compared(Groups(*(ReportGroup(draw_counts(NAMES[:4], shares, PARAMS, 40_000, rng))
                              for _ in range(2))))  # fmt: skip
    test = DetectionTest(10, concentration=0.0)
    planned = string_errors(PARAMS, 40_000, 0.5, test).present * np.sqrt(2)
    assert found.difference.std_error[0] == pytest.approx(planned, rel=0.06)


@examples(30)
@given(st.floats(-8, 8), st.floats(2, 4))
def test_intervals_of_marked_rows_hold_whatever_the_mean_is(mean, cutoff):
    """Of 2,000 quantiles of Z given |Z| >= cutoff 95% have an interval that holds the mean."""
    below, above = stats.norm.cdf(-cutoff - mean), stats.norm.sf(cutoff - mean)
    place = (np.arange(2_000) + 0.5) / 2_000 * (below + above)
    z = np.where(
        place < below,
        mean + stats.norm.ppf(np.minimum(place, below)),
        mean + stats.norm.isf(np.minimum(below + above - place, above)),
    )
    low, high = np.sort(after_marking(np.abs(z), cutoff) * np.sign(z), axis=0)
    held = (low <= mean) & (mean <= high)
    assert held.mean() == pytest.approx(0.95, abs=0.002)


@given(
    st.floats(-0.1, 1), st.floats(1e-3, 0.2), st.floats(-0.1, 1), st.floats(1e-3, 0.2),
    st.floats(0, 50),
)  # fmt: skip
def test_ratios_are_those_that_the_data_do_not_refuse(c, of_c, t, of_t, ratio):
    """Fieller's set: r is inside unless |t - r c| exceeds z times its standard error."""
    control = ShareEstimates(np.array([c]), np.array([of_c]))
    treatment = ShareEstimates(np.array([t]), np.array([of_t]))
    _, low, high = ratio_interval(control, treatment)
    excess = abs(t - ratio * c) - Z_CONFIDENCE * np.hypot(of_t, ratio * of_c)
    if excess < -1e-9:
        assert low[0] - 1e-6 <= ratio <= high[0] + 1e-6
    elif excess > 1e-9 and np.isfinite(high[0]):
        assert not low[0] + 1e-6 < ratio < high[0] - 1e-6


def test_ratios_of_numbers_may_be_anything_if_the_control_may_be_0():
    control = ShareEstimates(np.array([0.01]), np.array([1.0]))
    treatment = ShareEstimates(np.array([5.0]), np.array([1.0]))
    ratio, low, high = ratio_interval(control, treatment, nonnegative=False)
    assert np.isnan(ratio[0])
    assert low[0] == -np.inf
    assert high[0] == np.inf
