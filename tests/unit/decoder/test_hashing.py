"""Many strings hash as one does in the client, and equal ones are found."""

import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from hubbub.inference import (
    SHORT,
    CandidateError,
    canonical_forms,
    hash_words,
    pack_strings,
    repeated,
    short_hash_words,
    words_of,
)
from hubbub.protocol.metric_types import strings as bloom

_ANGSTROM = "\N{ANGSTROM SIGN}"  # another character in normal form, of fewer bytes
_ANY = st.text(st.characters(exclude_categories=["Cs"]))


def place(index: int) -> str:
    return f"string {index}"


@given(st.lists(_ANY))
@example(["", "\0", "a\nb", "\r\n", "007", "NA", " x ", "a,b", '"'])
@example([_ANGSTROM, unicodedata.normalize("NFD", _ANGSTROM), "plain", "\u1100\u1161\u11a8"])
@example(["x" * bloom.MAX_VALUE_BYTES])
@example([_ANGSTROM * (bloom.MAX_VALUE_BYTES // 2)])
def test_words_equal_the_clients(strings):
    words = hash_words(canonical_forms([string.encode() for string in strings], place))
    assert words.dtype == np.uint32
    expected = [bloom.hash_words(bloom.canonical_bytes(s)) for s in strings]
    assert [tuple(row) for row in words.tolist()] == expected
    np.testing.assert_array_equal(words_of(strings), words)


@given(st.lists(st.binary(max_size=SHORT)))
@example([b"\0" * SHORT, b"\xff" * SHORT])
def test_short_strings_in_an_array_hash_as_others_do(strings):
    data = np.zeros((len(strings), SHORT), dtype=np.uint8)
    for row, string in zip(data, strings, strict=True):
        row[: len(string)] = list(string)
    sizes = np.array([len(string) for string in strings], dtype=np.int64)
    np.testing.assert_array_equal(short_hash_words(data, sizes), hash_words(strings))


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        (b"caf\xe9", "byte 4 is 0xe9; expected UTF-8"),
        (b"\xed\xa0\x80", "byte 1 is 0xed; expected UTF-8"),
        (b"\xc3", "byte 1 is 0xc3; expected UTF-8"),
        (b"x" * 65_537, "65537 bytes; expected at most 65536 bytes of UTF-8"),
        (("é" * 32_769).encode(), "65538 bytes; expected at most 65536 bytes of UTF-8"),
    ],
    ids=["Latin-1", "surrogate", "cut", "too long", "too long in UTF-8"],
)
def test_impossible_reports_are_refused_by_position(encoded, problem):
    with pytest.raises(CandidateError, match=f"^string 2: {problem}$"):
        canonical_forms([b"a", "é".encode(), encoded, b"c"], place)


@given(st.lists(st.sampled_from("abcd")), st.data())
def test_strings_of_one_hash_are_distinguished_by_their_bytes(strings, data):
    """Hashes are made equal, as collisions would."""
    hash_of = data.draw(st.fixed_dictionaries(dict.fromkeys("abcd", st.integers(0, 1))))
    words = np.array([(0, hash_of[string]) for string in strings], dtype=np.uint32)
    again = repeated(words.reshape(-1, 2), pack_strings(strings).equal)
    assert again.tolist() == [string in strings[:row] for row, string in enumerate(strings)]
