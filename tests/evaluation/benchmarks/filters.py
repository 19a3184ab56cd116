"""Filters of closed days: a group of ids asked for at once, against one word after the other."""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from evaluation.benchmarks.timing import Comparison, compare
from hubbub.storage.bloom import FilteredTables, IdFilter
from hubbub.storage.id_tables import ID_BYTES, id_table

_DAYS = 12
_IDS = 7_000_000
_IDS_A_TURN = 4_000


def comparisons() -> Iterator[Comparison]:
    """Time groups as large as those of a busy collector, and single batches."""
    filters = {}
    for age in range(_DAYS):
        made = IdFilter.for_ids(_IDS)
        for _ in range(7):
            made.add(secrets.token_bytes(ID_BYTES * _IDS // 7))
        filters[id_table(dt.date(2026, 3, 14) + dt.timedelta(days=age))] = made
    tables = FilteredTables(filters)
    words = [made.words.data for made in filters.values()]
    for group in (64, 16, 1):
        yield compare(
            f"filters of {_DAYS} days, asked for groups of {group}",
            partial(_ask, tables, group),
            "the same in Python, word by word",
            partial(_ask_in_python, words, group),
            "ids",
            clock=time.process_time,
        )


def _ask(tables: FilteredTables, group: int) -> int:
    for ids in _groups(group):
        tables.possible_duplicates(ids)
    return _IDS_A_TURN


def _ask_in_python(tables: Sequence[memoryview], group: int) -> int:
    """Ask in the same way, though not for the same bits."""
    for ids in _groups(group):
        choices = []
        for batch_id in ids:
            number = int.from_bytes(batch_id)
            bits = _PAIRS[number & 4095] | _PAIRS[number >> 12 & 4095]
            choices.append((number >> 96, number >> 64 & 0xFFFFFFFF, bits))
        for words in tables:
            length = len(words)
            [
                one
                for one, other, bits in choices
                if words[one * length >> 32] & bits == bits
                and words[other * length >> 32] & bits == bits
            ]
    return _IDS_A_TURN


def _groups(size: int) -> list[list[bytes]]:
    drawn = np.random.default_rng().bytes(ID_BYTES * _IDS_A_TURN)
    ids = [drawn[start : start + ID_BYTES] for start in range(0, len(drawn), ID_BYTES)]
    return [ids[start : start + size] for start in range(0, len(ids), size)]


_PAIRS = [1 << (i % 64) | 1 << (i // 64) for i in range(4096)]
