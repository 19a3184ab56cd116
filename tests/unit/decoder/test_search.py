"""The search settles: short lists go in whole, long ones by proposal, and never too many."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import Correction
from hubbub.inference.arrays import FloatArray
from hubbub.inference.regression import search as module
from hubbub.inference.regression.search import Search, SearchResult
from significance import ALARM
from unit.decoder.models import candidates_of, design_of, noisy_bits

WIDE = make_params(k=64, h=2, m=16)
NARROW = make_params(k=8, h=2, m=16)
STRONG = np.array([0.3, 0.2, 0.1, 0.1])


def settled(
    n: int,
    shares: FloatArray,
    params: RapporParams = WIDE,
    n_reports: float = 1e6,
) -> SearchResult:
    """Search a list of n strings, of which the first ones have these shares."""
    rng = np.random.default_rng(11)
    bits = noisy_bits(design_of(len(shares), params), rng, shares, n_reports, params)
    log_alpha = float(np.log(0.05))
    return Search(bits, candidates_of(n, params), params, log_alpha, Correction.BH).run()


def detected(found: SearchResult, level: float = 1e-4) -> list[int]:
    """Return those whose p-value is below a level; by default, any correction would let pass."""
    return np.flatnonzero(found.log_p < np.log(level)).tolist()


def test_few_candidates_are_all_free():
    """100 of 1,024 rows."""
    found = settled(100, STRONG)
    np.testing.assert_array_equal(found.fit.selected, np.arange(100))
    assert not found.fit.penalties.any()
    assert detected(found) == [0, 1, 2, 3]


@cache
def weak_among(n: int, weak: int, *, effects: bool) -> SearchResult:
    """Search some for 1,024 rows; beside four strong strings a few or many hold 40% together.

    With random effects where they make errors smaller, as always, or without them.
    """
    shares = np.concatenate([STRONG * 0.8, np.full(weak, 0.4 / weak)])
    with pytest.MonkeyPatch.context() as patch:
        if not effects:
            patch.setattr(module, "_NEGLIGIBLE_PART", np.inf)
        return settled(n, shares, n_reports=1e5)


@pytest.mark.parametrize("weak", [4, 100])
def test_random_effects_are_kept_where_they_make_errors_smaller(weak):
    """Few weak strings are all detected; of many, those that aren't widen every error."""
    kept, searched = (weak_among(600, weak, effects=effects) for effects in (True, False))
    assert kept.fit.penalties.any() == (weak == 100)
    assert (kept.estimates.typical_error < searched.estimates.typical_error) == (weak == 100)


def test_of_many_candidates_that_seem_absent_only_the_detected_take_part():
    """900 of 1,024 rows, of which 40 hold weak shares."""
    shares = np.concatenate([STRONG, np.full(40, 0.003)])
    found = settled(900, shares)
    assert not found.fit.penalties.any()
    assert {0, 1, 2, 3} <= set(found.fit.selected.tolist()) <= set(detected(found, 0.05))
    assert found.settled


def test_crowded_lists_are_fixed_effects_if_they_seem_present():
    """44 of 128 rows, all present: more than a third."""
    found = settled(44, np.full(44, 1 / 44), NARROW, 1e9)
    assert len(found.fit.selected) == 44
    assert not found.fit.penalties.any()


def test_random_effects_find_more_of_many_weak_strings():
    """Of 104 strings among 600 a search finds 60; the seed is fixed, and 85 leaves room."""
    assert np.count_nonzero(weak_among(600, 100, effects=True).detected) >= 85
    assert np.count_nonzero(weak_among(600, 100, effects=False).detected) <= 65


def test_crowded_lists_are_random_effects_if_part_of_them_is_present():
    """64 of 128 rows, a third of them present: as fixed effects they have larger errors."""
    found = settled(64, np.full(20, 1 / 20), NARROW, 1e6)
    assert found.fit.selected.tolist() == list(range(64))
    assert (found.fit.penalties[1:] > 0).all()


def test_absent_ones_of_far_more_candidates_than_rows_have_no_small_p_values():
    """400 for 128 rows, 40% of which are there, as random effects; P(false alarm) < 1e-6."""
    found = settled(400, np.full(160, 1 / 160), NARROW, 1e7)
    assert found.fit.penalties.any()
    small = np.count_nonzero(found.log_p[160:] <= np.log(0.01))
    assert small <= stats.binom.isf(ALARM, 240, 0.01)


def test_models_that_were_found_in_the_same_reports_raise_q_values():
    """Those of a short list as fixed effects weren't."""
    assert settled(100, STRONG).allowance == 1
    crowded = settled(64, np.full(20, 1 / 20), NARROW, 1e6)
    assert crowded.fit.penalties.any()
    assert crowded.allowance == module.SEARCHED


def test_long_lists_hold_what_is_detected():
    found = settled(module.MOST_LISTED + 800, STRONG)
    assert found.fit.selected.tolist() == [0, 1, 2, 3] == detected(found)
    assert not found.fit.penalties.any()


@pytest.mark.parametrize("n", [3, module.MAX_NEAR, module.MAX_NEAR + 3, 20_000])
def test_those_that_stand_out_are_the_first_in_order(n, rng):
    """P-values in a thousand steps: of equal ones the first in the list stand out."""
    log_p = np.log(np.ceil(1000 * rng.random(n) ** 3) / 1000)
    near, best = module.top_scoring(log_p)
    order = np.argsort(log_p, kind="stable")
    assert near.tolist() == sorted(order[: module.MAX_NEAR].tolist())
    strong = [row for row in order[:1000].tolist() if log_p[row] < stats.norm.logsf(2)]
    assert best.tolist() == sorted(strong)


@pytest.mark.parametrize(("k", "m", "n"), [(64, 2, 200), (16, 7, 200), (64, 2, 120)])
def test_decoys_are_listed_where_candidates_outnumber_the_rows_of_few_cohorts(k, m, n):
    found = settled(n, np.full(40, 0.02), make_params(k=k, h=2, m=m))
    assert found.fit.penalties.any()
    assert (found.tests.feedback is not None) == (m <= 6 and n > k * m)
    assert found.allowance == (1.0 if found.tests.feedback else module.SEARCHED)


def test_either_way_gives_the_same_shares(monkeypatch):
    """Of 300 candidates, four of them strong: both ways within half a standard error."""
    whole = settled(300, STRONG)
    monkeypatch.setattr(module, "MOST_LISTED", 10)
    proposed = settled(300, STRONG)
    assert detected(proposed) == detected(whole) == [0, 1, 2, 3]
    off = (proposed.estimates.share - whole.estimates.share) / whole.estimates.std_error
    assert np.abs(off[:4]).max() < 2
    assert (proposed.estimates.std_error[:4] < 1.1 * whole.estimates.std_error[:4]).all()


@pytest.mark.parametrize("n", [1, 2, 5, 250, 1500])
@pytest.mark.parametrize("params", [make_params(k=8, m=1), make_params(k=8, m=4), WIDE,
                                    make_params(k=1024, m=1)], ids=str)  # fmt: skip
def test_every_shape_settles(n, params):
    found = settled(n, np.array([0.5]), params, 1e4)
    assert (found.log_p <= 0).all()
    known = ~np.isnan(found.estimates.share)
    assert (found.estimates.std_error[known] > 0).all()


@pytest.mark.parametrize("n", [5, 250, 1500])
@pytest.mark.parametrize("params", [make_params(k=8, m=4), WIDE], ids=str)
def test_searches_settle_again_the_same(n, params):
    first, second = (settled(n, np.array([0.5]), params, 1e4) for _ in range(2))
    np.testing.assert_array_equal(first.log_p, second.log_p)
    np.testing.assert_array_equal(first.estimates.share, second.estimates.share)
