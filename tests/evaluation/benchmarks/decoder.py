"""Counting, reading and scanning: the decoder's ways by the million against the plain ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation.benchmarks.timing import Comparison, compare
from factories import make_params
from hubbub.decoder.candidates.files import read_list
from hubbub.decoder.candidates.listing import Candidates, hashed, make_design
from hubbub.decoder.candidates.scanning import scan
from hubbub.decoder.counts import count_records
from hubbub.decoder.parallel import cores
from hubbub.decoder.reports.loading import Counting
from hubbub.protocol.bloom import bit_positions as one_by_one
from hubbub.protocol.bloom import hash_words

_RECORDS, _CHUNKS = 1_000_000, 20
_FEW_RECORDS, _FEW_STRINGS = 200_000, 20_000
_STRINGS = 1_000_000
_PARAMS = make_params(k=128, h=2, m=64)
_WIDTH = 2 + _PARAMS.k // 8


def comparisons() -> Iterator[Comparison]:
    """Time the decoder's parts whose work grows with the input."""
    records = _uniform_records()
    yield _counting(records)
    yield _counting_on_all_cores(records)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidates.txt")
        path.write_text("".join(f"https://example.com/{i}\n" for i in range(_STRINGS)))
        yield _reading(path)
        yield _scanning(path)
    yield _positions()


def _uniform_records() -> bytes:
    rng = np.random.default_rng(1)
    table = rng.integers(0, 256, (_RECORDS, _WIDTH), dtype=np.uint8)
    table[:, 0] %= _PARAMS.m
    table[:, 1] = 0
    return table.tobytes()


def _counting(records: bytes) -> Comparison:
    few = records[: _FEW_RECORDS * _WIDTH]

    def unpack() -> int:
        rows = np.frombuffer(few, dtype=np.uint8).reshape(-1, _WIDTH)
        bits = np.unpackbits(rows[:, 2:], axis=1, bitorder="little")
        for cohort in range(_PARAMS.m):
            bits[rows[:, 0] == cohort].sum(axis=0)
        return _FEW_RECORDS

    return compare(
        "counting 20 million reports on one core, k=128 m=64",
        lambda: _count_one_by_one(records),
        "np.unpackbits, summed cohort by cohort",
        unpack,
        "reports",
        3,
    )


def _counting_on_all_cores(records: bytes) -> Comparison:
    def on_all() -> int:
        with Counting(_PARAMS) as counting:
            for _ in range(_CHUNKS):
                counting.add(records)
            return counting.result().total

    return compare(
        f"counting them on {cores()} cores",
        on_all,
        "on one core",
        lambda: _count_one_by_one(records),
        "reports",
        3,
    )


def _count_one_by_one(records: bytes) -> int:
    return sum(count_records(records, _PARAMS).total for _ in range(_CHUNKS))


def _reading(path: Path) -> Comparison:
    def plain() -> int:
        words = {line.rstrip("\n"): hash_words(line.rstrip("\n")) for line in path.open()}
        return len(words)

    return compare(
        "reading and hashing a million candidates",
        lambda: len(read_list(str(path))),
        "the client's hash in a loop, into a dictionary",
        plain,
        "strings",
        3,
    )


def _scanning(path: Path) -> Comparison:
    candidates = read_list(str(path)).hashed(_PARAMS)
    few = hashed(candidates.strings[:_FEW_STRINGS], _PARAMS)
    tables = list(np.random.default_rng(2).random((3, _PARAMS.m, _PARAMS.k)))

    def scan_all() -> int:
        scan(candidates, tables[:1], tables[1:])
        return len(candidates)

    def multiply() -> int:
        return _multiply_sparse(few, tables)

    return compare(
        "three sums over the bits of a million candidates, h=2 m=64",
        scan_all,
        "a sparse design, built and multiplied",
        multiply,
        "candidates",
        3,
    )


def _multiply_sparse(candidates: Candidates, tables: list[np.ndarray]) -> int:
    design = make_design(candidates.positions(slice(None)), _PARAMS)
    for table in tables:
        design.sums(table.ravel())
    return len(candidates)


def _positions() -> Comparison:
    strings = [f"https://example.com/{i}" for i in range(_FEW_STRINGS)]

    def vectorised() -> int:
        for _ in hashed(strings, _PARAMS).chunks():
            pass
        return len(strings)

    def plain() -> int:
        few = strings[:1000]
        for string in few:
            for cohort in range(_PARAMS.m):
                one_by_one(string, cohort, _PARAMS)
        return len(few)

    return compare(
        "hashing strings into positions, h=2 m=64", vectorised, "the client's hash in a loop",
        plain, "strings", 3,
    )  # fmt: skip
