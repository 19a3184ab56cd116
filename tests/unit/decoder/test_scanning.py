"""One pass over all candidates sums what adding up one by one would."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    BoolArray,
    Candidates,
    DecodingParams,
    FloatArray,
    bit_numbers,
    hashed,
    indistinguishable,
    mapped,
    of_words,
    scan,
)

E_ACUTE, E_ACUTE_DECOMPOSED = "é", "e\u0301"


@st.composite
def candidates_of(draw: st.DrawFn) -> Candidates:
    """Draw hashed candidates, or mapped ones whose hashes often share a bit."""
    params = make_params(k=8 * draw(st.integers(1, 5)), h=draw(st.integers(1, 5)),
                         m=draw(st.integers(1, 6)))  # fmt: skip
    n = draw(st.integers(0, 40))
    strings = [f"string {i}" for i in range(n)]
    if draw(st.booleans()):
        return hashed(strings, params)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = draw(st.integers(1, params.k))
    positions = rng.integers(few, size=(n, params.m, params.h), dtype=np.int16)
    return mapped(strings, positions, params)


def tables_of(params: RapporParams, count: int, seed: int) -> list[FloatArray]:
    return list(np.random.default_rng(seed).normal(size=(count, params.m, params.k)))


def naive(
    candidates: Candidates, hash_tables: list[FloatArray], bit_tables: list[FloatArray]
) -> tuple[list[list[float]], list[list[float]]]:
    by_hash, by_bit = [], []
    for filters in candidates.positions(slice(None)).tolist():
        all_hashes = [(c, j) for c, row in enumerate(filters) for j in row]
        by_hash.append([sum(table[cell] for cell in all_hashes) for table in hash_tables])
        by_bit.append([sum(table[cell] for cell in set(all_hashes)) for table in bit_tables])
    return by_hash, by_bit


@given(candidates_of(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2**32))
def test_scan_equals_adding_up_one_by_one(candidates, n_hash, n_bit, seed):
    hash_tables = tables_of(candidates.params, n_hash, seed)
    bit_tables = tables_of(candidates.params, n_bit, seed + 1)
    by_hash, by_bit = scan(candidates, hash_tables, bit_tables)
    expected_by_hash, expected_by_bit = naive(candidates, hash_tables, bit_tables)
    assert by_hash.shape == (len(candidates), n_hash)
    assert by_bit.shape == (len(candidates), n_bit)
    np.testing.assert_allclose(by_hash.tolist(), expected_by_hash, atol=1e-12)
    np.testing.assert_allclose(by_bit.tolist(), expected_by_bit, atol=1e-12)


@pytest.mark.parametrize("k", [128, 200], ids=["power of two", "no power of two"])
def test_scan_crosses_pieces_and_spans(k):
    """20,000 candidates in pieces of a few hundred, a span and a half."""
    params = make_params(k=k, h=3, m=200)
    candidates = hashed([f"string {i}" for i in range(20_000)], params)
    (table,) = tables_of(params, 1, 5)
    by_hash, _ = scan(candidates, [table], [])
    parts = [
        table[np.arange(params.m)[:, None], candidates.positions(rows)].sum(axis=(1, 2))
        for rows in candidates.pieces(slice(0, len(candidates)))
    ]
    assert len(parts) > 2
    np.testing.assert_allclose(by_hash[:, 0], np.concatenate(parts), atol=1e-10)


def brute_force_groups(candidates: Candidates, has_reports: BoolArray) -> dict[int, int]:
    """Return the first candidate with the same bits, of those that aren't first."""
    filters = [
        [frozenset(row) for row, seen in zip(rows, has_reports, strict=True) if seen]
        for rows in candidates.positions(slice(None)).tolist()
    ]
    first = [filters.index(own) for own in filters]
    return {row: before for row, before in enumerate(first) if before < row}


def groups(candidates: Candidates, has_reports: BoolArray) -> dict[int, int]:
    same = indistinguishable(candidates, has_reports)
    assert (np.diff(same.rows) > 0).all()
    assert same.candidates == len({*same.rows.tolist(), *same.first.tolist()})
    return dict(zip(same.rows.tolist(), same.first.tolist(), strict=True))


@given(st.data(), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
def test_indistinguishable_candidates_share_all_bits_where_there_are_reports(data, n, m, h):
    drawn = st.lists(st.integers(0, 2), min_size=n * m * h, max_size=n * m * h)
    positions = np.array(data.draw(drawn), dtype=np.int16).reshape(n, m, h)
    candidates = mapped([str(i) for i in range(n)], positions, make_params(k=8, h=h, m=m))
    has_reports = np.array(data.draw(st.lists(st.booleans(), min_size=m, max_size=m).filter(any)))
    expected = brute_force_groups(candidates, has_reports)
    assert groups(candidates, has_reports) == expected
    others = indistinguishable(candidates, has_reports).others(n)
    assert others.tolist() == [row for row in range(n) if row not in expected]


def test_candidates_that_differ_in_the_last_cohort_alone_are_distinguished(rng):
    """That they are alike in those that are looked at first says nothing yet."""
    params = make_params(k=128, h=2, m=64)
    positions = np.repeat(rng.integers(0, 128, (1, 64, 2), dtype=np.int16), 3, axis=0)
    positions[1, -1, 0] = (positions[1, -1, 0] + 1) % 128
    candidates = mapped(["a", "b", "c"], positions, params)
    assert groups(candidates, np.ones(64, dtype=np.bool_)) == {2: 0}
    assert groups(candidates, np.arange(64) < 63) == {1: 0, 2: 0}


def test_groups_are_found_among_many():
    """4,096 filters, 50,000 strings: nearly all are in a group; and none at k = 128."""
    strings = [f"string {i}" for i in range(50_000)]
    tiny = hashed(strings, make_params(k=16, h=1, m=4))
    reporting = np.array([True, True, True, False])
    keys = tiny.positions(slice(None))[:, :3, 0].astype(np.int64) @ [1, 16, 256]
    _, first, of = np.unique(keys, return_index=True, return_inverse=True)
    before = first[of]
    expected = {row: int(before[row]) for row in range(len(keys)) if before[row] < row}
    assert groups(tiny, reporting) == expected
    assert groups(hashed(strings, make_params()), np.ones(64, np.bool_)) == {}


@pytest.mark.parametrize(("k", "h"), [(4, 16), (2, 4), (8, 8), (64, 2)])
def test_first_numbers_distinguish_the_same_strings_as_all_bits(k, h):
    """Of 500 strings pairs that differ have equal numbers with probability 2^-64 or so."""
    params = DecodingParams(k, h, 120, f=0.5, p=0.25, q=0.75)
    words = np.random.default_rng(k).integers(2**32, size=(500, 2), dtype=np.uint32)
    bits = np.zeros((500, 120 * k), dtype=np.bool_)
    np.put_along_axis(bits, bit_numbers(words, params).reshape(500, -1).astype(np.int64), True, 1)
    candidates = of_words([f"{i}" for i in range(500)], words, params)
    same = indistinguishable(candidates, np.ones(120, dtype=np.bool_))
    assert 500 - len(same.rows) == len(np.unique(bits, axis=0))
