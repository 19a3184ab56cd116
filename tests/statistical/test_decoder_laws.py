"""Laws of the string decoder that hold whatever the regime, over random ones.

A setting is a regime of its own: filters, noise, reports, shares, candidates and the unlisted are
all drawn (`evaluation.studies.regimes`). Up to twenty small ones are decoded in `make test`, two
hundred larger ones in `make test-long`. Settings are independent, so they are every bound's unit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from evaluation.studies.regimes import (
    ALPHA,
    LEVELS,
    METHODS,
    Collection,
    MethodScore,
    Regime,
    Trial,
    draw_crowded,
    draw_outnumbered,
    draw_regime,
    score,
    whole_list,
)
from hubbub.decoder import Decoding, decode
from hubbub.decoder.candidates import read_list
from hubbub.inference import ONCE_OF_REPORTS, FloatArray
from hubbub.protocol import RapporParams
from significance import ALARM

NUMBERS = ("share", "std_error", "low", "high", "p_value", "q_value", "detected")
SHARES = ("share", "low", "high")
SEED, MOST = 2, 200
Change = Callable[[Regime], Regime]


def of_settings(quick: int) -> pytest.MarkDecorator:
    """Run a test on so many settings in `make test`, and on all in `make laws`."""
    everything = pytest.param(MOST, id="all", marks=pytest.mark.nightly)
    return pytest.mark.parametrize("settings", [pytest.param(quick, id="quick"), everything])


def regime_of(number: int, small: bool) -> Regime:
    """Return a setting's regime, of which bits are counted."""
    return replace(draw_regime(SEED, number, 100 if small else 5_000), whole=False)


@cache
def decoded(number: int, small: bool) -> tuple[Regime, Collection, Decoding]:
    regime = regime_of(number, small)
    collection = regime.collect(0)
    return regime, collection, decode(collection.counts, regime.params, collection.candidates)


def scores(settings: int) -> list[MethodScore]:
    every = [decoded(number, settings < MOST) for number in range(settings)]
    return [score(collection.truth, decoding) for _, collection, decoding in every]


def found_in(regime: Regime, number: int) -> int:
    """Return how many held strings are found in one trial of a regime."""
    collection = regime.collect(number)
    decoding = decode(collection.counts, regime.params, collection.candidates)
    return int((decoding.detected & (collection.truth > 0)).sum())


def slack(values: Sequence[float] | FloatArray) -> float:
    """Return by how much a mean may miss its expectation, but with probability ALARM (Student)."""
    limit = float(stats.t.isf(ALARM, len(values) - 1))
    return limit * float(np.std(values, ddof=1)) / len(values) ** 0.5


def assert_same_rows(one: Decoding, rows: Sequence[int], other: Decoding) -> None:
    """Hold rows of one decoding against the same strings' of another, but for rounding.

    Of strings whose bits explain each other one has no share, and which one depends on the order.
    """
    assert [one.candidates[row] for row in rows] == list(other.candidates)
    unknown = np.isnan(one.share[rows]), np.isnan(other.share)
    assert np.count_nonzero(unknown[0]) == np.count_nonzero(unknown[1])
    both = ~(unknown[0] | unknown[1])
    for name in NUMBERS:
        old, new = (
            np.asarray(it, float) for it in (getattr(one, name)[rows], getattr(other, name))
        )
        # A tail is steep in what it is solved from; a share near 0 is known to a part of its error.
        part = 1e-5 if name in {"p_value", "q_value"} else 1e-6
        close = part * np.maximum(np.abs(new), other.std_error if name in SHARES else 0.0)
        assert (np.abs(old - new) <= close)[both].all(), name


@of_settings(6)
def test_the_order_of_candidates_changes_nothing(settings):
    """Exact but for rounding: no false alarm."""
    for number in range(settings):
        regime, collection, decoding = decoded(number, settings < MOST)
        order = np.random.default_rng(number).permutation(len(collection.candidates)).tolist()
        shuffled = [collection.candidates[row] for row in order]
        assert_same_rows(decoding, order, decode(collection.counts, regime.params, shuffled))


@of_settings(10)
def test_a_file_with_repeated_lines_gives_the_rows_of_a_list(settings, tmp_path):
    """Ten lines come twice. No false alarm."""
    for number in range(settings):
        regime, collection, decoding = decoded(number, settings < MOST)
        strings = [*collection.candidates, *collection.candidates[:10]]
        file = tmp_path / str(number)
        file.write_text("".join(f"{string}\n" for string in strings), encoding="utf-8")
        listed = read_list(str(file)).hashed(regime.params)
        found = decode(collection.counts, regime.params, listed)
        assert_same_rows(decoding, list(range(len(listed))), found)


def with_absent(number: int, small: bool) -> tuple[Decoding, Decoding]:
    """Return a setting's decoding, and the same rows where a tenth more candidates are absent."""
    regime, collection, decoding = decoded(number, small)
    n = len(collection.candidates)
    more = [f"{number} more {i}" for i in range(max(6, n // 10))]
    extended = decode(collection.counts, regime.params, [*collection.candidates, *more])
    return decoding, extended.only(np.arange(n))


@of_settings(10)
def test_absent_candidates_find_no_more_strings(settings):
    """Of the old list, true and false together, on average: by the bound of what is found."""
    pairs = [with_absent(number, settings < MOST) for number in range(settings)]
    gained = [int(after.detected.sum()) - int(before.detected.sum()) for before, after in pairs]
    assert np.mean(gained) < slack(gained)


def assert_finds_no_fewer(change: Change, settings: int) -> None:
    """Hold what is found after a change against what is found before.

    The mean over the settings of the difference isn't below 0 by more than Student's quantile
    (normal approximation of the mean): P(false alarm) < 1e-6, even if the change did nothing.
    """
    before, after = [], []
    for number in range(settings):
        regime, collection, decoding = decoded(number, settings < MOST)
        before.append(int((decoding.detected & (collection.truth > 0)).sum()))
        after.append(found_in(change(regime), 1))
    gained = np.subtract(after, before)
    assert sum(before) > settings
    assert gained.mean() > -slack(gained)


@of_settings(10)
def test_more_reports_find_no_fewer_strings(settings):
    assert_finds_no_fewer(lambda regime: replace(regime, reports=3 * regime.reports), settings)


@of_settings(10)
def test_less_noise_finds_no_fewer_strings(settings):
    assert_finds_no_fewer(lambda regime: replace(regime, params=quieter(regime.params)), settings)


def quieter(params: RapporParams) -> RapporParams:
    """Return parameters with four fifths of each chance that a bit is turned over."""
    f, p, q = params.f, params.p, params.q
    return RapporParams(*params[:3], 0.8 * f, 0.8 * p, 1 - 0.8 * (1 - q))


@pytest.mark.nightly
def test_another_alphabet_finds_as_many_strings():
    """200 settings whose strings are Greek: as many are found on average, by the same bound."""
    gained = []
    for number in range(MOST):
        regime, collection, decoding = decoded(number, small=False)
        greek = replace(regime, name=f"ελληνικά {number}")
        found = int((decoding.detected & (collection.truth > 0)).sum())
        gained.append(found_in(greek, 0) - found)
    assert abs(np.mean(gained)) < slack(gained)


@of_settings(20)
def test_intervals_hold_the_truth_95_times_in_a_hundred(settings):
    """All intervals, and those of present and of detected strings, pooled over the settings.

    No setting counts for more than thirty intervals. The mean is within 93% to 97%, widened by
    Student's quantile times its standard error (normal approximation): P(false alarm) < 1e-6.
    """
    for part in ("everyone", "present", "detected"):
        held, intervals = np.array([getattr(s, part) for s in scores(settings)]).T
        weights = np.minimum(intervals, 30)
        hits = np.where(intervals > 0, held / np.maximum(intervals, 1), 0.0) * weights
        coverage = hits.sum() / weights.sum()
        allowed = slack((hits - coverage * weights) / weights.mean())
        assert 0.93 - allowed < coverage < 0.97 + allowed, part


@of_settings(20)
def test_false_names_are_at_most_alpha_of_the_detected(settings):
    """The mean share over the settings; the bound is widened as that of intervals."""
    shares = [score.false_share for score in scores(settings)]
    assert np.mean(shares) < ALPHA + slack(shares)


def scored(regime: Regime, run: int) -> MethodScore:
    collection = regime.collect(run)
    decoding = decode(
        collection.counts, regime.params, collection.candidates, repeats=ONCE_OF_REPORTS
    )
    return score(collection.truth, decoding)


@of_settings(20)
def test_crowded_lists_keep_their_promises(settings):
    """About as many candidates as rows: the share of false names, and the detected's coverage.

    Bounds are widened as those above, for 1e-6 each; no setting counts for more than thirty
    intervals.
    """
    most = 200 if settings < MOST else 1_200
    of_crowded = [scored(draw_crowded(SEED, number, most), 0) for number in range(settings)]
    shares = [score.false_share for score in of_crowded]
    assert np.mean(shares) < ALPHA + slack(shares)
    held, intervals = np.array([score.detected for score in of_crowded]).T
    weights = np.minimum(intervals, 30)
    hits = held / np.maximum(intervals, 1) * weights
    coverage = hits.sum() / weights.sum()
    assert coverage > 0.93 - slack((hits - coverage * weights) / weights.mean())


@of_settings(20)
def test_p_values_of_absent_strings_are_uniform_down_to_one_in_ten_thousand(settings):
    """Absent strings' bits are independent of the reports and of each other, so p-values are, too.

    At each level their number is below its exact binomial bound, and above it in settings whose
    scores aren't few: there p-values are larger. P(false alarm) < 1e-6 for each level.
    """
    counted = np.array([score.p_values for score in scores(settings)])
    many = [
        _has_many_scores(regime_of(number, settings < MOST).params) for number in range(settings)
    ]
    *reached, n = counted.sum(axis=0)
    *least, n_many = counted[many].sum(axis=0)
    for level, most, few in zip(LEVELS, reached, least, strict=True):
        assert most <= stats.binom.isf(ALARM / 2, n, level), level
        assert few >= stats.binom.ppf(ALARM / 2, n_many, level), level


@of_settings(10)
def test_candidates_that_outnumber_rows_have_honest_p_values(settings):
    """One to six cohorts: false names are at most alpha, and absent strings' p-values uniform.

    Random effects know of each other, so up to 1.3 times the level is allowed, as q-values allow a
    fifth. Beyond that P(false alarm) < 1e-6 for each bound (exact binomial; Student).
    """
    most = 300 if settings < MOST else 1_200
    found = [scored(draw_outnumbered(SEED, number, most), 0) for number in range(settings)]
    shares = [score.false_share for score in found]
    assert np.mean(shares) < ALPHA + slack(shares)
    assert_small_p_values_are_rare(found)


def assert_small_p_values_are_rare(found: Sequence[MethodScore]) -> None:
    *reached, n = np.sum([score.p_values for score in found], axis=0)
    for level, most in zip(LEVELS, reached, strict=True):
        assert most <= stats.binom.isf(ALARM, n, 1.3 * level), level


@pytest.mark.nightly
def test_p_values_are_honest_where_feedback_is_strongest():
    """168 rows of one cohort for 395 candidates, by the bounds above.

    As random effects .0029 lie below .001.
    """
    regime = replace(draw_regime(7101, 8), whole=False)
    assert_small_p_values_are_rare([scored(regime, run) for run in range(80)])


@cache
def whole_trials() -> list[tuple[Regime, list[Trial]]]:
    """Return trials of settings whose few reports are decoded whole, by every method."""
    trials = []
    for number in range(60):
        regime = draw_regime(SEED + 1, number, 500)
        regime = replace(regime, reports=min(regime.reports, 20_000), whole=True)
        trials.append((regime, [regime.run(run) for run in range(2)]))
    return [
        (regime, runs)
        for regime, runs in trials
        if all(set(METHODS) <= run.methods.keys() for run in runs)
    ]


@pytest.mark.nightly
def test_the_choice_of_method_costs_at_most_a_twentieth_on_average():
    """Errors and found strings beside those of the method that turns out better, by setting.

    Which is better is known afterwards alone, so that even the right choice loses a little. The
    bounds are widened as those of intervals.
    """
    errors, missed = [], []
    for _, runs in whole_trials():
        error = {name: sum(run.methods[name].error for run in runs) for name in METHODS}
        found = {name: sum(run.methods[name].found for run in runs) for name in METHODS}
        errors.append((error["auto"] / min(error.values())) ** 0.5)
        missed.append(max(found.values()) - 1.05 * found["auto"])
    assert np.mean(errors) < 1.05 + slack(errors)
    assert np.mean(missed) < slack(missed)


@cache
def powers() -> list[tuple[int, int, int]]:
    """Return what is found by the decoder, by the genie and by the oracle in all settings.

    Of those alone in which the genie finds six strings or more, and rows of bits are enough to
    tell which of the n candidates the v held strings are: more than 4 v ln(1 + n / v).
    """
    found = []
    for number in range(MOST):
        regime, collection, decoding = decoded(number, small=False)
        held, params = len(regime.shares), regime.params
        genie, oracle = regime.bounds(collection)
        enough = 4 * held * np.log1p(regime.candidates / held)
        if genie >= 6 and params.k * params.m > enough:
            found.append((score(collection.truth, decoding).found, genie, oracle))
    return found


@pytest.mark.nightly
def test_as_many_strings_are_found_as_with_known_holders():
    """At least 95% of the oracle's on average; the bound is lowered as that of intervals."""
    found = [found / max(oracle, 1) for found, _, oracle in powers()]
    assert np.mean(found) > 0.95 - slack(found)


@pytest.mark.nightly
def test_the_choice_of_method_finds_the_rarest_of_four_strings():
    """Counts find all four in every run; so the choice, which may lose a twentieth, misses few.

    In a run it misses one with chance at most 4 (1 - 1 / 1.05) = .19 (Markov): the number of such
    runs has a binomial bound. P(false alarm) < 1e-6.
    """
    params, shares = RapporParams(32, 2, 32, 0.0, 0.1, 0.9), np.array([0.4, 0.3, 0.2, 0.1])
    regime = whole_list("four strings", params, 3_000, shares, 100)
    runs = [regime.run(run).methods for run in range(48)]
    assert all(run["counts"].found == 4 for run in runs)
    missed = sum(run["auto"].found < 4 for run in runs)
    assert missed <= stats.binom.isf(ALARM, len(runs), 4 * (1 - 1 / 1.05))


CLEAR = [replace(draw_regime(3, number, 500), whole=True) for number in (26, 38)]
"""One hash and little noise: single bits don't say what whole reports do of frequent strings."""


@pytest.mark.nightly
@pytest.mark.parametrize("regime", CLEAR, ids=lambda regime: regime.name)
def test_the_choice_of_method_is_nowhere_worse_by_more_than_a_twentieth(regime):
    """40 runs, of which the first 10 say which method is better, and the others by how much.

    The mean of the paired differences isn't above 0 by more than Student's quantile (normal
    approximation of the mean): P(false alarm) < 1e-6 for errors, and for found strings.
    """
    runs = [replace(regime, reports=min(regime.reports, 20_000)).run(run) for run in range(40)]
    for name, sign in (("error", -1), ("found", 1)):
        value = {
            method: np.array([sign * getattr(run.methods[method], name) for run in runs])
            for method in METHODS
        }
        better = max(("counts", "likelihood"), key=lambda method: value[method][:10].mean())
        allowed = 1.05**2 if name == "error" else 1 / 1.05
        lost = allowed * value[better][10:] - value["auto"][10:]
        assert lost.mean() <= slack(lost), (name, better)


@pytest.mark.nightly
def test_nearly_all_is_found_that_the_genie_finds():
    """At least 95% on average over settings in which counts can tell which strings are held.

    The bound is lowered as those of intervals are widened. In the lowest tenth of them the genie
    knows what no counts tell: who only knows which strings are held finds as little there.
    """
    found = [found / genie for found, genie, _ in powers()]
    assert np.mean(found) > 0.95 - slack(found)


def _has_many_scores(params: RapporParams) -> bool:
    return params.m * params.h * np.log2(params.k) > 20
