"""Candidates are opaque, and hash in the decoder as they do in the client."""

import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    CandidateError,
    bit_positions,
    hashed,
    joined,
    make_design,
    mapped,
    of_words,
    words_of,
)
from hubbub.protocol.metric_types import strings as bloom

E_ACUTE = "\N{LATIN SMALL LETTER E WITH ACUTE}"
E_ACUTE_DECOMPOSED = unicodedata.normalize("NFD", E_ACUTE)


@st.composite
def parameters(draw: st.DrawFn, max_k: int = 1024, max_m: int = 1024) -> RapporParams:
    return make_params(
        k=8 * draw(st.integers(1, max_k // 8)),
        h=draw(st.integers(1, 8)),
        m=draw(st.integers(1, max_m)),
    )


def small_parameters() -> st.SearchStrategy[RapporParams]:
    return parameters(max_k=24, max_m=4)


@given(st.lists(st.text(), max_size=4), parameters())
@example(["", "\0", "a\nb"], make_params())
@example(["\U0001f984", "\U0010ffff", "日本語"], make_params(k=1024, h=8, m=1024))
@example([E_ACUTE, E_ACUTE_DECOMPOSED, "\N{OHM SIGN}", "\N{GREEK CAPITAL LETTER OMEGA}"],
         make_params(k=1000, m=1))  # fmt: skip
@example(["x" * bloom.MAX_VALUE_BYTES], make_params(k=8, m=3))
def test_positions_equal_the_clients(strings, params):
    positions = bit_positions(strings, params)
    assert positions.shape == (len(strings), params.m, params.h)
    assert positions.tolist() == [
        [list(bloom.bit_positions(string, cohort, params)) for cohort in range(params.m)]
        for string in strings
    ]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True),
    parameters(),
    st.data(),
)
def test_hashed_candidates_have_the_clients_positions(strings, params, data):
    candidates = hashed(strings, params)
    everything = bit_positions(strings, params)
    assert len(candidates) == len(strings)
    assert list(candidates.strings) == strings
    assert candidates.positions(slice(None)).dtype == np.int16
    np.testing.assert_array_equal(candidates.positions(slice(None)), everything)
    some = data.draw(st.lists(st.sampled_from(range(len(strings))))) if strings else []
    rows = np.array(some, dtype=np.int64)
    np.testing.assert_array_equal(candidates.positions(rows), everything[rows])


def test_repeated_strings_are_refused():
    params = make_params(k=8, h=1, m=1)
    with pytest.raises(CandidateError, match="each once; number 3 stands earlier, too"):
        hashed(["a", "b", "a"], params)
    with pytest.raises(CandidateError, match="each once; number 3 stands earlier, too"):
        mapped(["a", "b", "a"], np.zeros((3, 1, 1), dtype=np.int16), params)


def test_candidates_for_other_parameters_are_reported():
    candidates = hashed(["a"], make_params(k=16, h=2, m=4))
    candidates.check(make_params(k=16, h=2, m=4, f=0.25, p=0.1, q=0.9))
    with pytest.raises(CandidateError, match=r"\(16, 2, 4\): must be for \(16, 2, 5\)"):
        candidates.check(make_params(k=16, h=2, m=5))


@pytest.mark.parametrize("wrong", [-1, 8])
def test_positions_outside_of_the_filter_are_refused(wrong):
    positions = np.array([[[0]], [[wrong]]], dtype=np.int16)
    with pytest.raises(CandidateError, match=f"{wrong}.*: must be from 0 to k - 1 = 7"):
        mapped(["a", "b"], positions, make_params(k=8, h=1, m=1))


def test_normal_forms_of_one_text_have_the_same_positions():
    composed, decomposed = bit_positions([E_ACUTE, E_ACUTE_DECOMPOSED], make_params())
    np.testing.assert_array_equal(composed, decomposed)


@given(st.lists(st.text(max_size=3), max_size=6), small_parameters())
def test_design_equals_a_dense_one_of_the_clients_filters(strings, params):
    design = make_design(bit_positions(strings, params), params)
    dense = np.array(
        [
            [
                bloom.bloom_bits(string, cohort, params) >> bit & 1
                for cohort in range(params.m)
                for bit in range(params.k)
            ]
            for string in strings
        ],
        dtype=np.float64,
    ).reshape(len(strings), params.m * params.k)
    np.testing.assert_array_equal(design.matrix.toarray(), dense)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.data())
def test_joined_candidates_have_the_bits_of_either_in_its_cohorts(first, then, h, data):
    params = make_params(k=64, h=h, m=first + then)
    names, others = ["a", "b", "c"], ["d", "e", "f"]
    found = joined(names, (words_of(names), words_of(others)), (first, then), params)
    parts = [
        of_words(some, words_of(some), params._replace(m=m)).positions(slice(None))
        for some, m in ((names, first), (others, then))
    ]
    expected = np.concatenate(parts, axis=1)
    np.testing.assert_array_equal(found.positions(slice(None)), expected)
    given_ones = mapped(names, expected, params)
    np.testing.assert_array_equal(found.numbers(slice(None)), given_ones.numbers(slice(None)))
    rows = np.array(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)))
    count = data.draw(st.integers(1, params.m))
    np.testing.assert_array_equal(
        found.take(rows).of_cohorts(count).positions(slice(None)), expected[rows, :count]
    )
