"""Counting and hashing: the vectorised ways against the plain ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Comparison, compare
from factories import make_params
from hubbub.client.bloom import bit_positions as one_by_one
from hubbub.decoder.candidates import bit_positions
from hubbub.decoder.counts import count_records

_RECORDS, _STRINGS = 500_000, 2_000
_PARAMS = make_params(k=128, h=2, m=64)


def comparisons() -> Iterator[Comparison]:
    """Time the decoder's two parts whose work grows with the input."""
    yield _counting()
    yield _hashing()


def _counting() -> Comparison:
    rng = np.random.default_rng(1)
    width = 2 + _PARAMS.k // 8
    table = rng.integers(0, 256, (_RECORDS, width), dtype=np.uint8)
    table[:, 0] %= _PARAMS.m
    table[:, 1] = 0
    records = table.tobytes()

    def count() -> int:
        count_records(records, _PARAMS)
        return _RECORDS

    def unpack() -> int:
        rows = np.frombuffer(records, dtype=np.uint8).reshape(-1, width)
        bits = np.unpackbits(rows[:, 2:], axis=1, bitorder="little")
        for cohort in range(_PARAMS.m):
            bits[rows[:, 0] == cohort].sum(axis=0)
        return _RECORDS

    return compare(
        "count_records, k=128 m=64",
        count,
        "np.unpackbits, summed cohort by cohort",
        unpack,
        "reports",
        3,
    )


def _hashing() -> Comparison:
    strings = [f"https://example.com/{i}" for i in range(_STRINGS)]

    def vectorised() -> int:
        bit_positions(strings, _PARAMS)
        return _STRINGS

    def plain() -> int:
        for string in strings:
            for cohort in range(_PARAMS.m):
                one_by_one(string, cohort, _PARAMS)
        return _STRINGS

    return compare(
        "hashing candidates, h=2 m=64", vectorised, "the client's hash in a loop", plain,
        "strings", 3,
    )  # fmt: skip
