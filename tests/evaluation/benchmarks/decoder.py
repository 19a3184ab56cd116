"""Counting, reading, scanning, decoding: the decoder's ways against plain ones.

The likelihood stands beside least squares, and a whole decoding beside a process that only imports
numpy.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation.benchmarks.timing import Comparison, compare, compare_amounts
from evaluation.studies.cases import StringsCase, zipf
from factories import make_params
from hubbub.decoder.candidates import read_list
from hubbub.inference import (
    Candidates,
    count_records,
    decode,
    decode_reports,
    hashed,
    make_design,
    pack,
    scan,
)
from hubbub.protocol import bit_positions as one_by_one, canonical_bytes, hash_words

_RECORDS, _CHUNKS = 1_000_000, 20
_FEW_RECORDS, _FEW_STRINGS = 200_000, 20_000
_STRINGS = 1_000_000
_DECODED = 100_000
_PARAMS = make_params(k=128, h=2, m=64)
_WIDTH = 2 + _PARAMS.k // 8
_ALL_LISTED = StringsCase.made_up("all listed", _PARAMS, _DECODED, zipf(100), absent=100)


def comparisons() -> Iterator[Comparison]:
    """Time the decoder's parts whose work grows with the input."""
    records = _uniform_records()
    yield _counting(records)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidates.txt")
        path.write_text("".join(f"https://example.com/{i}\n" for i in range(_STRINGS)))
        yield _reading(path)
        yield _scanning(path)
    yield _positions()
    yield _likelihood()
    with tempfile.TemporaryDirectory() as folder:
        yield _command(Path(folder))


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


def _count_one_by_one(records: bytes) -> int:
    return sum(count_records(records, _PARAMS).total for _ in range(_CHUNKS))


def _reading(path: Path) -> Comparison:
    def plain() -> int:
        words = {
            line.rstrip("\n"): hash_words(canonical_bytes(line.rstrip("\n")))
            for line in path.open()
        }
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
        candidates = hashed(strings, _PARAMS)
        for rows in candidates.pieces(slice(0, len(candidates))):
            candidates.positions(rows)
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


def _likelihood() -> Comparison:
    records, run = _ALL_LISTED.collect_reports(1)
    candidates = hashed(run.candidates, _PARAMS)
    counted = decode(run.counts, _PARAMS, candidates)

    def whole() -> int:
        decode_reports(pack([records], _PARAMS), counted, candidates, reason="timed")
        return _DECODED

    def counts() -> int:
        return decode(count_records(records, _PARAMS), _PARAMS, candidates).summary.reports

    return compare(
        "the likelihood of 100,000 reports, 200 candidates, k=128 h=2 m=64",
        whole, "least squares on their counts", counts, "reports", 3,
    )  # fmt: skip


def _command(folder: Path) -> Comparison:
    run = _ALL_LISTED.collect(1)
    counts, map_file, params = (folder / name for name in ("counts.csv", "map.csv", "params.csv"))
    table = np.column_stack([run.counts.reports, run.counts.bits])
    np.savetxt(counts, table, fmt="%d", delimiter=",")
    first = 1 + _PARAMS.k * np.arange(_PARAMS.m)[:, None]
    columns = hashed(run.candidates, _PARAMS).positions(slice(None)) + first
    rows = zip(run.candidates, columns.reshape(len(columns), -1), strict=True)
    map_file.write_text("".join(f"{name},{','.join(map(str, row))}\n" for name, row in rows))
    p = _PARAMS
    params.write_text(f"k,h,m,p,q,f\n{p.k},{p.h},{p.m},{p.p},{p.q},{p.f}\n")
    files = ("--counts", counts, "--params", params, "--map", map_file)
    return compare_amounts(
        "decoding 200 candidates from google/rappor's files, the process and all, k=128 h=2 m=64",
        lambda: _processor_time("-m", "hubbub.decoder", "decode", *map(str, files)),
        "importing numpy",
        lambda: _processor_time("-c", "import numpy"),
        "ms",
        7,
    )


def _processor_time(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
