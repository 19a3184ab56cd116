"""A long list screened by threads, Dask and Spark, beside the same list in memory.

`python -m evaluation.screening --candidates 50000000` writes a list of so many strings, of which
100 are those of 300,000 simulated reports (k = 128, h = 2, m = 64), and finds them in each way,
each in a process of its own. CPU seconds are those of all its processes, the start of the engine
included; `work` leaves the start out. Memory is the peak of the process that decodes, and of its
largest child, such as Spark's JVM. Rows are compared to nine digits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from evaluation.engines import cpu_seconds, of_each_engine
from evaluation.studies.cases import StringsCase, zipf
from factories import make_params
from hubbub.decoder.candidates.files import read_list
from hubbub.decoder.decoding import Decoding, decode
from hubbub.decoder.engines import ENGINES, open_engine
from hubbub.decoder.screening.decoding import screen

IN_MEMORY = "in memory"
_PARAMS = make_params(k=128, h=2, m=64)
_REPORTS, _PRESENT = 300_000, 100
_AT_ONCE = 100_000
_LOOK = 0.2


def write(path: Path, candidates: int, present: tuple[str, ...]) -> None:
    """Write a list that holds the present strings, evenly."""
    step = candidates // len(present)
    names = dict(zip(range(0, candidates, step), present, strict=False))
    with path.open("w") as file:
        for start in range(0, candidates, _AT_ONCE):
            rows = range(start, min(start + _AT_ONCE, candidates))
            file.write("".join(names.get(i, f"https://example.com/{i}") + "\n" for i in rows))


class ChildMemory(threading.Thread):
    """Looks for the largest peak of a process below this one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._parents = {os.getpid()}

    def run(self) -> None:
        """Look several times a second."""
        while True:
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit():
                    continue
                try:
                    lines = (entry / "status").read_text().splitlines()
                except OSError:
                    continue  # it has just ended
                status = dict(line.split(":", 1) for line in lines if ":" in line)
                if int(status["PPid"]) in self._parents:
                    self._parents.add(int(entry.name))
                    self.peak = max(self.peak, int(status.get("VmHWM", "0 kB").split()[0]))
            time.sleep(_LOOK)


def digest_of(decoding: Decoding) -> str:
    """Return a digest of the detected rows, to printed precision."""
    rows = np.flatnonzero(decoding.detected).tolist()
    table = [
        f"{decoding.candidates[row]} {decoding.share[row]:.9g} {decoding.std_error[row]:.9g} "
        f"{decoding.low[row]:.9g} {decoding.high[row]:.9g} {decoding.p_value[row]:.9g} "
        f"{decoding.q_value[row]:.9g} {decoding.constrained_share[row]:.9g}"
        for row in rows
    ]
    return hashlib.sha256("\n".join(table).encode()).hexdigest()


def find(way: str, path: str) -> None:
    """Decode in one way, and print what it took as JSON."""
    counts = _case().collect_reports(1)[1].counts
    children, begun, before = ChildMemory(), time.monotonic(), cpu_seconds()
    children.start()
    if way == IN_MEMORY:
        started = before
        decoding = decode(counts, _PARAMS, read_list(path).hashed(_PARAMS))
        cpu = cpu_seconds()
    else:
        with open_engine(way) as engine:
            started = cpu_seconds()
            decoding = screen(counts, _PARAMS, path, engine).decoding
            cpu = cpu_seconds()
    print(
        json.dumps(
            {
                "cpu": cpu - before,
                "work": cpu - started,
                "seconds": time.monotonic() - begun,
                "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "child": children.peak / 1024,
                "detected": decoding.summary.detected,
                "digest": digest_of(decoding),
            }
        )
    )


def _case() -> StringsCase:
    return StringsCase.made_up("screening", _PARAMS, _REPORTS, zipf(_PRESENT), 0, _PRESENT)


def main() -> None:
    """Write a list, decode it in each way, and print a table."""
    ways = (IN_MEMORY, *ENGINES)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=10_000_000)
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--find", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.find:
        find(*options.find)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidates.txt")
        write(path, options.candidates, tuple(_case().collect_reports(1)[1].candidates))
        print("way        CPU s    work  ratio  seconds     MB  child MB  detected  rows")
        first = None
        screening = of_each_engine("evaluation.screening", "--find", str(path), options.ways)
        for way, found in screening:
            first = first or found
            print(
                f"{way:9} {found['cpu']:6.1f} {found['work']:7.1f}"
                f" {found['cpu'] / first['cpu']:6.2f} {found['seconds']:8.1f}"
                f" {found['memory']:6.0f} {found['child']:9.0f} {found['detected']:9}"
                f"  {'equal' if found['digest'] == first['digest'] else 'NOT EQUAL'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
