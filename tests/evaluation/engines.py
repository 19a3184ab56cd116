"""Reports counted by threads, Dask and Spark: CPU seconds, ratios, and whether counts are equal.

`python -m evaluation.engines --reports 100000000` writes random reports (k = 128, m = 64, ten days)
with hubbub's own writer and counts them with each engine, each in a process of its own. CPU seconds
are those of all its processes, the start of the engine included; `counting` leaves the start out.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from factories import make_metric, make_params
from hubbub.decoder.engines import ENGINES, open_engine
from hubbub.decoder.reports.loading import load_reports
from hubbub.inference.anomalies import AnomalyDetector
from hubbub.protocol.records import Records, record_width
from hubbub.storage.files.parquet import write_records

METRIC = make_metric(params=make_params(k=128, m=64))
_DAYS = 10
_BLOCK = 2**20


def random_records(rng: np.random.Generator, reports: int, at_once: int) -> Iterator[Records]:
    """Yield random reports of the metric, so many at a time."""
    width = record_width(METRIC.params.k)
    for start in range(0, reports, at_once):
        rows = rng.integers(0, 256, (min(at_once, reports - start), width), dtype=np.uint8)
        rows[:, 0], rows[:, 1] = rows[:, 0] % METRIC.params.m, 0
        yield Records(width, rows.tobytes())


def write(folder: Path, reports: int) -> None:
    """Write random reports, as an export has them."""
    rng = np.random.default_rng(1)
    for day in range(_DAYS):
        path = f"metric=homepage/version=1/day=2026-11-{day + 1:02d}/part-0.parquet"
        records = random_records(rng, reports // _DAYS, _BLOCK)
        write_records(folder / path, record_width(METRIC.params.k), records)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it, those that ended included."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / ticks
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += seconds[process]
        waiting += parents.get(process, [])
    return total


def of_each_engine(
    module: str, option: str, place: str, ways: Sequence[str] = ENGINES
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a module prints as JSON when it is told to work in each way, in new processes."""
    for way in ways:
        if way == "spark" and importlib.util.find_spec("pyspark") is None:
            print("spark isn't installed: make test-spark installs it")
            continue
        command = [sys.executable, "-m", module, option, way, place]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        yield way, json.loads(done.stdout.splitlines()[-1])


def count(engine_name: str, folder: str) -> None:
    """Count with one engine, and print what it took as JSON."""
    begun = time.monotonic()
    with open_engine(engine_name) as engine:
        started = cpu_seconds()
        detector = AnomalyDetector(METRIC)
        loading = load_reports(f"parquet:{folder}", METRIC, engine=engine, detector=detector)
        counts = asyncio.run(loading).counts
        cpu = cpu_seconds()
    digest = hashlib.sha256(counts.reports.tobytes() + counts.bits.tobytes()).hexdigest()
    took = {"cpu": cpu, "counting": cpu - started, "seconds": time.monotonic() - begun}
    print(json.dumps(took | {"digest": digest, "reports": counts.total}))


def main() -> None:
    """Write, count with each engine, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=20_000_000)
    parser.add_argument("--count", nargs=2, metavar=("ENGINE", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        count(*options.count)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.reports)
        print("engine  CPU s  counting  M/CPU-s  ratio  seconds  counts")
        local = None
        for engine, found in of_each_engine("evaluation.engines", "--count", folder):
            local = local or found
            print(
                f"{engine:6} {found['cpu']:6.1f} {found['counting']:9.1f}"
                f" {found['reports'] / found['cpu'] / 1e6:8.1f}"
                f" {found['cpu'] / local['cpu']:6.2f} {found['seconds']:8.1f}"
                f"  {'equal' if found['digest'] == local['digest'] else 'NOT EQUAL'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
