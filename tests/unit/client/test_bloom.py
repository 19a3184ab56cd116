"""The hash that everyone shares."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.client import EncodingError
from hubbub.protocol import MAX_VALUE_BYTES, bit_positions, bloom_bits, canonical_bytes

text = st.text(st.characters(exclude_categories=["Cs"]))


@given(value=text)
def test_canonically_equivalent_values_are_one_value(value):
    params = make_params()
    decomposed = unicodedata.normalize("NFD", value)
    assert bit_positions(decomposed, 5, params) == bit_positions(
        unicodedata.normalize("NFC", value), 5, params
    )


@pytest.mark.parametrize(
    ("one", "other"), [("007", "7"), ("NA", "na"), ("x", " x"), ("x", "x\n"), ("", " ")]
)
def test_values_are_opaque(one, other):
    params = make_params(k=1024, h=8)
    assert bloom_bits(one, 0, params) != bloom_bits(other, 0, params)


def test_the_largest_value_is_64_kib_of_utf8():
    assert len(canonical_bytes("é" * (MAX_VALUE_BYTES // 2))) == MAX_VALUE_BYTES
    with pytest.raises(EncodingError, match="must be at most 65536 bytes"):
        canonical_bytes("é" * (MAX_VALUE_BYTES // 2) + "x")


def test_lone_surrogate_is_refused_without_quoting_the_value():
    with pytest.raises(EncodingError) as caught:
        canonical_bytes("my secret home page \ud800")
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
