"""google/rappor as its users run it, written from its published description alone.

Clients hash with MD5, remember by HMAC and report a line of CSV; `sum_bits` adds reports up, and
`map_row` hashes a candidate. Nothing of hubbub is used: a bit order that both sides got wrong
would look right.
"""

import csv
import hashlib
import hmac
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Params(NamedTuple):
    """The six numbers, in the order of their file."""

    k: int
    h: int
    m: int
    p: float
    q: float
    f: float


class Files(NamedTuple):
    """What their decoder takes."""

    params: Path
    counts: Path
    map: Path


def bloom_positions(word: str, cohort: int, params: Params) -> list[int]:
    value = struct.pack(">L", cohort) + word.encode()
    digest = hashlib.md5(value, usedforsecurity=False).digest()
    return [byte % params.k for byte in digest[: params.h]]


def report(word: str, client: int, params: Params, coins: np.random.Generator) -> tuple[int, str]:
    """Return a client's cohort, and its bits as they are sent: the highest first."""
    cohort = client % params.m
    bloom = sum(1 << position for position in set(bloom_positions(word, cohort, params)))
    memory = hmac.new(b"client %d" % client, struct.pack(">L", bloom), hashlib.sha256).digest()
    irr = 0
    for bit, (byte, coin) in enumerate(zip(memory, coins.random(params.k).tolist(), strict=False)):
        forgotten = byte >> 1 < params.f * 128
        prr = byte & 1 if forgotten else bloom >> bit & 1
        irr |= (coin < (params.q if prr else params.p)) << bit
    return cohort, f"{irr:0{params.k}b}"


def sum_bits(reports: Iterable[tuple[int, str]], params: Params) -> list[list[int]]:
    """Return one row per cohort: its reports, then those that have bit 0, bit 1, and so on."""
    rows = [[0] * (1 + params.k) for _ in range(params.m)]
    for cohort, sent in reports:
        rows[cohort][0] += 1
        for bit, character in enumerate(reversed(sent)):
            rows[cohort][1 + bit] += character == "1"
    return rows


def map_row(word: str, params: Params) -> list[str | int]:
    return [word, *(
        cohort * params.k + position + 1
        for cohort in range(params.m)
        for position in bloom_positions(word, cohort, params)
    )]  # fmt: skip


def write_files(
    folder: Path,
    params: Sequence[float],
    counts: Iterable[Sequence[int]],
    rows: Iterable[Sequence[str | int]],
) -> Files:
    """Write params.csv, counts.csv and map.csv with the line ends of Python's csv module."""
    files = Files(folder / "params.csv", folder / "counts.csv", folder / "map.csv")
    for path, lines in zip(files, ([tuple("khmpqf"), params], counts, rows), strict=True):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
    return files


def run_clients(params: Params, held: dict[str, int], seed: int = 1) -> Iterator[tuple[int, str]]:
    coins = np.random.default_rng(seed)
    words = coins.permutation(np.repeat(np.array(list(held), dtype=object), list(held.values())))
    return (report(word, client, params, coins) for client, word in enumerate(words))


def write_reports_of(
    folder: Path, params: Params, held: dict[str, int], candidates: Iterable[str]
) -> Files:
    counts = sum_bits(run_clients(params, held), params)
    return write_files(folder, params, counts, (map_row(word, params) for word in candidates))
