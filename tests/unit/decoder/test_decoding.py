"""The whole decoding on small and odd inputs; its error rates are tests/statistical's affair."""

import math

import numpy as np
import pytest

from factories import make_params
from hubbub.decoder import CohortCounts, Correction, Decoding, decode, empty_counts
from hubbub.inference import CandidateError, UndecodableError
from unit.decoder.decodings import CLEAR, counts_of

HELD = {"alpha": 6000, "beta": 3000, "gamma": 1000}
E_ACUTE, E_ACUTE_DECOMPOSED = "\xe9", "e\N{COMBINING ACUTE ACCENT}"


def names(n: int, label: str = "absent") -> list[str]:
    return [f"{label} {i}" for i in range(n)]


def found(decoding: Decoding) -> set[str]:
    return {c for c, hit in zip(decoding.candidates, decoding.detected, strict=True) if hit}


def assert_consistent(decoding: Decoding) -> None:
    """What must hold of every decoding."""
    known = ~np.isnan(decoding.share)
    assert np.isfinite(decoding.std_error[known]).all()
    assert (decoding.std_error[known] > 0).all()
    assert np.isnan(decoding.std_error[~known]).all()
    assert np.isnan(decoding.low[~known]).all()
    assert np.isnan(decoding.high[~known]).all()
    plain = ~decoding.detected
    np.testing.assert_allclose(
        (decoding.high - decoding.low)[plain], 2 * 1.959964 * decoding.std_error[plain]
    )
    np.testing.assert_allclose(
        (decoding.high + decoding.low)[plain], 2 * decoding.share[plain], atol=1e-12
    )
    assert (decoding.low >= 0)[decoding.detected].all()
    assert (decoding.low < decoding.high)[decoding.detected].all()
    for values in (decoding.p_value, decoding.q_value):
        assert ((values >= 0) & (values <= 1)).all()
    order = np.argsort(decoding.p_value, kind="stable")
    assert (np.diff(decoding.q_value[order]) >= -1e-12).all()
    np.testing.assert_array_equal(decoding.detected, decoding.q_value <= decoding.summary.alpha)
    assert not decoding.detected[~known].any()
    assert ((decoding.constrained_share >= 0) & (decoding.constrained_share <= 1)).all()
    assert not decoding.constrained_share[~decoding.detected].any()
    assert decoding.summary.method == "least squares"
    assert decoding.summary.method_reason
    assert math.isnan(decoding.summary.duality_gap)
    assert decoding.excess_deviation >= 0
    assert decoding.summary.detected == decoding.distinct().detected.sum()
    assert math.isfinite(decoding.summary.unknown_share)
    assert math.isfinite(decoding.summary.unknown_std_error)


def test_present_strings_are_found_and_absent_ones_are_not():
    """Shares of 10% and more, at a standard error of about 0.4% beside the drawing of clients."""
    decoding = decode(counts_of(HELD), CLEAR, [*names(50), *HELD], correction=Correction.BONFERRONI)
    assert_consistent(decoding)
    assert found(decoding) == set(HELD)
    truth = np.array([0.0] * 50 + [0.6, 0.3, 0.1])
    assert np.abs((decoding.share - truth) / decoding.std_error).max() < 4.5
    assert (decoding.std_error**2 - decoding.sampling_variance).max() < 0.006**2
    assert ((decoding.low <= truth) & (truth <= decoding.high))[50:].all()


def test_unlisted_strings_are_unknown_mass():
    """The unlisted string's bits scatter the rates, which the standard error must know."""
    summary = decode(counts_of(HELD), CLEAR, ["beta", "gamma", *names(20)]).summary
    assert abs(summary.unknown_share - 0.6) < 4.5 * summary.unknown_std_error
    assert 0 < summary.unknown_std_error < 0.05


def test_everything_is_unknown_if_nothing_is_detected():
    decoding = decode(counts_of(HELD), CLEAR, names(20), correction=Correction.BONFERRONI)
    assert not found(decoding)
    assert decoding.summary.unknown_share == 1
    assert decoding.summary.unknown_std_error == 0


@pytest.mark.parametrize(
    "params",
    [
        make_params(k=8, h=1, m=1, f=0.1, p=0.1, q=0.9),
        make_params(k=8, h=2, m=64, f=0.1, p=0.1, q=0.9),
        make_params(k=128, h=2, m=1, f=0.1, p=0.1, q=0.9),
        make_params(k=1024, h=8, m=2, f=0.1, p=0.1, q=0.9),
        make_params(k=16, h=1, m=1024, f=0.1, p=0.1, q=0.9),
        make_params(k=64, h=2, m=16, f=0.1, p=0.9, q=0.1),
        make_params(k=64, h=2, m=16, f=0.0, p=0.01, q=0.99),
    ],
    ids=["8 bits, 1 cohort", "8 bits", "1 cohort", "8 hashes", "1024 cohorts", "q below p", "f=0"],
)
@pytest.mark.parametrize("n_absent", [0, 3, 300])
def test_odd_shapes_are_decoded(params, n_absent):
    decoding = decode(counts_of({"alpha": 10_000}, params), params, ["alpha", *names(n_absent)])
    assert_consistent(decoding)
    assert np.isnan(decoding.share[0]) or abs(decoding.share[0] - 1) < 0.1


@pytest.mark.parametrize("n_reports", [1, 2, 10])
def test_few_reports_are_decoded(n_reports):
    decoding = decode(counts_of({"alpha": n_reports}), CLEAR, ["alpha", *names(30)])
    assert_consistent(decoding)
    assert decoding.summary.empty_cohorts >= CLEAR.m - n_reports


def test_single_candidate_that_everyone_holds():
    decoding = decode(counts_of({"alpha": 10_000}), CLEAR, ["alpha"])
    assert_consistent(decoding)
    assert decoding.detected.all()
    assert abs(decoding.share[0] - 1) < 4.5 * decoding.std_error[0]


def test_a_single_absent_candidate():
    decoding = decode(counts_of({"alpha": 10_000}), CLEAR, ["beta"])
    assert_consistent(decoding)
    assert not decoding.detected.any()
    assert decoding.low[0] < 0 < decoding.high[0]


def test_candidates_may_outnumber_the_rows():
    """1,024 rows, 5,003 candidates."""
    decoding = decode(counts_of(HELD), CLEAR, [*names(5000), *HELD],
                      correction=Correction.BONFERRONI)  # fmt: skip
    assert_consistent(decoding)
    assert found(decoding) == set(HELD)


def test_more_strings_may_be_present_than_the_model_can_carry():
    """16 rows carry 5 candidates; 12 strings hold equal shares."""
    params = make_params(k=8, h=1, m=2, f=0.1, p=0.1, q=0.9)
    held = dict.fromkeys(names(12, "present"), 5000)
    assert_consistent(decode(counts_of(held, params), params, [*held, *names(5)]))


def test_candidates_with_the_same_bits_are_estimated_and_counted_once():
    """Composed and decomposed forms of one text are one value for every client."""
    candidates = [E_ACUTE_DECOMPOSED, "alpha", E_ACUTE]
    counts = counts_of({"alpha": 5000, E_ACUTE: 15_000})
    decoding = decode(counts, CLEAR, candidates)
    assert_consistent(decoding)
    alone = decode(counts, CLEAR, ["alpha", E_ACUTE])
    np.testing.assert_allclose(decoding.share, alone.share[[1, 0, 1]])
    np.testing.assert_allclose(decoding.low, alone.low[[1, 0, 1]])
    assert found(decoding) == set(candidates)
    assert decoding.constrained_share[2] == 0
    assert decoding.constrained_share.sum() == pytest.approx(alone.constrained_share.sum())
    summary = decoding.summary
    assert (summary.candidates, summary.detected, summary.indistinguishable) == (3, 2, 2)
    assert summary.unknown_share == pytest.approx(alone.summary.unknown_share)
    assert decoding.distinct().candidates == [E_ACUTE_DECOMPOSED, "alpha"]


def test_candidates_that_all_set_the_same_bits_have_one_estimate():
    decoding = decode(counts_of({E_ACUTE: 5000}), CLEAR, [E_ACUTE, E_ACUTE_DECOMPOSED])
    assert_consistent(decoding)
    np.testing.assert_allclose(decoding.share, 1.0, atol=0.1)
    assert decoding.summary.detected == 1


def test_all_cohorts_but_one_may_be_empty():
    counts = counts_of({"alpha": 80_000, "beta": 80_000})
    one = CohortCounts(np.zeros_like(counts.reports), np.zeros_like(counts.bits))
    one.reports[5], one.bits[5] = counts.reports[5], counts.bits[5]
    decoding = decode(one, CLEAR, ["alpha", "beta", *names(4)])
    assert_consistent(decoding)
    assert decoding.summary.empty_cohorts == CLEAR.m - 1
    known = ~np.isnan(decoding.share)
    truth = np.array([0.5, 0.5, 0, 0, 0, 0])
    assert np.abs(decoding.share - truth)[known].max() < 0.1


def test_candidates_that_differ_in_empty_cohorts_alone_are_groups():
    """One cohort of 8 bits sees 8 kinds of strings, so most of 40 candidates look like another."""
    params = make_params(k=8, h=1, m=2, f=0.1, p=0.1, q=0.9)
    counts = counts_of({"alpha": 10_000}, params)
    candidates = names(40)
    both = decode(counts, params, candidates).summary.indistinguishable
    counts.reports[1] = counts.bits[1] = 0
    assert decode(counts, params, candidates).summary.indistinguishable > max(both, 30)


def test_no_reports_are_an_error():
    with pytest.raises(UndecodableError, match="no reports"):
        decode(empty_counts(CLEAR), CLEAR, ["alpha"])


def test_counts_of_other_parameters_are_an_error():
    with pytest.raises(UndecodableError, match="must be"):
        decode(counts_of(HELD), make_params(), ["alpha"])


@pytest.mark.parametrize("candidates", [[], ["alpha", "beta", "alpha"]])
def test_candidates_that_are_missing_or_repeated_are_an_error(candidates):
    with pytest.raises(CandidateError, match="at least one string, each once"):
        decode(counts_of(HELD), CLEAR, candidates)


def test_candidate_that_no_client_could_report_is_an_error():
    with pytest.raises(CandidateError, match="candidate 2: "):
        decode(counts_of(HELD), CLEAR, ["alpha", "\ud800"])


def test_constrained_shares_of_the_detected_and_the_unknown_add_up():
    """With the undetected ones they are 1; constrained shares err no more than unbiased ones."""
    decoding = decode(counts_of(HELD), CLEAR, [*names(50), *HELD])
    truth = np.array([0.0] * 50 + [0.6, 0.3, 0.1])
    assert 0.97 < decoding.constrained_share.sum() <= 1 + 1e-9
    errors = [
        np.abs(shares - truth)[50:].max() for shares in (decoding.constrained_share, decoding.share)
    ]
    assert errors[0] < 0.02 > errors[1]
