"""How strings end: one half of those that are found teaches what is expected of the other."""

import numpy as np
import pytest

from hubbub.inference import (
    Extensions,
    LearnedSuffixes,
    Mixture,
    Prefixes,
    RetainedPrefixes,
    StepReports,
    ends_of,
    learned_suffixes,
    step_reports,
)
from hubbub.protocol import OpenStringType
from unit.decoder.open_counts import draw_counts, open_params

STEPS, ROOM = (2, 4), 200_000
PARAMS = open_params(STEPS)
BEGINNINGS = [f"{a}{b}x{c}" for a in "abcd" for b in "efg" for c in "ae"]
# Of one length, with a mark before a digit, which hardly any word has.
TOKENS = [f"{begin}-{7 * row % 10}" for row, begin in enumerate(BEGINNINGS)]


def last_reports(strings: list[str]) -> StepReports:
    clients = dict.fromkeys(strings, 3_000)
    counts = draw_counts(clients, PARAMS, STEPS, np.random.default_rng(4))
    return step_reports(counts, PARAMS, OpenStringType(STEPS, 32), len(STEPS))


@pytest.fixture(scope="module")
def survivors() -> RetainedPrefixes:
    n = len(BEGINNINGS)
    prefixes = Prefixes.of_all([text.encode() for text in BEGINNINGS], STEPS[-1])
    return RetainedPrefixes(prefixes, np.full(n, 1 / n), np.ones(n), np.ones(n, dtype=bool), 1e-3)


@pytest.fixture(scope="module")
def ends(survivors) -> Extensions:
    return ends_of(survivors, ROOM, Mixture.at_start())


def in_half(ends: Extensions, number: int) -> list[str]:
    """Return the tokens among some strings that are in one of the halves."""
    keys = dict(zip(ends.prefixes.texts(b""), ends.prefixes.keys.tolist(), strict=True))
    return [token for token in TOKENS if keys.get(token.encode(), 1 - number) & 1 == number]


def taught_by(strings: list[str], survivors: RetainedPrefixes, ends: Extensions) -> LearnedSuffixes:
    return learned_suffixes(ends, survivors, ROOM, Mixture.at_start(), last_reports(strings))


def expected_of(strings: list[str], some: Extensions) -> float:
    """Return what is expected of these among some strings, each of which is there once."""
    expected = dict(zip(some.prefixes.texts(b""), some.expected.tolist(), strict=True))
    assert len(expected) == len(some)
    return sum(expected.get(text.encode(), 0.0) for text in strings)


def test_what_is_found_teaches_how_the_others_end(survivors, ends):
    """Each token is common enough to be found, at 12 errors: P(missed) < 1e-6."""
    taught = taught_by(TOKENS, survivors, ends)
    before = expected_of(TOKENS, ends) / ends.expected.sum()
    total = taught.strings.expected.sum() + taught.dropped.expected.sum()
    assert expected_of(TOKENS, taught.strings) > 10 * before * total


@pytest.mark.parametrize("number", [0, 1])
def test_no_strings_own_half_decides_what_is_expected_of_it(survivors, ends, number):
    """Of three tokens BH finds a false string beside them, as a teacher, in a tenth of seeds."""
    tokens, others = in_half(ends, number)[:3], in_half(ends, 1 - number)
    taught = taught_by(tokens, survivors, ends).strings
    before = dict(zip(ends.prefixes.keys.tolist(), ends.expected.tolist(), strict=True))
    after = dict(zip(taught.prefixes.keys.tolist(), taught.expected.tolist(), strict=True))
    own = [key for key in before.keys() & after.keys() if key & 1 == number]
    assert all(after[key] <= before[key] * (1 + 1e-9) for key in own)
    assert expected_of(tokens, taught) == pytest.approx(expected_of(tokens, ends))
    assert expected_of(others, taught) > 3 * expected_of(others, ends)
