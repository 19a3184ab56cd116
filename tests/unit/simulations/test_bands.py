"""Precision and recall by share, on decodings that can be checked by hand."""

import math

import numpy as np

from hubbub.simulations.experiments.scoring import bands, p_values_below


def test_strings_are_sorted_by_true_share_for_recall_and_by_estimate_for_precision():
    truth = np.array([0.2, 0.05, 0.02, 0.0, 0.0])
    share = np.array([0.09, 0.04, 0.0, 0.15, 0.0])
    detected = np.array([True, True, False, True, False])
    *_, middle, top = bands(truth, share, detected)
    assert (top.present, top.found, top.reported, top.right) == (1, 1, 1, 0)
    assert (middle.present, middle.found, middle.reported, middle.right) == (2, 1, 2, 2)
    assert (top.recall, top.precision) == (1.0, 0.0)
    assert (middle.recall, middle.precision) == (0.5, 1.0)


def test_bands_without_strings_have_neither():
    first = bands(np.array([0.5]), np.array([0.5]), np.array([True]))[0]
    assert math.isnan(first.recall)
    assert math.isnan(first.precision)


def test_p_values_are_counted_for_absent_candidates_alone():
    p_value = np.array([1e-9, 0.04, 0.2, 0.9, np.nan])
    truth = np.array([0.5, 0.0, 0.0, 0.0, 0.0])
    below = p_values_below(p_value, truth)
    assert below["0.05"] == 1 / 3
    assert below["0.5"] == 2 / 3
    assert below["0.001"] == 0


def test_without_absent_candidates_there_is_nothing_to_say():
    assert all(math.isnan(v) for v in p_values_below(np.array([0.5]), np.array([1.0])).values())
