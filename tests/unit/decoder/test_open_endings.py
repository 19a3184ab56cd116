"""How strings end: one half of those that are found teaches what is expected of the other."""

import numpy as np
import pytest

from hubbub.inference.open_strings.endings import ends_of, taught_ends
from hubbub.inference.open_strings.extension import Extensions
from hubbub.inference.open_strings.mixture import Mixture
from hubbub.inference.open_strings.prefixes import Prefixes
from hubbub.inference.open_strings.steps import StepReports, step_reports
from hubbub.inference.open_strings.survivors import Survivors
from hubbub.protocol.metric_types.open_strings import OpenStringType
from unit.decoder.open_counts import draw_counts, open_params

STEPS, ROOM = (2, 4), 200_000
PARAMS = open_params(STEPS)
BEGINNINGS = [f"{a}{b}x{c}" for a in "abcd" for b in "efg" for c in "hk"]
# Of one length, with a mark before a digit, which hardly any word has.
TOKENS = [f"{begin}-{7 * row % 10}" for row, begin in enumerate(BEGINNINGS)]


def last_reports(strings: list[str]) -> StepReports:
    clients = dict.fromkeys(strings, 3_000)
    counts = draw_counts(clients, PARAMS, STEPS, np.random.default_rng(4))
    return step_reports(counts, PARAMS, OpenStringType(STEPS, 32), len(STEPS))


@pytest.fixture(scope="module")
def survivors() -> Survivors:
    n = len(BEGINNINGS)
    prefixes = Prefixes.of_all([text.encode() for text in BEGINNINGS], STEPS[-1])
    return Survivors(prefixes, np.full(n, 1 / n), np.ones(n), np.ones(n, dtype=np.bool_), 1e-3)


@pytest.fixture(scope="module")
def ends(survivors) -> Extensions:
    return ends_of(survivors, ROOM, Mixture.at_start())


def in_half(ends: Extensions, number: int) -> list[str]:
    """Return the tokens among some strings that are in one of the halves."""
    keys = dict(zip(ends.prefixes.texts(b""), ends.prefixes.keys.tolist(), strict=True))
    return [token for token in TOKENS if keys.get(token.encode(), 1 - number) & 1 == number]


def test_what_is_found_teaches_how_the_others_end(survivors, ends):
    """Each token is common enough to be found, at 12 errors: P(missed) < 1e-6."""
    taught = taught_ends(ends, survivors, ROOM, Mixture.at_start(), last_reports(TOKENS)).strings
    parts = []
    for some in (ends, taught):
        expected = dict(zip(some.prefixes.texts(b""), some.expected.tolist(), strict=True))
        assert len(expected) == len(some)
        of_tokens = sum(expected.get(token.encode(), 0) for token in TOKENS)
        parts.append(of_tokens / some.expected.sum())
    assert parts[1] > 10 * parts[0]


def test_what_others_have_of_a_prefix_is_not_expected_once_more(survivors, ends):
    """A token has all that its prefix has, at 12 errors: P(one is missed) < 1e-6."""
    taught = taught_ends(ends, survivors, ROOM, Mixture.at_start(), last_reports(TOKENS)).strings
    texts = taught.prefixes.texts(b"")
    of_tokens = sum(
        expected
        for text, expected in zip(texts, taught.expected.tolist(), strict=True)
        if text.decode() in TOKENS
    )
    of_others = float(taught.expected.sum()) - of_tokens
    assert of_others < 0.5 * float(ends.expected.sum())


@pytest.mark.parametrize("number", [0, 1])
def test_no_strings_own_half_decides_what_is_expected_of_it(survivors, ends, number):
    tokens = in_half(ends, number)
    assert tokens
    taught = taught_ends(ends, survivors, ROOM, Mixture.at_start(), last_reports(tokens)).strings
    before = dict(zip(ends.prefixes.keys.tolist(), ends.expected.tolist(), strict=True))
    after = dict(zip(taught.prefixes.keys.tolist(), taught.expected.tolist(), strict=True))
    own = {key: after[key] for key in after if key & 1 == number}
    assert all(own[key] <= before[key] * (1 + 1e-9) for key in own)
    texts = zip(taught.prefixes.texts(b""), taught.prefixes.keys.tolist(), strict=True)
    keys = [key for text, key in texts if text.decode() in tokens]
    assert [after[key] for key in keys] == pytest.approx([before[key] for key in keys])
    assert len(after) > len(before)


def test_where_nothing_is_found_nothing_is_taught(survivors, ends):
    others = [f"{letter}12345" for letter in "mnopq"]
    taught = taught_ends(ends, survivors, ROOM, Mixture.at_start(), last_reports(others)).strings
    assert sorted(taught.prefixes.keys.tolist()) == sorted(ends.prefixes.keys.tolist())
    assert np.sort(taught.expected).tolist() == np.sort(ends.expected).tolist()
