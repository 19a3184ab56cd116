"""What errors are about: the population that reports were drawn from, or the reports alone."""

import numpy as np
import pytest

from evaluation.drawn_counts import draw_counts
from factories import make_metric, make_params
from hubbub.decoder import CohortCounts
from hubbub.inference import ONCE, ONCE_OF_REPORTS, RepeatedReports, decode, decode_categories
from hubbub.protocol import EnumType

PARAMS = make_params(64, 2, 16, f=0.0, p=0.25, q=0.75)
NAMES = [f"name {i}" for i in range(40)]
SHARES = np.array([0.5, 0.3, 0.15, 0.05] + 36 * [0.0])
REPORTS = 20_000
TWICE = RepeatedReports(2.0, 2.0)


@pytest.fixture(scope="module")
def counts() -> CohortCounts:
    return draw_counts(NAMES, SHARES, PARAMS, REPORTS, np.random.default_rng(5))


@pytest.mark.parametrize("repeats", [ONCE, TWICE], ids=["once", "twice"])
def test_strings_of_a_population_have_the_drawing_of_clients_in_their_errors(counts, repeats):
    ours = decode(counts, PARAMS, NAMES, repeats=repeats)
    alone = decode(counts, PARAMS, NAMES, repeats=ONCE_OF_REPORTS)
    share = np.clip(alone.share, 0, 1)
    added = repeats.clients * share * (1 - share) / REPORTS
    np.testing.assert_allclose(ours.std_error**2, alone.std_error**2 + added)
    np.testing.assert_allclose(ours.sampling_variance, added)
    assert not alone.sampling_variance.any()
    assert (ours.high - ours.low >= alone.high - alone.low - 1e-3).all()
    assert ours.summary.unknown_std_error >= alone.summary.unknown_std_error


def test_detection_does_not_depend_on_the_estimand(counts):
    decodings = [decode(counts, PARAMS, NAMES, repeats=each)
                 for each in (ONCE, TWICE, ONCE_OF_REPORTS)]  # fmt: skip
    for other in decodings[1:]:
        np.testing.assert_array_equal(other.p_value, decodings[0].p_value)
        np.testing.assert_array_equal(other.detected, decodings[0].detected)
        np.testing.assert_array_equal(other.share, decodings[0].share)


def test_categories_of_the_reports_have_noise_alone():
    """Of so little noise that hardly anything else than the drawing of clients is left."""
    params = make_params(8, 1, 1, f=0.0, p=0.001, q=0.999)
    metric = make_metric(metric_type=EnumType(("a", "b", "c")), params=params)
    shares = np.array([0.6, 0.3, 0.1])
    drawn = draw_counts("abc", shares, params, 50_000, np.random.default_rng(1), metric.type)
    ours, alone = (
        decode_categories(drawn, metric, repeats=each).estimates for each in (ONCE, ONCE_OF_REPORTS)
    )
    possible = ours.share
    drawing = (np.diag(possible) - np.outer(possible, possible)) / 50_000
    np.testing.assert_allclose(ours.covariance - alone.covariance, drawing, rtol=0.01, atol=1e-10)
    assert (alone.std_error < 0.1 * ours.std_error).all()


def test_intervals_about_the_reports_hold_what_these_hold():
    """500 enums of 4; P(false alarm) < 1e-6 at a coverage of .93 to .97 (normal)."""
    params = make_params(8, 1, 1, f=0.0, p=0.05, q=0.95)
    metric = make_metric(metric_type=EnumType(tuple("abcd")), params=params)
    held = []
    for seed in range(500):
        rng = np.random.default_rng(seed)
        people = rng.multinomial(2_000, [0.4, 0.3, 0.2, 0.1])
        ones = rng.binomial(people, params.q_star) + rng.binomial(2_000 - people, params.p_star)
        rest = rng.binomial(2_000, params.p_star, size=4)
        drawn = CohortCounts(np.array([2_000]), np.concatenate([ones, rest])[None])
        found = decode_categories(drawn, metric, repeats=ONCE_OF_REPORTS).interval
        truth = people / 2_000
        held.append(((found.low <= truth) & (truth <= found.high)).mean())
    room = 5 * np.std(held, ddof=1) / np.sqrt(len(held))
    assert 0.93 - room <= np.mean(held) <= 0.97 + room
