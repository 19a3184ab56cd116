"""The decoder's errors are as rare as it says, over many populations of known truth.

A run is one population of new strings, new people and new coins; runs are independent, candidates
of one run are not. So where candidates of a run share an error, the run is the unit of every bound.
Documented limits that are no one's promise, and not tested here: intervals of *detected* strings
alone hold the truth less often (the detected are those that came out high), and the correlations
between the bits of one report are not in the standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from calibration.cases import CASES, LOOSE, PAPER, SMALL, made_up_case
from calibration.trials import (
    Case,
    Collected,
    collect,
    count_fleet,
    decode_collected,
    score_decoding,
)
from calibration.worlds import exponential, uniform, zipf
from hubbub.decoder import Correction, Decoding, decode
from hubbub.simulations.scoring import Score
from significance import ALARM, frequency_z, z_limit

ALPHA = 0.05
POPULATED = (
    made_up_case("paper's", PAPER, 50_000, zipf(60), absent=140),
    made_up_case("loose", LOOSE, 20_000, zipf(60), absent=140),
    made_up_case("small filter", SMALL, 50_000, zipf(40), absent=60),
    made_up_case("a third not listed", LOOSE, 20_000, exponential(60, 0.9), 3, absent=140),
)
NOBODY_PRESENT = (
    made_up_case("paper's", PAPER, 20_000, zipf(40), unlisted_every=1, absent=200),
    made_up_case("small filter", SMALL, 20_000, zipf(20), unlisted_every=1, absent=200),
    made_up_case("few reports", LOOSE, 5_000, exponential(20, 0.7), unlisted_every=1, absent=200),
)
FEW_TRUE = (
    made_up_case("paper's", PAPER, 50_000, uniform(20), absent=180),
    made_up_case("loose", LOOSE, 30_000, uniform(20), absent=180),
)
ALL_STRONG = (
    made_up_case("loose", LOOSE, 50_000, uniform(30), unlisted_every=3, absent=50),
    made_up_case("small filter", SMALL, 200_000, uniform(15), unlisted_every=3, absent=20),
)
MANY_RARE = (
    made_up_case("paper's", PAPER, 50_000, uniform(300), unlisted_every=1, absent=200),
    made_up_case("loose", LOOSE, 20_000, uniform(300), unlisted_every=1, absent=200),
)
DEMO = CASES[-1]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep linear algebra to one core: its threads wait for each other if tests run in parallel."""
    with threadpool_limits(1):
        yield


def runs(
    case: Case, n: int, correction: Correction = Correction.BONFERRONI
) -> list[tuple[Collected, Decoding]]:
    """Return n independent runs of a case."""
    collected = [collect(case, seed) for seed in range(n)]
    return [(run, decode_collected(run, case.params, correction)) for run in collected]


def scores(case: Case, n: int, correction: Correction) -> list[Score]:
    return [score_decoding(run, decoding) for run, decoding in runs(case, n, correction)]


def most_of(n: int, chance: float, alarm: float = ALARM) -> int:
    """Return the most successes of n that aren't alarming, if each has at most that chance."""
    return int(stats.binom.isf(alarm, n, chance))


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", POPULATED, ids=by_name)
def test_95_percent_intervals_hold_the_truth_95_times_in_a_hundred(case: Case) -> None:
    """Mean over 60 runs of the share of all 100 to 200 intervals that hold the truth.

    A run's share has a measured sd of at most 0.024, so the mean's is 0.0031, and the mean of 60 is
    near enough normal. The bounds 0.95 +- 0.02 are 4.9 of those beyond a bias of 0.005 (measured:
    at most 0.0034 over 200 other runs), so P(false alarm) < 1e-6.
    """
    coverage = [score.interval_coverage for score in scores(case, 60, Correction.BH)]
    assert np.std(coverage) < 0.04
    assert 0.93 < np.mean(coverage) < 0.97


@pytest.mark.parametrize("case", NOBODY_PRESENT, ids=by_name)
def test_absent_names_are_hardly_ever_detected_and_their_p_values_are_uniform(case: Case) -> None:
    """100 runs of 200 candidates that nobody holds.

    Runs with any detection: at most as many as a binomial(100, 0.05) exceeds once in 1e6. A
    candidate's hash is independent of the reports and of the other candidates, so given the
    reports the 20,000 p-values are independent: at 0.5 and 0.1 their number is within its normal
    bound on both sides, and at 0.01 and 0.001, where few reports make them larger than uniform,
    within its binomial bound. P(false alarm) < 1e-6 for each of the three kinds.
    """
    decodings = [decoding for _, decoding in runs(case, 100)]
    assert sum(bool(d.detected.any()) for d in decodings) <= most_of(len(decodings), ALPHA)
    p_values = np.concatenate([decoding.p_value for decoding in decodings])
    n, levels = len(p_values), np.array([0.5, 0.1])
    reached = (p_values[:, None] <= levels).sum(axis=0)
    assert np.abs(frequency_z(reached, n, levels)).max() < z_limit(2)
    for level in (0.01, 0.001):
        assert (p_values <= level).sum() <= most_of(n, level, ALARM / 2)


@pytest.mark.parametrize("case", FEW_TRUE, ids=by_name)
def test_share_of_false_names_stays_below_alpha(case: Case) -> None:
    """Benjamini-Hochberg over 60 runs where a tenth of the candidates is present.

    The expected share of false names is at most 0.05 x 9/10. A run's share has a measured sd of at
    most 0.042, so the mean's is 0.0054; five of those are added. P(false alarm) < 1e-6.
    """
    results = scores(case, 60, Correction.BH)
    false_share = np.mean([score.false_positives / max(score.detected, 1) for score in results])
    assert all(score.true_positives > 0 for score in results)
    assert false_share < 0.9 * ALPHA + 5 * 0.0054


def detections_at(case: Case, multiple: float, n: int) -> int:
    """Plant five strings of so many detection limits each in n runs; count those detected."""
    planted = 5
    limit = np.mean([d.summary.detection_limit for _, d in runs(case, 10)])
    each = round(multiple * float(limit) * case.reports)
    found = 0
    for seed in range(1_000, 1_000 + n):
        rng = np.random.default_rng(seed)
        world = case.world(seed)
        values = world.candidates[:planted] + world.population.values
        others = rng.integers(planted, len(values), size=case.reports - planted * each)
        held = np.concatenate([np.repeat(np.arange(planted), each), others])
        counts = count_fleet(values, held, case.params, rng)
        decoding = decode(counts, case.params, world.candidates, correction=Correction.BONFERRONI)
        found += int(decoding.detected[:planted].sum())
    return found


@pytest.mark.parametrize(
    ("case", "power"), [(MANY_RARE[0], 0.86), (MANY_RARE[1], 0.82)], ids=["paper's", "loose"]
)
def test_detection_limit_is_a_share_found_nine_times_in_ten(case: Case, power: float) -> None:
    """Strings of the limit's share: 500, in 100 runs.

    The limit goes by a typical candidate's standard error, which is an absent one's. A present
    string's own bits are noisier, so the measured power is 0.89 (paper's) and 0.85 (loose); the
    bounds are a binomial(500, .)'s from a little below that to 0.9. P(false alarm) < 1e-6.
    """
    fewest, most = stats.binom.ppf(ALARM / 2, 500, power), stats.binom.isf(ALARM / 2, 500, 0.9)
    assert fewest <= detections_at(case, 1, 100) <= most


@pytest.mark.parametrize("case", MANY_RARE, ids=by_name)
def test_twice_the_detection_limit_is_found_nearly_always(case: Case) -> None:
    """Of 200 strings one may be missed: a miss lies 5 sd off, so two are rarer than 1e-8."""
    assert detections_at(case, 2, 40) >= 199


@pytest.mark.parametrize("case", ALL_STRONG, ids=by_name)
def test_unknown_share_is_within_its_errors_where_a_third_is_not_listed(case: Case) -> None:
    """Listed strings lie far above the detection limit: none is detected for coming out high.

    Over 60 runs the errors are standard normal: none beyond z_limit, mean within 4.9 / sqrt(60),
    sum of squares within chi-squared's quantiles. P(false alarm) < 1e-6 for each of the three. And
    standard errors are below 0.03, so "within its errors" says that it is a third.
    """
    summaries = [(run, decoding.summary, decoding.detected) for run, decoding in runs(case, 60)]
    std_errors = np.array([summary.unknown_std_error for _, summary, _ in summaries])
    truth = np.array([1 - run.truth[detected].sum() for run, _, detected in summaries])
    shares = np.array([summary.unknown_share for _, summary, _ in summaries])
    errors, n = (shares - truth) / std_errors, len(summaries)
    assert std_errors.max() < 0.03
    assert abs(truth.mean() - 1 / 3) < 0.02
    assert np.abs(errors).max() < z_limit(n)
    assert abs(errors.mean()) * np.sqrt(n) < z_limit()
    low, high = stats.chi2.interval(1 - ALARM, n)
    assert low < (errors**2).sum() < high


def test_demonstration_finds_fifteen_names_or_more_and_no_false_one() -> None:
    """The demo's parameters and population: 91,910 candidates, 500,000 reports, 8 runs.

    28 names are found on average over 40 runs. Each has its own power, given its share and the
    standard error of 0.0009; the sum of such independent coins has an sd of 2.7 and is below 15
    with probability 1e-8 at most. Runs with a false name: no more than a binomial(8, 0.05) exceeds
    once in 1e6. Coverage has an sd of 0.001 a run, so the bounds are 10 of those away.
    """
    results = scores(DEMO, 8, Correction.BONFERRONI)
    assert min(score.true_positives for score in results) >= 15
    assert sum(score.false_positives > 0 for score in results) <= most_of(8, ALPHA)
    assert all(0.94 < score.interval_coverage < 0.96 for score in results)
