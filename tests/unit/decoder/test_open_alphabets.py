"""What is looked for before anything is known: every script, and what programs write."""

from functools import cache
from itertools import product
from string import ascii_lowercase, ascii_uppercase

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import (
    END,
    LEAST_END,
    AlphabetModel,
    Mixture,
    Prefixes,
    all_beginnings,
    alphabets,
    contexts_at,
    decode_open_strings,
    state_after,
)
from hubbub.protocol import OpenStringType
from unit.decoder.open_counts import draw_counts, open_params

SCRIPTS = {
    "Cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяАЯёіїєґћџѣѫӕӘҚ",
    "Greek": "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώΑΩϊΐ",
    "Hebrew": "אבגדהוזחטיךכלםמןנסעףפץצקרשת",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويپچژگی",
    "Thai": "กขคงจฉชซญณดตถทธนบปผฝพฟภมยรลวศษสหอะาิีึืุูเแโใไ",
    "Georgian": "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
    "Devanagari": "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशसह",
    "emoji": "😀😂🎉❤👍🔥🚀",
    "digits": "0123456789",
    "hexadecimal": "0123456789abcdef",
}


@cache
def beginnings(length: int, own: str = "") -> frozenset[bytes]:
    """Return what is looked for in so many bytes; of four it takes a while."""
    return frozenset(all_beginnings(length, own).texts(b""))


def spelled(model: AlphabetModel, text: str) -> float:
    """Return the chance that an alphabet's string begins so, byte by byte."""
    symbols = Prefixes.of(text.encode()).symbols
    states, chance = np.zeros(1, dtype=np.int64), 1.0
    for place in range(symbols.shape[1]):
        before, last = contexts_at(symbols, place)
        chance *= float(model.chances(before, last, states)[0, symbols[0, place]])
        states = state_after(states, symbols[:, place].astype(np.int64))
    return chance


@pytest.mark.parametrize("script", SCRIPTS)
@given(data=st.data())
def test_every_pair_of_a_script_is_looked_for_in_four_bytes(script, data):
    pair = data.draw(st.text(SCRIPTS[script], min_size=1, max_size=2))
    assert pair.encode()[:4] in beginnings(4)


@given(st.characters(categories=["L", "N", "P", "S"], max_codepoint=0x2FFFF))
def test_every_character_is_looked_for(character):
    known = {code for alphabet in alphabets() for code in alphabet.codes.tolist()}
    assert (character.encode()[:4] in beginnings(4)) == (ord(character) in known)


@given(st.text([chr(code) for code in range(0x20, 0x7F)], max_size=2))
def test_every_pair_of_ascii_is_looked_for_in_two_bytes(pair):
    assert pair.encode() in beginnings(2)


@pytest.mark.parametrize("letters", [ascii_lowercase, ascii_uppercase])
@given(data=st.data())
def test_every_four_letters_of_either_case_are_looked_for(letters, data):
    assert data.draw(st.text(letters, max_size=4)).encode() in beginnings(4)


@given(length=st.integers(1, 6), own=st.text("abжю€😀", min_size=1, max_size=4))
def test_each_beginning_is_looked_for_once(length, own):
    found = all_beginnings(length, own).texts(b"")
    strings = {
        b"".join(c.encode() for c in some)
        for n in range(length + 1)
        for some in product(sorted(set(own)), repeat=n)
    }
    assert sorted(found) == sorted({text[:length] for text in strings})


def test_of_a_known_alphabet_its_strings_alone_are_looked_for_everywhere():
    strings = {"", *"abж", *(a + b for a in "ab" for b in "abж")}
    assert {text.encode()[:2] for text in strings} >= beginnings(2, "ab") > {b"ab", b"a"}
    assert "жж".encode() in beginnings(4, "жю")


@pytest.mark.parametrize("text", ["привет", "ελ", "東京", "a😀", "é"])
def test_bytes_make_characters_as_likely_as_the_alphabet_does(text):
    everything = alphabets()[-1]
    chances = dict(zip(everything.codes.tolist(), everything.chances.tolist(), strict=True))
    expected = np.prod([chances[ord(character)] for character in text])
    assert spelled(AlphabetModel(everything), text) == pytest.approx(expected)
    assert pytest.approx(1 - everything.chances.sum()) == LEAST_END


def test_an_open_stretch_may_have_ended():
    parts = Mixture.at_start().shares_of_models(
        np.array([[97, END], [0xD0, 0xBF]], dtype=np.uint16)
    )
    assert parts.sum(axis=1) == pytest.approx([1, 1])


FOUR_WORDS = {
    "Cyrillic": ("привет", "москва", "собака", "молоко"),
    "Greek": ("αθήνα", "ήλιος", "νερό", "μήλο"),
    "emoji": ("😀😂", "🎉", "👍🏽", "🚀🔥"),
    "Han": ("北京", "上海", "你好", "东京"),
    "Georgian": ("მზე", "დედა", "ცა", "თვე"),
    "hexadecimal": ("c08e77", "9d4fab", "3fa91c", "b20c5e"),
}


@pytest.mark.long
@pytest.mark.parametrize("words", FOUR_WORDS)
def test_four_words_of_any_script_are_found(words):
    """Shares of 40 to 10% at epsilon 6, each beyond 20 errors: P(false alarm) < 1e-6; seeded."""
    words = FOUR_WORDS[words]
    params, clients = open_params((4, 8), 64, 32, 6.0), (12_000, 9_000, 6_000, 3_000)
    counts = draw_counts(
        dict(zip(words, clients, strict=True)), params, (4, 8), np.random.default_rng(1)
    )
    found = decode_open_strings(counts, params, OpenStringType((4, 8), 32), room=20_000).decoding
    detected = [found.candidates[row] for row in found.largest_detected()]
    assert tuple(detected[:4]) == words
