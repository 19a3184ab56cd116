"""The theory of what can be found: its laws, and the formulas that it contains as special cases."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, strategies as st
from scipy import stats

from hubbub.inference import PlanError
from hubbub.planning import (
    DetectionMethod,
    DetectionTest,
    Information,
    corrected,
    detection_limit,
    detection_power,
    reports_needed,
    string_errors,
)
from hubbub.protocol import RapporParams
from parameters import examples

PAPER = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
REPORTS = st.floats(3, 8).map(lambda power: 10.0**power)
METHODS = st.sampled_from(list(DetectionMethod))


def noises() -> st.SearchStrategy[RapporParams]:
    """Parameters whose reports carry some information."""
    return st.builds(
        RapporParams,
        f0=st.none(),
        f1=st.none(),
        k=st.sampled_from([8, 32, 128, 512]),
        h=st.integers(1, 4),
        m=st.sampled_from([32, 64, 256]),
        f=st.floats(0.1, 0.7),
        p=st.floats(0.05, 0.4),
        q=st.floats(0.5, 0.95),
    )


@examples(25)
@given(noises(), REPORTS, METHODS)
def test_more_reports_show_smaller_shares(params, n, method):
    question = DetectionTest(1e4, method=method)
    here, there = (detection_limit(params, reports, question) for reports in (n, 2 * n))
    assert there < here or here == math.inf


RARE_BITS = RapporParams(128, 4, 32, 0.125, 0.0625, 0.875)
"""A report with all bits of a string tells so much that its score soon says little more."""


@examples(25)
@example(RARE_BITS, 1000, DetectionMethod.LIKELIHOOD)
@given(noises(), REPORTS, METHODS)
def test_more_candidates_and_stricter_tests_need_larger_shares(params, n, method):
    limits = [
        detection_limit(
            params, n, DetectionTest(candidates, alpha, method=method, concentration=1e-3)
        )
        for candidates, alpha in ((1e3, 0.1), (1e3, 0.05), (1e6, 0.05))
    ]
    assert limits[0] <= limits[1] * (1 + 1e-6)  # the iteration ends within 1e-7
    assert limits[1] <= limits[2] * (1 + 1e-6)


@examples(25)
@example(RARE_BITS, 1000, 1e-6)
@example(PAPER, 1000, 0.5)
@given(noises(), REPORTS, st.floats(1e-9, 0.99))
def test_an_estimate_at_the_threshold_has_the_score_that_the_level_asks_for(params, n, alpha):
    """t I(t) is what I(0) is times the exact threshold, or the test is by the exact score."""
    question = DetectionTest(1, alpha, method=DetectionMethod.LIKELIHOOD, concentration=0.0)
    z = -stats.norm.ppf(question.level)
    errors = string_errors(params, n, 0.0, question)
    exact = replace(errors, flattening=1.0).threshold(z)
    if exact <= 0:
        assert errors.flattening == 1
        return
    flattened = exact * errors.flattening
    information = Information.of_string(params.k, params.h, params.p_star, params.q_star)
    wanted = exact * information.absent
    if flattened < math.inf:
        assert flattened * information.at(flattened) == pytest.approx(wanted, rel=1e-6)
    else:
        assert information.at(1.0) <= wanted


@examples(25)
@given(noises(), REPORTS, METHODS, st.floats(0.6, 0.99))
def test_a_string_at_the_limit_is_found_with_the_power_asked_for(params, n, method, power):
    question = DetectionTest(1e4, power=power, method=method)
    limit = detection_limit(params, n, question)
    if limit < math.inf:
        assert detection_power(params, n, limit, question) == pytest.approx(power, abs=1e-4)


@examples(10)
@given(noises(), st.floats(5, 8).map(lambda power: 10.0**power), METHODS)
def test_reports_needed_for_the_limit_are_the_reports(params, n, method):
    question = DetectionTest(1e4, method=method)
    limit = detection_limit(params, n, question)
    if limit < 1:
        assert reports_needed(params, limit, question) == pytest.approx(n, rel=1e-3)


@examples(25)
@given(st.floats(2, 6), st.floats(0.01, 0.1))
def test_threshold_of_a_skewed_law_is_close_to_its_quantile(z, skewness):
    """Against the gamma law of that skewness."""
    shape = 4 / skewness**2
    quantile = (stats.gamma.isf(stats.norm.sf(z), shape) - shape) / math.sqrt(shape)
    assert corrected(z, skewness) == pytest.approx(quantile, rel=0.02)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"candidates": 0.5}, "candidates = 0.5"),
        ({"candidates": math.nan}, "candidates = nan"),
        ({"alpha": 0.0}, "alpha = 0"),
        ({"power": 0.5}, "power = 0.5"),
        ({"concentration": 2.0}, "concentration = 2"),
    ],
)
def test_questions_without_an_answer_are_refused(change, reason):
    with pytest.raises(PlanError, match=reason):
        DetectionTest(**{"candidates": 10.0, **change})
