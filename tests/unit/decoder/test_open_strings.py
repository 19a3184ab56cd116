"""Decoding open strings: strings come out of counts without a list; their letter model."""

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from factories import make_metric, make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    END,
    CandidateError,
    FloatArray,
    Mixture,
    OpenDecoding,
    Prefixes,
    UndecodableError,
    contexts_at,
    decode_open_strings,
    extend,
    hash_words,
    of_words,
    offset_words,
    propose,
    state_after,
    step_reports,
)
from hubbub.protocol import CohortCounts, OpenStringType, canonical_bytes
from hubbub.reporting import open_estimates, open_findings, prefix_text, write_results
from unit.decoder.open_counts import draw_counts, open_params

STEPS = (2, 4)
PARAMS = open_params(STEPS)
TYPE = OpenStringType(STEPS, 32)
ROOM = 30_000
CLIENTS = {"paris": 9_000, "parma": 6_000, "rome": 8_000, "a": 7_000, "": 5_000, "lyon": 6_000,
           "Zu\u0308r": 6_000, "x\0y": 3_000}  # fmt: skip


def decoded(counts: CohortCounts, **options: object) -> OpenDecoding:
    return decode_open_strings(counts, PARAMS, TYPE, room=ROOM, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def counts() -> CohortCounts:
    return draw_counts(CLIENTS, PARAMS, STEPS, np.random.default_rng(1))


@pytest.fixture(scope="module")
def found(counts) -> OpenDecoding:
    return decoded(counts)


@pytest.fixture(scope="module")
def asked(counts) -> OpenDecoding:
    """Ask for three strings, one of which nobody has, and for an alphabet that is not all."""
    return decoded(counts, candidates=["nobody", "rome", "x\0y"], alphabet="aeilmnoprsy" * 2)


@given(
    data=st.binary(min_size=1, max_size=9),
    steps=st.sets(st.integers(1, 8), min_size=1, max_size=3),
    cohorts=st.integers(1, 40),
)
def test_positions_equal_the_protocol(data, steps, cohorts):
    value = data.decode("latin-1")
    kind = OpenStringType(tuple(sorted(steps)), cohorts)
    params = make_metric(metric_type=kind, params=make_params(k=64)).params
    for step in range(len(steps) + 1):
        words = hash_words([kind.prefix(canonical_bytes(value), step)])
        moved = offset_words(words, kind.hashed_cohort(step * cohorts))
        positions = of_words([value], moved, kind.step_params(params)).positions(slice(None))
        bits = [kind.bits(value, step * cohorts + c, params) for c in range(cohorts)]
        assert [1 << int(position) for position in positions.ravel()] == bits


@pytest.fixture(scope="module")
def log_p_values(counts) -> FloatArray:
    """Return those of 200,000 absent prefixes."""
    reports = step_reports(counts, PARAMS, TYPE, 0)
    words = np.random.default_rng(13).integers(0, 2**32, (200_000, 2), dtype=np.uint32)
    weight = reports.saturation
    _, tests = reports.fitted(words, np.full(len(words), weight), weight, listed=1e300)
    return tests.log_weighted


@pytest.mark.parametrize("level", [0.5, 0.1, 0.01, 1e-3])
def test_absent_prefixes_have_the_p_values_that_are_stated(log_p_values, level):
    """Common ones aren't in the model; P(false alarm) < 1e-6.

    A tenth of the level is allowed for the approximation of the tail.
    """
    below = int((log_p_values < np.log(level)).sum())
    assert below >= stats.binom.ppf(5e-7, len(log_p_values), 0.9 * level)
    assert below <= stats.binom.isf(5e-7, len(log_p_values), 1.1 * level)


def test_strings_that_stand_out_in_the_end_are_not_dropped_earlier(counts, rng):
    """Of what is at 3 after all cohorts, .23% is dropped before; P(false alarm) < 1e-6."""
    reports = step_reports(counts, PARAMS, TYPE, 0)
    begins = {TYPE.prefix(canonical_bytes(value), 0) for value in CLIENTS}
    words = rng.integers(0, 2**32, (400_000, 2), dtype=np.uint32)
    words[: len(begins)] = offset_words(hash_words(sorted(begins)), TYPE.hashed_cohort(0))
    expected = np.arange(len(words), 0, -1) / len(words) ** 2
    reports, tests = reports.fitted(words, expected, 1 / len(words), listed=float(len(words)))
    stands_out = np.flatnonzero(tests.share > 3 * reports.std_error)
    kept = reports.screened(words, expected)
    lost = len(np.setdiff1d(stands_out, kept))
    assert lost <= stats.binom.isf(1e-6, len(stands_out), 0.0023)
    assert len(kept) < len(words) / 4


@pytest.mark.long
def test_a_common_string_hides_no_others(rng):
    """Nine tenths in one string, and 20 beyond 12 errors: P(one is missed) < 1e-6; seeded.

    Before the common one is in the model its bits scatter the rows ten times as much as the
    reports, so that the others don't stand out.
    """
    kind, params = OpenStringType((4,), 32), open_params((4,))
    letters = Mixture.of_corpus([], "")
    likely = extend(Prefixes.of(b""), np.ones(1), 4, 100_000, letters)
    order = np.argsort(-likely.expected, kind="stable")[30_000:70_000:2_000]
    texts = likely.prefixes.take(order).texts(b"")
    begins = [text for text in texts if len(text) == 4 and text.isascii()]
    clients = {each.decode("latin-1"): 7_000 for each in begins} | {"anna": 1_260_000}
    counts = draw_counts(clients, params, (4,), rng)
    found = propose(counts, params, kind, room=100_000).steps[0]
    assert {*begins, b"anna"} - set(found.texts) == set()


@pytest.mark.parametrize("cohorts", [1, 2, 3])
def test_few_cohorts_are_all_looked_at(cohorts, rng):
    """What 5,000 clients or more begin with is beyond 20 errors, in whichever cohorts."""
    kind, params = OpenStringType(STEPS, cohorts), open_params(STEPS, m=cohorts)
    reports = step_reports(draw_counts(CLIENTS, params, STEPS, rng), params, kind, 0)
    begins = sorted({kind.prefix(canonical_bytes(value), 0) for value in CLIENTS})
    words = rng.integers(0, 2**32, (100_000, 2), dtype=np.uint32)
    words[: len(begins)] = offset_words(hash_words(begins), kind.hashed_cohort(0))
    kept = reports.screened(words, np.arange(len(words), dtype=np.float64))
    assert len(np.intersect1d(kept, np.arange(len(begins)))) >= len(begins) - 1
    assert len(kept) < 0.6 * len(words)


def test_strings_come_out_of_the_noise(found):
    """48,000 clients, the rarest string beyond 20 errors: P(one is missed) < 1e-6; seeded.

    Beside eight BH lets in .4 that nobody has, on average; here two.
    """
    strings = {
        s for s, d in zip(found.decoding.candidates, found.decoding.detected, strict=True) if d
    }
    assert strings >= {"paris", "parma", "rome", "a", "", "lyon", "Z\u00fcr"}
    assert len(strings - {"Z\u00fcr", "x\0y", *CLIENTS}) <= 2


def test_shares_are_of_all_reports(found):
    decoding = found.decoding
    total = sum(CLIENTS.values())
    assert decoding.summary.reports == total
    for row, string in enumerate(decoding.candidates):
        if string in CLIENTS:
            assert abs(decoding.share[row] - CLIENTS[string] / total) < 5 * decoding.std_error[row]


def test_given_candidates_are_tested_in_any_case(asked):
    rows = dict(zip(asked.decoding.candidates, asked.decoding.detected.tolist(), strict=True))
    assert rows["rome"]
    assert rows["x\0y"]
    assert not rows["nobody"]
    assert asked.listed == 3
    assert list(asked.decoding.candidates).count("rome") == 1


def test_a_candidate_that_no_client_could_send_is_refused(counts):
    with pytest.raises(CandidateError, match="candidate 2: 70000 bytes"):
        decoded(counts, candidates=["rome", "x" * 70_000])


def test_looking_below_a_prefix_finds_nothing_else(counts):
    found = decoded(counts, below="par")
    assert set(found.decoding.candidates) >= {"paris", "parma"}
    assert all(string.startswith("par") for string in found.decoding.candidates)
    assert [step.length for step in found.steps] == [4]


def test_looking_below_a_whole_string_tests_it(counts):
    found = decoded(counts, below="lyon")
    assert "lyon" in found.decoding.candidates
    assert not found.steps


@pytest.mark.long
def test_random_strings_of_many_give_nothing():
    """20,000 clients with a string each; P(any is detected) is at most alpha = 1e-6."""
    rng = np.random.default_rng(2)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    strings = {"".join(rng.choice(letters, 8)): 1 for _ in range(20_000)}
    nobody = draw_counts(strings, PARAMS, STEPS, rng)
    assert not decoded(nobody, alpha=1e-6).decoding.detected.any()


@pytest.mark.parametrize(
    ("step", "where"), [(0, "step 1 of 3, 2 bytes"), (2, "step 3 of 3, whole")]
)
def test_a_step_without_reports_is_named(counts, step, where):
    reports, bits = counts.reports.copy(), counts.bits.copy()
    reports[32 * step : 32 * step + 32], bits[32 * step : 32 * step + 32] = 0, 0
    with pytest.raises(UndecodableError, match=where):
        decoded(CohortCounts(reports, bits))


def test_counts_of_another_metric_are_refused(counts):
    other = RapporParams(64, 1, 64, 0.0, 0.1, 0.5)
    with pytest.raises(UndecodableError, match=r"counts of shape \(96, 64\): must be \(64, 64\)"):
        decode_open_strings(counts, other, OpenStringType((4,), 32))


def test_few_reports_and_cohorts_without_any_are_decoded():
    few = draw_counts({"abc": 60, "d": 40}, PARAMS, STEPS, np.random.default_rng(3))
    assert (few.reports == 0).any()
    assert decode_open_strings(few, PARAMS, TYPE, room=1_000).decoding.summary.reports == 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [(b"pari", "pari…"), (b"a\xff", "a"), (b"\xff", ""), ("é".encode()[:1], "…"),
     ("日本".encode()[:4], "日…")],
)  # fmt: skip
def test_prefixes_are_shown_without_half_characters(text, shown):
    assert prefix_text(text) == shown


@pytest.fixture(scope="module")
def without_ends() -> OpenDecoding:
    """40% hold a string that goes on as no other does, 20% the string "rome"."""
    clients = {"zqxjkvwpfghzz": 20_000, "rome": 10_000, "lyon": 20_000}
    return decoded(draw_counts(clients, PARAMS, STEPS, np.random.default_rng(5)))


def test_a_common_beginning_without_its_string_is_named_with_an_interval(without_ends):
    """An interval reaches 4.4 errors, so P(40% is beyond 1.2 times as many) < 1e-6; seeded."""
    missing = without_ends.unexplained[0]
    assert missing.prefix == b"zqxj"
    assert abs(missing.share - 0.4) < 1.2 * (missing.high - missing.share)
    assert missing.strings == 0
    (finding,) = [f for f in open_findings(without_ends) if f.code == "beginnings"]
    assert "begin with zqxj…: nothing below it was found" in finding.text


def test_nothing_is_missing_where_all_strings_were_found(asked):
    """Chance may show one of .25% standard error; P(it is 3%) < 1e-6; seeded."""
    assert {s.replace("Z\u00fc", "Zu\u0308") for s in asked.decoding.candidates} >= set(CLIENTS)
    assert all(each.share < 0.03 for each in asked.unexplained)
    assert all(step.unexplained < 0.1 for step in asked.steps)


WORDS = ["there", "about", "after", "never", "house", "women", "three", "often", "under"]


def test_a_step_at_which_strings_turn_into_others_finds_what_no_model_expects():
    """Digits, then a letter, a digit and a mark, which no string began with; seeded.

    Each is beyond 20 errors: P(one is missed) < 1e-6.
    """
    steps = (2, 4, 7)
    params = open_params(steps)
    strings = {"1207Q4#8": 20_000, "1207Q6#1": 10_000, "3581Q2#5": 10_000, "6092Q7#3": 10_000}
    counts = draw_counts(strings, params, steps, np.random.default_rng(11))
    found = decode_open_strings(counts, params, OpenStringType(steps, 32), room=20_000).decoding
    assert {found.candidates[row] for row in found.largest_detected()} >= set(strings)


@pytest.mark.long
def test_gaps_are_looked_below_one_by_one_where_all_together_show_nothing():
    """Letters as no word has them, below six beginnings, beside words that teach others; seeded.

    Each is beyond 20 errors: P(one is missed) < 1e-6 of what is looked at.
    """
    steps = (2, 5)
    params = open_params(steps)
    odd = ["bxqkz", "cvjwq", "dgzxv", "fkqxh", "gwzjx", "hqxvk"]
    strings = {**dict.fromkeys(WORDS, 5_000), **dict.fromkeys(odd, 4_000)}
    counts = draw_counts(strings, params, steps, np.random.default_rng(21))
    found = propose(counts, params, OpenStringType(steps, 32), room=8_000)
    assert {text.encode() for text in (*odd, *WORDS)} <= set(found.steps[1].texts)


@pytest.mark.long
def test_an_end_that_no_model_expects_is_found():
    """A mark among digits, behind the last step; beyond 20 errors: P(missed) < 1e-6; seeded."""
    params = open_params(STEPS)
    strings = {"12073#8": 30_000, "3581": 10_000}
    counts = draw_counts(strings, params, STEPS, np.random.default_rng(12))
    found = decoded(counts).decoding
    assert {found.candidates[row] for row in found.largest_detected()} >= set(strings)


def test_strings_beyond_doubt_have_little_chance_to_be_false(found):
    likely = found.decoding.share > 0.1
    assert likely.any()
    assert (found.chance_false[likely] < 0.05).all()
    assert ((found.chance_false >= 0) & (found.chance_false <= 1)).all()


def test_a_corpus_shows_what_strings_are_like():
    """Ten strings of twelve letters below two beginnings, as likely as 26^-8 without the corpus."""
    rng = np.random.default_rng(8)
    syllables = ["qux", "zyv", "wok", "jib"]
    words = ["".join(rng.choice(syllables, 4)) for _ in range(200)]
    clients = dict.fromkeys(words[:10], 5_000)
    counts = draw_counts(clients, PARAMS, STEPS, rng)
    learned = decoded(counts, corpus=words[10:]).decoding
    detected = {s for s, d in zip(learned.candidates, learned.detected, strict=True) if d}
    assert len(detected & set(clients)) >= 8


def test_an_alphabet_shows_what_strings_are_written_in():
    """Ten strings of five of eight odd characters below two beginnings; seeded."""
    rng = np.random.default_rng(9)
    alphabet = "\u0e01\u16a0\u2203\u27f0\u3105\u4e07\uac02\ua4d0"
    clients = dict.fromkeys(("".join(rng.choice(list(alphabet), 5)) for _ in range(10)), 5_000)
    counts = draw_counts(clients, PARAMS, STEPS, rng)
    told = decode_open_strings(counts, PARAMS, TYPE, alphabet=alphabet, room=10_000).decoding
    detected = {s for s, d in zip(told.candidates, told.detected, strict=True) if d}
    assert len(detected & set(clients)) >= 5


def test_every_format_shows_the_search(found, tmp_path):
    result = open_estimates(found)
    files = [str(tmp_path / f"result.{end}") for end in ("csv", "json", "parquet", "html")]
    write_results(result, tuple(files))
    document = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert [step["bytes"] for step in document["search"]["steps"]] == [2, 4]
    assert len(document["rows"]) == len(found.decoding.candidates)
    assert "step 1, " in (tmp_path / "result.html").read_text(encoding="utf-8")
    assert "step 1, 2 bytes" in repr(result)


@cache
def start() -> Mixture:
    return Mixture.at_start()


def chances_along(symbols: list[int]) -> list[float]:
    row, states, chances = np.array([symbols]), np.zeros(1, dtype=np.int64), []
    for place, symbol in enumerate(symbols):
        before, last = contexts_at(row, place)
        chances.append(float(start().chances(0, before, last, states)[0, symbol]))
        states = state_after(states, row[:, place])
    return chances


@given(st.binary(min_size=1, max_size=4))
def test_bytes_that_end_with_a_chance_are_utf_8(data):
    possible = all(chance > 0 for chance in chances_along([*data, END]))
    try:
        data.decode()
    except UnicodeDecodeError:
        assert not possible
    else:
        assert possible
