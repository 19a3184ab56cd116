"""When whole reports are worth the time, and what is said of it."""

from dataclasses import replace

import numpy as np
import pytest

from cramer_rao import error_bound, expected_reports
from factories import make_params
from hubbub.decoder import Decoding, count_records, decode
from hubbub.inference.candidates import hashed
from hubbub.inference.likelihood.choice import (
    FEW_DECIDE,
    NO_SHARE,
    Choice,
    Method,
    expected_seconds,
    is_worthwhile,
    surer,
    variance_gain,
)
from hubbub.inference.likelihood.sums import ReportMixture
from hubbub.inference.packed import pack
from unit.decoder.decodings import make_decoding
from unit.decoder.packed import members_of, records_of


def test_gain_of_two_hashes_is_half_the_contrast():
    """((1 + c)^2 - 1) / (2c) - 1 = c/2; here p* = .375, q* = .625, c = 4/15."""
    assert variance_gain(make_params()) == pytest.approx(2 / 15)


def test_one_hash_gains_nothing():
    assert variance_gain(make_params(h=1)) == pytest.approx(0, abs=1e-12)
    worthwhile, why = is_worthwhile(make_params(h=1), 10**6, 100)
    assert (worthwhile, why) == (False, "whole reports would tell no more of rare strings")


def test_little_gain_is_not_worthwhile():
    worthwhile, why = is_worthwhile(make_params(f=0.75, p=0.35, q=0.65), 10**6, 100)
    assert (worthwhile, why) == (
        False,
        "decoding whole reports would reduce variances by only 1.1%",
    )


def test_gain_is_what_the_information_of_a_rare_string_says():
    """A string of share 0 beside the unknown alone, its bits apart: exact for k = 16, h = 2.

    From bit counts, each of the two bits brings contrast c a report; from whole reports it is
    (1 + c)^2 - 1. The unknown string, which all bits share, takes away a part of either.
    """
    params = make_params(k=16, h=2, m=8, f=0.0, p=0.25, q=0.75)
    strings = members_of([f"string {i}" for i in range(20)], params)
    apart = strings[(strings < params.k).all(axis=(1, 2))][:1]
    assert len(apart) == 1
    total = 10_000
    reports = expected_reports(params, apart, np.array([1.0, 0.0]), total)
    bound = error_bound(ReportMixture(reports, apart, 1), np.array([1.0, 0.0]))[1]
    contrast = (params.q_star - params.p_star) ** 2 / (params.p_star * (1 - params.p_star))
    alone = 1 / (total * ((1 + contrast) ** 2 - 1))
    assert 1 < bound**2 / alone < 2


def test_worthwhile_gains_are_put_in_words():
    worthwhile, why = is_worthwhile(make_params(), 100_000, 100)
    assert worthwhile
    assert why == "bit counts alone would have variances at least 13% larger"


def test_nobody_waits_who_did_not_ask_for_it():
    """A million reports take most of a minute with 400 candidates; few reports, few seconds."""
    worthwhile, why = is_worthwhile(make_params(), 10**6, 400)
    assert not worthwhile
    assert "would reduce variances by 12% or more, but take about" in why
    assert why.endswith("seconds (--method likelihood)")
    assert is_worthwhile(make_params(), 20_000, 400)[0]


def test_what_takes_a_second_is_tried_whatever_is_expected_of_it():
    """Crowded filters and short lists gain more than strings whose bits are their own."""
    assert is_worthwhile(make_params(h=1), 10_000, 20)[0]
    assert not is_worthwhile(make_params(h=1), 1_000_000, 20)[0]


@pytest.mark.parametrize("candidates", [10**3, 10**5, 10**6])
def test_a_million_reports_take_longer_the_longer_the_list(candidates):
    """Bit counts take .35 seconds for 100,000 candidates: twice that is within the 5 seconds."""
    seconds = expected_seconds(make_params(), 10**6, candidates)
    assert seconds > expected_seconds(make_params(), 10**6, candidates // 10)
    assert not is_worthwhile(make_params(), 10**6, candidates)[0]


def test_filters_that_can_not_be_tabulated_are_not_worthwhile():
    worthwhile, why = is_worthwhile(make_params(h=3), 10**6, 100)
    assert not worthwhile
    assert "too many sets of bits" in why


def test_equal_reports_of_few_bits_cost_their_kinds_only():
    params = make_params(k=8, m=32)
    assert expected_seconds(params, 10**9, 100) == expected_seconds(params, 10**6, 100)


def decoding_with(error: float, spread: float = float("nan")) -> Decoding:
    """Return a decoding whose standard errors are all the same."""
    decoding = make_decoding(["alpha", "beta"])
    return replace(
        decoding,
        std_error=np.full(len(decoding.candidates), error),
        summary=replace(decoding.summary, information_spread=spread),
    )


def test_the_decoding_with_the_smaller_errors_is_kept():
    counted = decoding_with(0.010)
    better, worse = decoding_with(0.008, spread=0.01), decoding_with(0.011, spread=0.01)
    assert surer(better, counted).std_error[0] == 0.008
    reason = surer(better, counted).summary.method_reason
    assert reason == "bit counts alone have variances 56% larger"
    assert surer(worse, counted).std_error[0] == 0.010
    assert surer(worse, counted).summary.method_reason.endswith("21% larger")


def test_whole_reports_are_kept_where_errors_are_about_the_same():
    """Variances 4% larger are, 6% larger aren't."""
    counted = decoding_with(0.010)
    alike, worse = decoding_with(0.0102, spread=0.01), decoding_with(0.0103, spread=0.01)
    assert surer(alike, counted).std_error[0] == 0.0102
    assert surer(alike, counted).summary.method_reason.endswith("about the same variances")
    assert surer(worse, counted).std_error[0] == 0.010


def test_errors_that_do_not_hold_are_no_argument():
    """Where information about absent strings scatters, a few reports decide about each."""
    counted, found = decoding_with(0.010), decoding_with(0.001, spread=0.9)
    assert surer(found, counted).std_error[0] == 0.010
    assert surer(found, counted).summary.method_reason == FEW_DECIDE


def test_information_that_scatters_makes_errors_count_for_more():
    """By half of its mean: variances for a quarter more."""
    counted = decoding_with(0.010)
    for error, kept in ((0.001, 0.001), (0.0091, 0.0091), (0.0092, 0.010)):
        assert surer(decoding_with(error, spread=0.5), counted).std_error[0] == kept
    assert surer(decoding_with(0.0092, spread=0.3), counted).std_error[0] == 0.0092


def test_whole_reports_are_the_surer_ones_where_counts_determine_no_share():
    counted, found = decoding_with(float("nan")), decoding_with(0.001, spread=0.1)
    assert surer(found, counted).std_error[0] == 0.001
    assert surer(found, counted).summary.method_reason == NO_SHARE


@pytest.mark.parametrize("p", [0.1, 0.2, 0.25])
def test_auto_finds_what_bit_counts_find_among_absent_candidates(p):
    """3,000 reports of four strings; at p = .1 the likelihood alone misses some.

    By counts the weakest lies eight of its standard errors above 0 at least.
    """
    params = make_params(k=32, h=2, m=32, f=0.0, p=p, q=1 - p)
    held = {"alpha": 1200, "beta": 900, "gamma": 600, "delta": 300}
    records = records_of(held, params)
    listed = hashed([*held, *(f"absent {i}" for i in range(100))], params)
    counted = decode(count_records(records, params), params, listed)
    choice = Choice(Method.AUTO, params, len(listed))
    assert choice.spool_for(3_000) is not None
    found = choice.complete(counted, pack([records], params), listed, lambda *_: None)
    assert found.detected[:4].all()
    assert np.nanmedian(found.std_error) <= np.nanmedian(counted.std_error)
