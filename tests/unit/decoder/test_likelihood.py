"""The joint likelihood on small and odd inputs; its error rates are tests/statistical's affair."""

import math

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import Decoding, count_records, decode
from hubbub.inference import (
    MOST_MEMBERS,
    TOO_LITTLE,
    Choice,
    Method,
    UndecodableError,
    decode_reports,
    hashed,
    mapped,
    pack,
)
from unit.decoder.packed import records_of

CLEAR = make_params(k=64, h=2, m=16, f=0.1, p=0.1, q=0.9)
CROWDED = make_params(k=8, h=2, m=32, f=0.1, p=0.1, q=0.9)
NOISY = make_params(k=32, h=2, m=8, f=0.25, p=0.2, q=0.8)
HELD = {"alpha": 6000, "beta": 3000, "gamma": 1000}
E_ACUTE, E_ACUTE_DECOMPOSED = "\xe9", "e\N{COMBINING ACUTE ACCENT}"


def names(n: int, label: str = "absent") -> list[str]:
    return [f"{label} {i}" for i in range(n)]


def decoded(held: dict[str, int], params: RapporParams, candidates: list[str]) -> Decoding:
    records = records_of(held, params)
    counted = decode(count_records(records, params), params, candidates)
    listed = hashed(candidates, params)
    return decode_reports(pack([records], params), counted, listed, reason="a test")


def found(decoding: Decoding) -> set[str]:
    return {c for c, hit in zip(decoding.candidates, decoding.detected, strict=True) if hit}


@pytest.mark.parametrize("params", [CLEAR, CROWDED], ids=["64 bits", "8 bits"])
def test_present_strings_are_found_with_their_shares(params):
    """Shares of 10% and more at standard errors of about 1%; estimates within 4.5 of these."""
    decoding = decoded(HELD, params, [*names(50), *HELD])
    assert found(decoding) >= set(HELD)
    assert len(found(decoding)) <= 5
    truth = np.array([0.0] * 50 + [0.6, 0.3, 0.1])
    assert np.abs((decoding.share - truth) / decoding.std_error).max() < 4.5
    assert decoding.std_error.max() < 0.012
    assert decoding.summary.method == "likelihood"
    assert decoding.summary.method_reason == "a test"
    assert 0 <= decoding.summary.duality_gap <= 1e-3
    assert abs(decoding.summary.unknown_share) < 4.5 * decoding.summary.unknown_std_error


def test_refit_is_a_share_of_the_whole():
    decoding = decoded(HELD, CROWDED, [*names(50), *HELD])
    assert (decoding.constrained_share[decoding.detected] >= 0).all()
    assert (decoding.constrained_share[~decoding.detected] == 0).all()
    assert 0.95 < decoding.constrained_share.sum() <= 1 + 1e-9


def test_unlisted_strings_are_unknown_mass():
    summary = decoded(HELD, CLEAR, ["beta", "gamma", *names(20)]).summary
    assert abs(summary.unknown_share - 0.6) < 4.5 * summary.unknown_std_error
    assert 0 < summary.unknown_std_error < 0.05


def test_no_string_is_found_where_none_is_held():
    decoding = decoded({"elsewhere": 5_000}, CLEAR, names(3))
    assert not decoding.detected.any()
    assert decoding.summary.unknown_share == 1
    assert decoding.summary.unknown_std_error == 0
    assert (decoding.constrained_share == 0).all()


def test_result_is_the_same_on_any_number_of_threads(monkeypatch):
    first = decoded(HELD, CLEAR, [*names(40), *HELD])
    monkeypatch.setattr("hubbub.inference.likelihood.mixture.cores", lambda: 4)
    second = decoded(HELD, CLEAR, [*names(40), *HELD])
    for field in ("share", "std_error", "low", "high", "p_value", "q_value", "constrained_share"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    assert repr(first.summary) == repr(second.summary)  # in which nan equals nan


def test_long_list_is_decoded_from_the_likeliest():
    """More candidates than go into the mixture: what is present is found all the same."""
    decoding = decoded(HELD, CROWDED, [*names(MOST_MEMBERS + 200), *HELD])
    assert found(decoding) >= set(HELD)
    assert np.isfinite(decoding.share).all()
    assert (decoding.std_error > 0).all()
    truth = np.array([0.0] * (MOST_MEMBERS + 200) + [0.6, 0.3, 0.1])
    z = (decoding.share - truth) / decoding.std_error
    assert 0.9 < (np.abs(z) < 1.96).mean() < 0.99


def test_candidates_that_hash_alike_have_one_estimate():
    decoding = decoded(
        {"alpha": 3000, E_ACUTE: 3000}, CLEAR, ["alpha", E_ACUTE, E_ACUTE_DECOMPOSED]
    )
    assert decoding.share[1] == decoding.share[2]
    assert decoding.share == pytest.approx([0.5] * 3, abs=0.05)
    assert decoding.summary.detected == 2


@pytest.mark.parametrize(
    "params",
    [
        make_params(k=8, h=1, m=1, f=0.1, p=0.1, q=0.9),
        make_params(k=8, h=4, m=4, f=0.1, p=0.1, q=0.9),
        make_params(k=128, h=2, m=1, f=0.1, p=0.1, q=0.9),
        make_params(k=1024, h=1, m=2, f=0.1, p=0.1, q=0.9),
        make_params(k=64, h=2, m=16, f=0.1, p=0.9, q=0.1),
        make_params(k=64, h=2, m=16, f=0.0, p=0.01, q=0.99),
    ],
    ids=["8 bits, 1 cohort", "4 hashes", "1 cohort", "1024 bits", "q below p", "f=0"],
)
@pytest.mark.parametrize("n_absent", [0, 3])
def test_odd_shapes_are_decoded(params, n_absent):
    decoding = decoded({"alpha": 5_000}, params, ["alpha", *names(n_absent)])
    known = ~np.isnan(decoding.share)
    assert (decoding.std_error[known] > 0).all()
    assert ((decoding.p_value >= 0) & (decoding.p_value <= 1)).all()
    assert not known[0] or abs(decoding.share[0] - 1) < 4.5 * decoding.std_error[0]
    assert decoding.summary.indistinguishable or known.all()


def test_few_reports_are_decoded():
    decoding = decoded({"alpha": 30}, CLEAR, ["alpha", *names(5)])
    assert np.isfinite(decoding.share).all()
    assert math.isfinite(decoding.summary.unknown_share)


@pytest.mark.parametrize("n_reports", [1, 2, 3])
@pytest.mark.filterwarnings("error")
def test_reports_without_information_are_refused(n_reports):
    with pytest.raises(UndecodableError, match=f"{n_reports} reports are too few"):
        decoded({"alpha": n_reports}, NOISY, ["alpha", *names(20)])


@pytest.mark.parametrize("n_reports", [8, 20])
@pytest.mark.filterwarnings("error")
def test_reports_of_which_an_absent_string_learns_nothing_are_refused(n_reports):
    """A handful of equal ones, so that the information about it isn't even above 0."""
    with pytest.raises(UndecodableError, match=f"{n_reports} reports are too few"):
        decoded({"s 0": n_reports}, CROWDED, names(30, "s"))


@pytest.mark.parametrize("asked", [Method.AUTO, Method.LIKELIHOOD])
def test_least_squares_takes_over_unless_the_likelihood_is_asked_for(asked):
    candidates = hashed(["alpha", *names(20)], NOISY)
    records = records_of({"alpha": 2}, NOISY)
    counted = decode(count_records(records, NOISY), NOISY, candidates)
    choice = Choice(asked, NOISY, len(candidates))
    assert choice.keeps_whole(2)
    if asked is Method.LIKELIHOOD:
        with pytest.raises(UndecodableError, match="are too few"):
            choice.complete(counted, pack([records], NOISY), candidates, lambda _n, _gap: None)
        return
    done = choice.complete(counted, pack([records], NOISY), candidates, lambda _n, _gap: None)
    assert (done.summary.method, done.summary.method_reason) == (counted.summary.method, TOO_LITTLE)


def test_candidates_with_the_same_bits_are_estimated_once():
    records = records_of(HELD, CLEAR)
    counts, packed = count_records(records, CLEAR), pack([records], CLEAR)
    listed = hashed(list(HELD), CLEAR)
    n = len(HELD)
    twice = mapped([*HELD, "again"], listed.positions(np.r_[:n, :1]), CLEAR)
    once = decode_reports(packed, decode(counts, CLEAR, listed), listed, reason="")
    again = decode_reports(packed, decode(counts, CLEAR, twice), twice, reason="")
    np.testing.assert_array_equal(again.share, once.share[[*range(n), 0]])
    np.testing.assert_array_equal(again.detected, once.detected[[*range(n), 0]])
    assert again.summary.detected == once.summary.detected
    assert (again.summary.candidates, again.summary.indistinguishable) == (n + 1, 2)
