"""Candidates are opaque, and hash in the decoder as they do in the client."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from factories import make_params
from hubbub.client import RapporParams, bloom
from hubbub.decoder.candidates import (
    CandidateList,
    bit_positions,
    distinct,
    indistinguishable,
    make_design,
    read_candidates,
)
from hubbub.decoder.errors import CandidateError

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
def test_positions_equal_the_clients(strings: list[str], params: RapporParams) -> None:
    positions = bit_positions(strings, params)
    assert positions.shape == (len(strings), params.m, params.h)
    assert positions.tolist() == [
        [list(bloom.bit_positions(string, cohort, params)) for cohort in range(params.m)]
        for string in strings
    ]


def test_normal_forms_of_one_text_have_the_same_positions() -> None:
    composed, decomposed = bit_positions([E_ACUTE, E_ACUTE_DECOMPOSED], make_params())
    np.testing.assert_array_equal(composed, decomposed)


@pytest.mark.parametrize(
    ("string", "problem"),
    [
        ("\ud800", "surrogates"),
        ("x" * (bloom.MAX_VALUE_BYTES + 1), "at most 65536 bytes"),
        (E_ACUTE * 32_769, "at most 65536 bytes"),
    ],
    ids=["surrogate", "too long", "too long in UTF-8"],
)
def test_string_that_no_client_could_report_is_refused_by_its_number(
    string: str, problem: str
) -> None:
    with pytest.raises(CandidateError, match=rf"^candidate 3: .*{problem}"):
        bit_positions(["a", "b", string, "c"], make_params())


@given(st.lists(st.text(max_size=3), max_size=6), small_parameters())
def test_design_equals_a_dense_one_of_the_clients_filters(
    strings: list[str], params: RapporParams
) -> None:
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


def test_repeated_position_counts_once() -> None:
    params = make_params(k=8, h=3, m=2)
    positions = np.array([[[5, 1, 5], [7, 7, 7]]], dtype=np.int16)
    (row,) = make_design(positions, params).matrix.toarray()
    assert np.flatnonzero(row).tolist() == [1, 5, 8 + 7]
    assert row.max() == 1


@given(st.lists(st.text(max_size=3), min_size=1, max_size=6), small_parameters())
def test_design_sums_a_vector_over_each_candidates_bits(
    strings: list[str], params: RapporParams
) -> None:
    design = make_design(bit_positions(strings, params), params)
    values = np.arange(params.m * params.k, dtype=np.float64)
    expected = [values[row == 1].sum() for row in design.matrix.toarray()]
    np.testing.assert_array_equal(design.sums(values), expected)


@given(st.data(), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
def test_indistinguishable_candidates_share_all_bits_where_there_are_reports(
    data: st.DataObject, n: int, m: int, h: int
) -> None:
    drawn = st.lists(st.integers(0, 2), min_size=n * m * h, max_size=n * m * h)
    positions = np.array(data.draw(drawn), dtype=np.int16).reshape(n, m, h)
    reporting = st.lists(st.booleans(), min_size=m, max_size=m).filter(any)
    has_reports = np.array(data.draw(reporting))
    filters = [
        [frozenset(row) for row, seen in zip(rows, has_reports, strict=True) if seen]
        for rows in positions.tolist()
    ]
    expected = [filters.count(own) > 1 for own in filters]
    assert indistinguishable(positions, has_reports).tolist() == expected


def test_one_cohort_that_reports_tells_candidates_apart() -> None:
    positions = np.array([[[1], [2]], [[1], [3]]], dtype=np.int16)
    assert indistinguishable(positions, np.array([True, False])).all()
    assert not indistinguishable(positions, np.array([True, True])).any()


@pytest.mark.parametrize(
    ("content", "strings"),
    [
        (b"a\nb\n", ("a", "b")),
        (b"a\nb", ("a", "b")),
        (b"\xef\xbb\xbfa\nb\n", ("a", "b")),
        (b"a\r\nb\r\n", ("a", "b")),
        (b"a\r\nb", ("a", "b")),
        (b"a\n\nb\n", ("a", "", "b")),
        (b"a\n\n", ("a", "")),
        (b"\n", ("",)),
        (b"\r\n", ("",)),
        (b"007\nNA\nnull\n x \n\t\n1e5\n", ("007", "NA", "null", " x ", "\t", "1e5")),
        (b'a,b\n"c"\n#d\n\'\n', ("a,b", '"c"', "#d", "'")),
        ("a\rb\x0bc\x0cd\x85\u2028\n".encode(), ("a\rb\x0bc\x0cd\x85\u2028",)),
        ("日本\n\U0001f984\n".encode(), ("日本", "\U0001f984")),
        (f"{E_ACUTE}\n{E_ACUTE_DECOMPOSED}\n".encode(), (E_ACUTE, E_ACUTE_DECOMPOSED)),
    ],
    ids=["lines", "no final newline", "byte order mark", "CRLF", "CRLF, no final newline",
         "blank line", "blank last line", "only a blank line", "only a blank CRLF line",
         "looks like data", "looks like syntax", "other line separators", "not ASCII",
         "normal forms"],
)  # fmt: skip
def test_lines_are_taken_as_they_are(
    tmp_path: Path, content: bytes, strings: tuple[str, ...]
) -> None:
    path = tmp_path / "candidates.txt"
    path.write_bytes(content)
    listed = read_candidates(str(path))
    assert listed == CandidateList(strings, repeats=0)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"], ids=["nothing", "byte order mark"])
def test_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "candidates.txt"
    path.write_bytes(content)
    with pytest.raises(CandidateError, match=r"candidates\.txt: empty; expected one string"):
        read_candidates(str(path))


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "candidates.txt"
    path.write_bytes("café\n".encode("latin-1"))
    with pytest.raises(CandidateError, match=r"candidates\.txt: can't be read as UTF-8"):
        read_candidates(str(path))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"nowhere\.txt: can't be read"):
        read_candidates(str(tmp_path / "nowhere.txt"))


@given(st.lists(st.sampled_from(["a", "A", "a ", "", E_ACUTE, E_ACUTE_DECOMPOSED])))
def test_first_of_equal_strings_is_kept(strings: list[str]) -> None:
    kept = distinct(strings)
    assert set(kept.strings) == set(strings)
    assert list(kept.strings) == sorted(set(strings), key=strings.index)
    assert kept.repeats == len(strings) - len(set(strings))
