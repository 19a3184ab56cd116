"""Scores of decodings that can be checked by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hubbub.simulations import DecodedShares, Score, held_shares, score


def score_of(
    truth: Sequence[float], share: Sequence[float], half_width: float, detected: Sequence[bool]
) -> Score:
    estimate = np.array(share)
    low, high = estimate - half_width, estimate + half_width
    return score(np.array(truth), DecodedShares(estimate, low, high, np.array(detected)))


def test_held_values_are_those_that_are_reported_and_equal_forms_are_one():
    holders = np.array([3, 1, 0, 4])
    shares = held_shares(("\u00e9", "e\u0301", "nobody's", "x"), holders)
    assert shares == {"\u00e9": 0.5, "x": 0.5}


def test_of_strings_that_were_not_found_nothing_is_known():
    known = np.array([0.5])
    found = DecodedShares(known, known, known, np.array([True]))
    extended = found.extended(3)
    assert extended.share[0] == 0.5
    assert np.isnan(extended.share[1:]).all()
    assert extended.detected.tolist() == [True, False, False]


def test_coverage_is_the_share_of_intervals_that_hold_the_truth():
    """Errors 0.05, 0.2, 0.1 (on the edge), 0.0; the second and the fourth are detected."""
    result = score_of(
        [0.25, 0.5, 0.125, 0.0], [0.3, 0.7, 0.25, 0.0], 0.125, [False, True, False, True]
    )
    assert result.interval_coverage == 0.75
    assert result.interval_coverage_detected == 0.5


def test_candidates_without_an_estimate_do_not_count_as_missed():
    result = score_of([0.5, 0.5], [0.5, math.nan], 0.1, [True, False])
    assert result.interval_coverage == 1
    assert result.total_variation == 0


def test_total_variation_takes_what_was_not_detected_as_one_string():
    """Detected: 0.5 for 0.4 and 0.1 for 0.3; the rest: 0.4 for 0.3. Half of 0.1 + 0.2 + 0.1."""
    result = score_of([0.4, 0.3, 0.3], [0.5, 0.1, 0.9], 0.1, [True, True, False])
    assert result.total_variation == pytest.approx(0.2)


def test_names_are_right_or_wrong_by_the_truth():
    result = score_of([0.5, 0.3, 0.0, 0.2], [0.5] * 4, 0.1, [True, False, True, False])
    assert (result.detected, result.true_positives, result.false_positives) == (2, 1, 1)
    assert result.false_negatives == 2
    assert result.recall == pytest.approx(1 / 3)
    assert result.precision == 0.5
    assert result.false_share == 0.5


def test_total_variation_over_all_strings_takes_missed_ones_as_zero():
    """0.5 estimated as 0.4; 0.3 missed; 0.2 not even listed; nobody's estimated as 0.1."""
    result = score_of([0.5, 0.3, 0.0], [0.4, 0.25, 0.1], 0.1, [True, False, True])
    assert result.total_variation_all == pytest.approx((0.1 + 0.3 + 0.2 + 0.1) / 2)


def test_total_variation_is_of_the_shares_that_add_up_if_there_are_any():
    """0.55 and 0.35 of 0.5 and 0.25: errors 0.05 and 0.1, the rest is 0.15 too small."""
    truth, share = np.array([0.5, 0.25]), np.array([0.7, 0.4])
    refit, detected = np.array([0.55, 0.35]), np.array([True, True])
    result = score(truth, DecodedShares(share, share - 0.3, share + 0.3, detected), refit)
    assert result.total_variation == pytest.approx(0.15)
    assert result.interval_coverage == 1
