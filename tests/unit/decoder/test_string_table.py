"""A string table is a sequence of the strings that were put in."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.inference import candidates as files, pack_strings

_STRINGS = [
    "",
    "007",
    "NA",
    " x ",
    "a,b",
    'say "no"',
    "two\nlines",
    "\0",
    "\r",
    "日本",
    "\U0001f984",
]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_come_back_as_they_were(strings):
    table = pack_strings(strings)
    assert len(table) == len(strings)
    assert list(table) == strings
    assert [table[i] for i in range(len(table))] == strings
    assert [table.encoded(i).decode() for i in range(len(table))] == strings


def test_table_is_indexed_and_sliced_like_a_list():
    table = pack_strings(_STRINGS)
    assert table[-1] == _STRINGS[-1]
    assert table[2:9:3] == _STRINGS[2:9:3]
    assert table[::-1] == _STRINGS[::-1]
    assert table.index("NA") == 2
    assert "n/a" not in table
    with pytest.raises(IndexError):
        table[len(_STRINGS)]


@given(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=9),
    st.data(),
    st.sampled_from([1, 4, 2**20]),
)
def test_rows_are_compared_by_their_strings(strings, data, piece):
    row = st.integers(0, len(strings) - 1)
    pairs = data.draw(st.lists(st.tuples(row, row)))
    rows, others = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_COMPARED_BYTES", piece)
        same = pack_strings(strings).equal(rows, others)
    assert same.tolist() == [strings[row] == strings[other] for row, other in pairs]


def test_marked_rows_are_kept_in_order():
    kept = np.array([len(string) != 2 for string in _STRINGS])
    assert list(pack_strings(_STRINGS).only(kept)) == [
        string for string in _STRINGS if len(string) != 2
    ]
