"""Whole strings are tested by all reports that show them whole, beside what else is known."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params
from hubbub.inference import (
    ONCE,
    Correction,
    Decoding,
    FamilyDecoder,
    Proposals,
    StringTests,
    decode_open_strings,
    family_of,
    propose,
    string_tests,
    whole_in,
)
from hubbub.protocol import CohortCounts, OpenStringType, canonical_bytes
from unit.decoder.open_counts import draw_counts, open_params

STEPS = (2, 4, 6)
PARAMS = open_params(STEPS)
TYPE = OpenStringType(STEPS, 32)
ALPHA = 1e-6  # so that what is false is never by chance
# Two of each length, so that of all families something is there.
CLIENTS = dict.fromkeys(["a", "b", "cat", "dog", "eagle", "finch", "gorilla", "hamster"], 5_000)


@pytest.fixture(scope="module")
def counts() -> CohortCounts:
    return draw_counts(CLIENTS, PARAMS, STEPS, np.random.default_rng(3))


@pytest.fixture(scope="module")
def proposals(counts) -> Proposals:
    return propose(counts, PARAMS, TYPE, room=20_000)


def decoding_of(
    tests: StringTests,
    counts: CohortCounts,
    proposals: Proposals,
    correction: Correction = Correction.BH,
) -> Decoding:
    params = TYPE.step_params(PARAMS)
    return FamilyDecoder(
        tests, counts, params, TYPE, proposals.explained, ALPHA, correction, ONCE, counts.total
    ).run()


def strings_tested(
    proposals: Proposals, counts: CohortCounts, given: tuple[bytes, ...]
) -> StringTests:
    return string_tests(proposals.families, given, counts, TYPE.step_params(PARAMS), TYPE)


steps = st.sets(st.integers(1, 8), min_size=1, max_size=3).map(lambda some: tuple(sorted(some)))


@given(st.text(max_size=5), steps, st.integers(1, 20))
def test_positions_of_whole_strings_are_the_protocols_from_their_first_step_on(
    value, steps, cohorts
):
    kind = OpenStringType(steps, cohorts)
    params = make_metric(metric_type=kind, params=make_params(k=64)).params
    text = canonical_bytes(value)
    first = family_of(len(text), steps)
    candidates = whole_in([text], first, kind.step_params(params), kind)
    bits = [kind.bits(value, c, params) for c in range(first * cohorts, params.m)]
    positions = candidates.positions(slice(None))
    assert positions.shape == (1, candidates.params.m, 1)
    assert [1 << int(position) for position in positions.ravel()] == bits


def test_strings_of_every_family_are_found_and_nothing_else(counts, proposals):
    decoding = decoding_of(strings_tested(proposals, counts, ()), counts, proposals)
    found = {decoding.candidates[row] for row in decoding.largest_detected().tolist()}
    assert found == set(CLIENTS)
    assert decoding.summary.detected == len(CLIENTS)


def test_errors_are_those_of_all_reports_that_show_a_string_whole(counts, proposals):
    """Of n steps they are the root of n smaller; a tenth is allowed for what other strings add."""
    decoding = decoding_of(strings_tested(proposals, counts, ()), counts, proposals)
    of = {name: decoding.std_error[decoding.candidates.index(name)] for name in CLIENTS}
    for name, n_steps in (("a", 4), ("cat", 3), ("eagle", 2)):
        assert of[name] * np.sqrt(n_steps) == pytest.approx(of["gorilla"], rel=0.1)


def test_no_more_is_detected_than_one_rate_for_all_families_allows(counts, proposals):
    """Weighted p-values lie below alpha times the part of all tests that is detected.

    A fifth more is what the search in the same reports costs (`SEARCHED`), and absent strings may
    be told from tests by half: neither makes the bound larger than twice that.
    """
    tests = strings_tested(proposals, counts, ())
    decoding = decoding_of(tests, counts, proposals)
    detected = decoding.detected
    weighted = tests.weighted(decoding.p_value)[detected]
    assert (decoding.q_value[detected] <= ALPHA).all()
    assert weighted.max() < 2 * ALPHA * detected.sum() / tests.n_tests or weighted.max() < 1e-9


@pytest.mark.parametrize("seed", [1, pytest.param(100, marks=pytest.mark.long)])
def test_few_clients_show_no_false_strings(seed):
    """Of 130 clients with one string, one for each cohort, whose steps' models fit noise alone."""
    counts = draw_counts({"a": 130}, PARAMS, STEPS, np.random.default_rng(seed))
    decoding = decode_open_strings(counts, PARAMS, TYPE, room=1_500, alpha=ALPHA).decoding
    found = {decoding.candidates[row] for row in decoding.largest_detected().tolist()}
    assert found <= {"a"}
