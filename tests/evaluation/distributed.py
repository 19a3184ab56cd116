"""Whole reports decoded by threads, Dask and Spark: CPU seconds, memory, and equal results.

`python -m evaluation.distributed --reports 8000000` writes simulated reports (k = 64, h = 2,
m = 32) of 40 strings, most of them rare, and decodes them by the likelihood with each engine, each
in a process of its own. CPU seconds are those of all its processes; `sums` leaves out the start of
the engine and counting, and has reading the reports once more. Memory is the peak of the process
that decodes, and of its largest child. Results are compared to the last bit.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation.engines import cpu_seconds, of_each_engine
from evaluation.screening import ChildMemory
from evaluation.studies.cases import zipf
from factories import make_metric, make_params
from hubbub.decoder.candidates.listing import hashed
from hubbub.decoder.decoding import Decoding, decode
from hubbub.decoder.engines import open_engine
from hubbub.decoder.likelihood.choice import Choice, Method
from hubbub.decoder.reports.loading import load_reports
from hubbub.protocol.records import Records, record_width
from hubbub.simulations.simulated_clients.clients import SimulatedClients, as_records
from hubbub.storage.files.parquet import write_records

METRIC = make_metric(params=make_params(k=64, h=2, m=32))
STRINGS = tuple(f"https://example.com/{i}" for i in range(40))
_DAYS = 4
_BLOCK = 2**19
_NUMBERS = ("share", "std_error", "p_value", "q_value", "low", "high", "constrained_share")


def write(folder: Path, reports: int) -> None:
    """Write simulated reports, as an export has them."""
    rng = np.random.Generator(np.random.SFC64(1))
    clients = SimulatedClients(STRINGS, METRIC.params, rng)
    shares, width = zipf(len(STRINGS)), record_width(METRIC.params.k)

    def blocks(left: int) -> Iterator[Records]:
        while left:
            values = rng.choice(len(STRINGS), min(left, _BLOCK), p=shares)
            left -= len(values)
            yield Records(width, as_records(*clients.report(values)))

    for day in range(_DAYS):
        path = f"metric=homepage/version=1/day=2026-11-{day + 1:02d}/part-0.parquet"
        write_records(folder / path, width, blocks(reports // _DAYS))


def digest_of(decoding: Decoding) -> str:
    """Return a digest of all numbers of all rows."""
    numbers = [np.ascontiguousarray(getattr(decoding, name)).tobytes() for name in _NUMBERS]
    return hashlib.sha256(b"".join(numbers)).hexdigest()


def find(engine_name: str, folder: str) -> None:
    """Decode with one engine, and print what it took as JSON."""
    candidates = hashed(STRINGS, METRIC.params)
    choice = Choice(Method.LIKELIHOOD, METRIC.params, len(candidates))
    children, begun = ChildMemory(), time.monotonic()
    children.start()
    passes = 0

    def passed(done: int, _gap: float) -> None:
        nonlocal passes
        passes = done

    with open_engine(engine_name) as engine:
        loading = load_reports(
            f"parquet:{folder}", METRIC, engine=engine, spool_for=choice.spool_for
        )
        reports = asyncio.run(loading)
        counted = decode(reports.counts, METRIC.params, candidates)
        loaded = cpu_seconds()
        decoding = choice.complete(counted, reports.whole, candidates, passed)
        cpu = cpu_seconds()
    print(
        json.dumps(
            {
                "cpu": cpu,
                "sums": cpu - loaded,
                "seconds": time.monotonic() - begun,
                "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "child": children.peak / 1024,
                "passes": passes,
                "detected": decoding.summary.detected,
                "digest": digest_of(decoding),
            }
        )
    )


def main() -> None:
    """Write reports, decode them with each engine, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=8_000_000)
    parser.add_argument("--find", nargs=2, metavar=("ENGINE", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.find:
        find(*options.find)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.reports)
        print("engine  CPU s    sums  ratio  seconds     MB  child MB  passes  detected  results")
        first = None
        for engine, found in of_each_engine("evaluation.distributed", "--find", folder):
            first = first or found
            print(
                f"{engine:6} {found['cpu']:6.1f} {found['sums']:7.1f}"
                f" {found['cpu'] / first['cpu']:6.2f} {found['seconds']:8.1f}"
                f" {found['memory']:6.0f} {found['child']:9.0f} {found['passes']:7}"
                f" {found['detected']:9}"
                f"  {'equal' if found['digest'] == first['digest'] else 'NOT EQUAL'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
