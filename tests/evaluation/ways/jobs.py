"""The jobs: reports counted by each engine; a long list searched."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from evaluation.studies.cases import StringsCase, zipf
from evaluation.ways.way import Done, Job
from factories import make_metric, make_params
from hubbub.decoder.candidates import read_list
from hubbub.decoder.engines import open_dask
from hubbub.decoder.options import ENGINES, LOCAL
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.inference import AnomalyDetector, Decoding, decode
from hubbub.protocol import CohortCounts, Metric, Records, record_width
from hubbub.storage import Partition, write_day

COUNTED = make_metric(params=make_params(k=128, m=64))
_BLOCK = 2**19
"""Reports that are written at once."""
_PRESENT = 100
_SEARCHED = StringsCase.made_up(
    "searched", make_params(k=128, h=2, m=64), 300_000, zipf(_PRESENT), absent=_PRESENT
)
_LIST = "candidates.txt"
_NUMBERS = ("share", "std_error", "p_value", "q_value", "low", "high", "constrained_share")

Begin = Callable[[], None]


def random_records(rng: np.random.Generator, reports: int, at_once: int) -> Iterator[Records]:
    width = record_width(COUNTED.params.k)
    for start in range(0, reports, at_once):
        rows = rng.integers(0, 256, (min(at_once, reports - start), width), dtype=np.uint8)
        rows[:, 0], rows[:, 1] = rows[:, 0] % COUNTED.params.m, 0
        yield Records(width, rows.tobytes())


def counts_digest(counts: CohortCounts) -> str:
    return hashlib.sha256(counts.reports.tobytes() + counts.bits.tobytes()).hexdigest()


def _write_days(folder: Path, metric: Metric, days: Iterable[Iterator[Records]]) -> None:
    for day, blocks in enumerate(days, start=1):
        partition = Partition("homepage", 1, dt.date(2026, 11, day))
        write_day(folder, partition, metric.definition, {"": blocks}, {})


def _write_random(folder: Path, reports: int) -> None:
    rng = np.random.default_rng(1)
    _write_days(folder, COUNTED, (random_records(rng, reports // 10, _BLOCK) for _ in range(10)))


def _count(way: str, folder: Path, begin: Begin) -> Done:
    with nullcontext() if way == LOCAL else open_dask() as engine:
        begin()
        detector = AnomalyDetector(COUNTED)
        loading = load_reports(
            StoredReports(f"parquet:{folder}"), COUNTED, engine=engine, detector=detector
        )
        counts = asyncio.run(loading).counts
    return Done(counts.total, counts_digest(counts))


def _write_list(folder: Path, candidates: int) -> None:
    """Write a list that holds the strings of the reports, evenly."""
    present = _SEARCHED.collect(1).candidates
    step, at_once = candidates // len(present), 100_000
    names = dict(zip(range(0, candidates, step), present, strict=False))
    with (folder / _LIST).open("w") as file:
        for start in range(0, candidates, at_once):
            rows = range(start, min(start + at_once, candidates))
            file.write("".join(names.get(i, f"https://example.com/{i}") + "\n" for i in rows))


def _search(_way: str, folder: Path, begin: Begin) -> Done:
    counts, params = _SEARCHED.collect(1).counts, _SEARCHED.params
    begin()
    decoding = decode(counts, params, read_list(str(folder / _LIST)).hashed(params))
    return Done(decoding.summary.detected, _detected_digest(decoding))


def _detected_digest(decoding: Decoding) -> str:
    """Return a digest of the detected rows, to printed precision: sums differ in their order."""
    rows = np.flatnonzero(decoding.detected).tolist()
    table = [
        " ".join(
            [
                decoding.candidates[row],
                *(f"{getattr(decoding, name)[row]:.9g}" for name in _NUMBERS),
            ]
        )
        for row in rows
    ]
    return hashlib.sha256("\n".join(table).encode()).hexdigest()


JOBS = {
    "count": Job(
        "Reports of ten days counted (k = 128, m = 64)",
        *("reports", "reports", 20_000_000, tuple(ENGINES), _write_random, _count),
    ),
    "search": Job(
        "A list searched for the strings of 300,000 reports (k = 128, h = 2, m = 64)",
        *("candidates", "detected", 1_000_000, (LOCAL,), _write_list, _search),
    ),
}
