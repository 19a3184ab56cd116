"""Filters of batch ids: nothing that was added is denied, and nearly everything else is."""

from __future__ import annotations

import datetime as dt
import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.collector.store.bloom import (
    BITS_PER_ID,
    FilteredTables,
    IdFilter,
    false_positive_rate,
)
from hubbub.collector.store.ids import ID_BYTES, IdTable, id_table

_DAY = dt.date(2026, 3, 14)
_TABLE = id_table(_DAY)
_ids = st.lists(st.binary(min_size=ID_BYTES, max_size=ID_BYTES), min_size=1, max_size=60)


@given(ids=_ids, room=st.integers(0, 100), first=st.integers(0, 60))
def test_no_id_that_was_added_is_denied(ids: list[bytes], room: int, first: int) -> None:
    """However many there is room for, and in whatever portions they were added."""
    made = IdFilter.for_ids(room)
    for some in (ids[:first], ids[first:]):
        made.add(b"".join(some))
    assert _suspects(made, ids) == ids


@given(ids=_ids)
def test_filter_of_the_same_ids_has_the_same_digest(ids: list[bytes]) -> None:
    """So that two processes that make it store the same."""
    one, other = IdFilter.for_ids(len(ids)), IdFilter.for_ids(len(ids))
    one.add(b"".join(ids))
    for each in reversed(ids):
        other.add(each)
    assert one.digest == other.digest


@given(ids=_ids, byte=st.integers(0, 7), bit=st.integers(0, 7))
def test_filter_comes_back_from_its_bytes(ids: list[bytes], byte: int, bit: int) -> None:
    made = IdFilter.for_ids(len(ids))
    made.add(b"".join(ids))
    data = bytearray(made.data)
    again = IdFilter.of_data(data)
    assert again.digest == made.digest
    assert _suspects(again, ids) == ids
    data[byte] ^= 1 << bit
    assert again.digest != made.digest


def test_each_table_is_suspected_for_its_own_ids() -> None:
    ids = [hashlib.md5(bytes([number])).digest() for number in range(4)]  # noqa: S324
    tables = [id_table(_DAY + dt.timedelta(days=age)) for age in range(3)]
    filters = {}
    for age, table in enumerate(tables):
        filters[table] = IdFilter.for_ids(10**age)
        filters[table].add(ids[age])
    found = FilteredTables(filters).suspects(ids)
    assert found == list(zip(tables, ids, strict=False))
    assert FilteredTables({}).suspects(ids) == []
    assert FilteredTables(filters).suspects([]) == []


def test_other_ids_are_suspected_as_often_as_calculated(rng: np.random.Generator) -> None:
    """Of 500,000 ids; given the filter their number is binomial, P(false alarm) < 1e-7.

    The filter itself has 50,000 words, whose mean is off by less than a third of that.
    """
    inside, outside = 200_000, 500_000
    made = IdFilter.for_ids(inside)
    made.add(rng.bytes(ID_BYTES * inside))
    expected = false_positive_rate()
    drawn = rng.bytes(ID_BYTES * outside)
    ids = [drawn[start : start + ID_BYTES] for start in range(0, len(drawn), ID_BYTES)]
    found = len(_suspects(made, ids))
    assert abs(found - outside * expected) < 6 * math.sqrt(outside * expected)


def test_calculated_rate_is_that_of_words_filled_at_random(rng: np.random.Generator) -> None:
    """Without the filter: 400,000 words by the definition, P(false alarm) < 1e-7 (six errors)."""
    words, bits_per_id, bits_set = 400_000, 10, 4
    loads = rng.poisson(64 / bits_per_id, words)
    full = np.zeros((words, 64), bool)
    for throw in range(bits_set * int(loads.max())):
        thrown = loads * bits_set > throw
        full[np.flatnonzero(thrown), rng.integers(0, 64, int(thrown.sum()))] = True
    hits = (full.mean(axis=1)) ** bits_set
    expected = false_positive_rate(bits_per_id, bits_set)
    assert abs(hits.mean() - expected) < 6 * hits.std() / math.sqrt(words)


def test_one_in_247_is_suspected() -> None:
    """What the documentation says of one day, and of twelve."""
    assert BITS_PER_ID == 16
    assert 1 / false_positive_rate() == pytest.approx(247, abs=0.5)
    assert 1 - (1 - false_positive_rate()) ** 12 == pytest.approx(0.048, abs=0.0005)


def test_ids_that_were_chosen_to_fill_words_make_nothing_be_denied(
    rng: np.random.Generator,
) -> None:
    """Eleven may fill a word; others that choose it are then suspected, and no more than those.

    Of 100,000 others 3.6% on top of the usual, P(false alarm) < 1e-7.
    """
    honest, hostile, others = 20_000, 2_200, 100_000
    made = IdFilter.for_ids(honest + hostile)
    made.add(rng.bytes(ID_BYTES * honest))
    filling = [
        (group * (2**32 // (hostile // 11))).to_bytes(4) + bytes(4) + _choosing(6 * member)
        for group in range(hostile // 11)
        for member in range(11)
    ]
    made.add(b"".join(filling))
    assert _suspects(made, filling) == filling
    drawn = rng.bytes(ID_BYTES * others)
    ids = [drawn[start : start + ID_BYTES] for start in range(0, len(drawn), ID_BYTES)]
    share = (hostile / 11) / len(made.words) + false_positive_rate()
    found = len(_suspects(made, ids))
    assert abs(found - others * share) < 6 * math.sqrt(others * share)


def _choosing(first: int) -> bytes:
    """Return the second half of an id that sets six bits from one on."""
    bits = [(first + number) % 64 for number in range(6)]
    third, last = bits[0] | bits[1] << 6, bits[2] | bits[3] << 6 | bits[4] << 12 | bits[5] << 18
    return third.to_bytes(4) + last.to_bytes(4)


def _suspects(made: IdFilter, ids: list[bytes]) -> list[bytes]:
    table: IdTable = _TABLE
    return [batch_id for _, batch_id in FilteredTables({table: made}).suspects(ids)]
