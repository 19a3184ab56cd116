"""When whole reports are worth the time, and what is said of it."""

from dataclasses import replace

import numpy as np
import pytest

from cramer_rao import error_bound, expected_reports
from factories import make_params
from hubbub.decoder import Decoding, count_records, decode
from hubbub.inference import (
    FEW_DECIDE,
    NO_SHARE,
    Choice,
    Method,
    ReportMixture,
    hashed,
    is_worthwhile,
    lower_error,
    pack,
    variance_gain,
)
from unit.decoder.decodings import make_decoding
from unit.decoder.packed import members_of, records_of


@pytest.mark.parametrize(
    ("params", "reports", "candidates", "worthwhile", "words"),
    [
        (make_params(), 100_000, 100, True, "variances at least 13% larger"),
        (make_params(), 20_000, 400, True, "at least 13% larger"),
        (make_params(), 10**6, 400, False, "12% or more, but take about"),
        (make_params(), 10**6, 10**6, False, "seconds (--method likelihood)"),
        (make_params(f=0.75, p=0.35, q=0.65), 10**6, 100, False, "variances by only 1.1%"),
        (make_params(h=1), 10**6, 100, False, "add nothing about rare strings"),
        (make_params(h=1), 10_000, 20, True, ""),  # takes a second: tried whatever is expected
        (make_params(h=3), 10**6, 100, False, "too many sets of bits"),
    ],
)
def test_whole_reports_are_looked_at_where_they_are_worth_the_time(
    params, reports, candidates, worthwhile, words
):
    found, why = is_worthwhile(params, reports, candidates)
    assert found == worthwhile
    assert words in why


def test_gain_of_two_hashes_is_half_the_contrast():
    """((1 + c)^2 - 1) / (2c) - 1 = c/2; here p* = .375, q* = .625, c = 4/15."""
    assert variance_gain(make_params()) == pytest.approx(2 / 15)


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
    bound = error_bound(ReportMixture(reports, apart), np.array([1.0, 0.0]))[1]
    contrast = (params.q_star - params.p_star) ** 2 / (params.p_star * (1 - params.p_star))
    alone = 1 / (total * ((1 + contrast) ** 2 - 1))
    assert 1 < bound**2 / alone < 2


def decoding_with(error: float, spread: float = float("nan")) -> Decoding:
    """Return a decoding whose standard errors are all the same."""
    decoding = make_decoding(["alpha", "beta"])
    return replace(
        decoding,
        std_error=np.full(len(decoding.candidates), error),
        summary=replace(decoding.summary, information_spread=spread),
    )


NAN = float("nan")


@pytest.mark.parametrize(
    ("counted", "whole", "spread", "kept", "words"),
    [
        (0.010, 0.008, 0.01, 0.008, "bit counts alone have variances 56% larger"),
        (0.010, 0.011, 0.01, 0.010, "21% larger"),
        (0.010, 0.0102, 0.01, 0.0102, "about the same variances"),  # 4% larger
        (0.010, 0.0103, 0.01, 0.010, "larger"),  # 6%
        (0.010, 0.001, 0.9, 0.010, FEW_DECIDE),  # information about absent strings scatters
        (0.010, 0.0092, 0.5, 0.010, ""),
        (0.010, 0.0092, 0.3, 0.0092, ""),
        (NAN, 0.001, 0.1, 0.001, NO_SHARE),
    ],
)
def test_the_decoding_with_the_smaller_errors_is_kept(counted, whole, spread, kept, words):
    found = lower_error(decoding_with(whole, spread), decoding_with(counted))
    assert found.std_error[0] == kept
    assert words in found.summary.method_reason


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
    assert choice.keeps_whole(3_000)
    found = choice.complete(counted, pack([records], params), listed, lambda *_: None)
    assert found.detected[:4].all()
    assert np.nanmedian(found.std_error) <= np.nanmedian(counted.std_error)
