"""Extending prefixes: the best stay, whatever their order, and only what can be UTF-8."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import Extensions, Mixture, Prefixes, UniformModel, extend, hash_words
from parameters import examples

WORDS = st.lists(st.text("abcX", min_size=2, max_size=2), min_size=1, max_size=6, unique=True)


@cache
def start() -> Mixture:
    """Return the model of nobody's letters; it takes a second, and not each worker needs it."""
    return Mixture.at_start()


def prefixes_of(texts: list[str], length: int) -> Prefixes:
    """Return the beginnings of texts, END behind those that are shorter."""
    return Prefixes.of_all([text.encode()[:length] for text in texts], length)


def texts_of(found: Extensions) -> dict[bytes, float]:
    texts = found.prefixes.texts(b"\xff")
    assert len(set(texts)) == len(texts)
    return dict(zip(texts, found.expected.tolist(), strict=True))


def test_all_chances_of_extensions_add_up_to_the_prefix():
    found = extend(Prefixes.of(b"x"), np.full(1, 0.25), 2, 1_000, start())
    assert found.expected.sum() == pytest.approx(0.25, rel=1e-5)


@examples(30)
@given(words=WORDS, data=st.data())
def test_order_of_prefixes_decides_nothing(words, data):
    shuffled = data.draw(st.permutations(words))
    shares = {word: 0.1 + 0.01 * number for number, word in enumerate(sorted(words))}

    def extended(order: list[str]) -> dict[bytes, float]:
        of_order = np.array([shares[word] for word in order])
        return texts_of(extend(prefixes_of(order, 2), of_order, 4, 300, start()))

    assert extended(words) == pytest.approx(extended(shuffled))


def test_strings_that_ended_stay_as_they_are():
    found = extend(prefixes_of(["at", "ate"], 3), np.array([0.5, 0.5]), 6, 1_000, start())
    ended = [t for t, p in zip(found.prefixes.texts(b"\xff"), found.parents, strict=True) if p == 0]
    assert ended == [b"at\xff"]
    rows = np.flatnonzero(found.parents == 1)
    assert all(text.startswith(b"ate") for text in found.prefixes.take(rows).texts(b"\xff"))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])
def test_extensions_are_the_beginning_of_utf_8(length):
    lessons = np.frombuffer("東京都😀é".encode()[:9], dtype=np.uint8).astype(np.uint16)[None, :]
    letters = start().learned(lessons, np.full(1, 50.0), 0)
    found = extend(Prefixes.of(b""), np.ones(1), length, 3_000, letters)
    for text in found.prefixes.texts(b""):
        text.decode(errors="ignore").encode()
        cut = len(text) - len(text.decode(errors="ignore").encode())
        assert 0 <= cut <= 3
    if length == 7:
        assert any(text.startswith("東京".encode()) for text in found.prefixes.texts(b""))


def test_a_begun_character_is_finished():
    found = extend(Prefixes.of("é".encode()[:1]), np.ones(1), 2, 100, start())
    assert all(0x80 <= text[1] < 0xC0 for text in found.prefixes.texts(b"") if len(text) > 1)
    assert len(found) == 64


@pytest.mark.parametrize("character", ["é", "я", "年", "🎉", "~"])
def test_no_new_character_is_impossible(character):
    known = prefixes_of(["2025"], 4)
    length = 4 + len(character.encode())
    found = extend(known, np.ones(1), length, 500_000, UniformModel(known))
    assert b"2025" + character.encode() in texts_of(found)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)),
    st.integers(0, 5),
)
def test_prefixes_of_any_number_are_spelled_and_hashed_as_each_alone(words, cut):
    """They are spelled in parts; whole ones of two widths are joined by the ends of the shorter."""
    texts = [word.encode() for word in words]
    width = max(map(len, texts), default=0) + 1
    few = Prefixes.of_all(texts[:cut], 1 + max(map(len, texts[:cut]), default=0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hubbub.inference.open_strings.prefixes._PART", 2)
        found = few.joined(Prefixes.of_all(texts[cut:], width))
        assert found.texts(b"") == texts
        assert found.hash_words(b"").tolist() == hash_words(texts).tolist()
    trimmed = Prefixes.of_all(texts, width + 3).trimmed()
    assert trimmed.texts(b"") == texts
    assert trimmed.length == width
    assert trimmed.whole.all()
