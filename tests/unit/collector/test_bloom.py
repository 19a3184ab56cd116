"""Filters of batch ids: nothing that was added is denied, and nearly everything else is."""

import datetime as dt
import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.storage.bloom import BITS_PER_ID, BITS_SET, WORD_BYTES, FilteredTables, IdFilter
from hubbub.storage.id_tables import ID_BYTES, IdTable, id_table

_WORD_BITS = 8 * WORD_BYTES
_DAY = dt.date(2026, 3, 14)
_TABLE = id_table(_DAY)
_ids = st.lists(st.binary(min_size=ID_BYTES, max_size=ID_BYTES), min_size=1, max_size=60)


@given(ids=_ids, room=st.integers(0, 100), first=st.integers(0, 60))
def test_no_id_that_was_added_is_denied(ids, room, first):
    """However many there is room for, and in whatever portions they were added."""
    made = IdFilter.for_ids(room)
    for some in (ids[:first], ids[first:]):
        made.add(b"".join(some))
    assert _suspects(made, ids) == ids


@given(ids=_ids)
def test_filter_of_the_same_ids_has_the_same_digest(ids):
    """So that two processes that make it store the same."""
    one, other = IdFilter.for_ids(len(ids)), IdFilter.for_ids(len(ids))
    one.add(b"".join(ids))
    for each in reversed(ids):
        other.add(each)
    assert one.digest == other.digest


@given(ids=_ids, byte=st.integers(0, 7), bit=st.integers(0, 7))
def test_filter_comes_back_from_its_bytes(ids, byte, bit):
    made = IdFilter.for_ids(len(ids))
    made.add(b"".join(ids))
    data = bytearray(made.data)
    again = IdFilter.of_data(data)
    assert again.digest == made.digest
    assert _suspects(again, ids) == ids
    data[byte] ^= 1 << bit
    assert again.digest != made.digest


def test_each_table_is_suspected_for_its_own_ids():
    ids = [hashlib.md5(bytes([number])).digest() for number in range(4)]  # noqa: S324
    tables = [id_table(_DAY + dt.timedelta(days=age)) for age in range(3)]
    filters = {}
    for age, table in enumerate(tables):
        filters[table] = IdFilter.for_ids(10**age)
        filters[table].add(ids[age])
    found = FilteredTables(filters).possible_duplicates(ids)
    assert found == list(zip(tables, ids, strict=False))
    assert FilteredTables({}).possible_duplicates(ids) == []
    assert FilteredTables(filters).possible_duplicates([]) == []


def false_positive_rate(bits_per_id=BITS_PER_ID, bits_set=BITS_SET):
    """Return the chance that a random id may be there that isn't.

    The number of ids that have chosen a word is Poisson; given it, the number of bits that are set
    in it is that of full boxes after so many throws; and the id's own bits have to be among them,
    in both words.
    """
    load = 2 * _WORD_BITS / bits_per_id
    most = int(load + 12 * load**0.5 + 24)  # ids in a word; more have no weight in floating point
    full = np.zeros(_WORD_BITS + 1)  # chance that so many bits are set
    full[0] = 1.0
    share = np.arange(_WORD_BITS + 1) / _WORD_BITS
    weight = np.exp(-load)  # chance that so many ids have chosen the word
    rate = 0.0
    for ids in range(most):
        rate += weight * float(full @ share**bits_set)
        weight *= load / (ids + 1)
        for _ in range(bits_set):
            full = full * share + np.concatenate(([0.0], (full * (1 - share))[:-1]))
    return rate**2


def test_other_ids_are_suspected_as_often_as_calculated(rng):
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


def test_calculated_rate_is_that_of_words_filled_at_random(rng):
    """Without the filter: 400,000 words by the definition, P(false alarm) < 1e-7 (six errors)."""
    words, bits_per_id, bits_set = 400_000, 10, 4
    loads = rng.poisson(2 * 64 / bits_per_id, words)
    full = np.zeros((words, 64), bool)
    for throw in range(bits_set * int(loads.max())):
        thrown = loads * bits_set > throw
        full[np.flatnonzero(thrown), rng.integers(0, 64, int(thrown.sum()))] = True
    hits = (full.mean(axis=1)) ** bits_set
    expected = math.sqrt(false_positive_rate(bits_per_id, bits_set))  # of one of two words
    assert abs(hits.mean() - expected) < 6 * hits.std() / math.sqrt(words)


def test_one_in_889_is_suspected():
    """What the documentation says of one day, and of thirteen."""
    assert BITS_PER_ID == 16
    assert 1 / false_positive_rate() == pytest.approx(889, abs=0.5)
    assert 1 / (1 - (1 - false_positive_rate()) ** 13) == pytest.approx(69, abs=0.5)


def test_ids_that_were_chosen_to_fill_words_make_nothing_be_denied(rng):
    """Sixteen may fill two words; who chooses two full ones is then suspected, and few others.

    Of 100,000 others 0.6% instead of 0.1%, P(false alarm) < 1e-7; the words that the honest chose
    move that by a third of an error.
    """
    honest, hostile, others = 20_000, 2_208, 100_000
    made = IdFilter.for_ids(honest + hostile)
    made.add(rng.bytes(ID_BYTES * honest))
    apart = 2**32 // (hostile // 16)
    filling = [
        place.to_bytes(4) + (place + apart // 2).to_bytes(4) + _choosing(4 * member)
        for place in range(0, hostile // 16 * apart, apart)
        for member in range(16)
    ]
    made.add(b"".join(filling))
    assert _suspects(made, filling) == filling
    drawn = rng.bytes(ID_BYTES * others)
    ids = [drawn[start : start + ID_BYTES] for start in range(0, len(drawn), ID_BYTES)]
    full = (hostile / 8) / len(made.words)
    usual = math.sqrt(false_positive_rate(64 * len(made.words) / honest))
    share = (full + (1 - full) * usual) ** 2
    found = len(_suspects(made, ids))
    assert abs(found - others * share) < 6 * math.sqrt(others * share)


def _choosing(first: int) -> bytes:
    """Return the second half of an id that sets four bits from one on, in both of its words."""
    bits = sum((first + number) % 64 << 6 * number for number in range(4))
    return 2 * bits.to_bytes(4)


def _suspects(made: IdFilter, ids: list[bytes]) -> list[bytes]:
    table: IdTable = _TABLE
    return [batch_id for _, batch_id in FilteredTables({table: made}).possible_duplicates(ids)]
