"""How long the likelihood takes: the constants of `hubbub.inference.likelihood.choice`, measured.

`PYTHONPATH=tests python -m evaluation.benchmarks.likelihood_cost` decodes whole reports of a few
sizes on one core, in one to two minutes, and prints the constants that fit the processor's times
best, by least squares of their relative errors.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from evaluation.studies.cases import StringsCase, zipf
from factories import make_params
from hubbub.inference import (
    FloatArray,
    cost_terms,
    decode,
    decode_reports,
    hashed,
    one_thread,
    pack,
)
from hubbub.protocol import RapporParams

_RUNS = 2


class Size(NamedTuple):
    """So many reports, and so many candidates, of which half are there, or 100."""

    params: RapporParams
    reports: int
    candidates: int


SIZES = (
    Size(make_params(k=128, h=2, m=64), 10_000, 100),
    Size(make_params(k=128, h=2, m=64), 30_000, 300),
    Size(make_params(k=128, h=2, m=64), 100_000, 30),
    Size(make_params(k=128, h=2, m=64), 100_000, 300),
    Size(make_params(k=32, h=2, m=64), 200_000, 100),
    Size(make_params(k=16, h=3, m=16), 500_000, 100),
    Size(make_params(k=256, h=1, m=64), 100_000, 100),
    Size(make_params(k=128, h=2, m=64), 30_000, 10_000),
    Size(make_params(k=128, h=2, m=64), 10_000, 100_000),
    Size(make_params(k=256, h=2, m=128), 3_000, 100),
)


def measured_seconds(size: Size) -> float:
    """Return the least processor time of some runs on one core, from sorted reports on."""
    present = min(size.candidates // 2, 100)
    absent = size.candidates - present
    case = StringsCase.made_up("timed", size.params, size.reports, zipf(present), 0, absent)
    records, run = case.collect_reports(1)
    candidates = hashed(run.candidates, size.params)
    counted = decode(run.counts, size.params, candidates)
    reports = pack([records], size.params)
    seconds = []
    for _ in range(_RUNS):
        started = time.process_time()
        decode_reports(reports, counted, candidates, reason="timed", threads=1)
        seconds.append(time.process_time() - started)
    return min(seconds)


def fitted(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the seconds of each term, none negative, for which relative errors are least."""
    found, _ = nnls(terms / seconds[:, None], np.ones(len(seconds)))
    return np.asarray(found)


def main() -> None:
    """Measure, fit, and print what was measured beside what the fit says."""
    with one_thread():
        seconds = np.array([measured_seconds(size) for size in SIZES])
    terms = np.array([cost_terms(*size) for size in SIZES])
    constants = fitted(terms, seconds)
    for size, took, said in zip(SIZES, seconds, terms @ constants, strict=True):
        p = size.params
        print(
            f"k={p.k} h={p.h} m={p.m}, {size.reports:,} reports, {size.candidates} candidates: "
            f"{took:.2f} s, fitted {said:.2f} s"
        )
    names = ("NUMBER", "CELL", "TUPLE", "LOOKUP")
    for name, constant in zip(names, constants, strict=True):
        print(f"_SECONDS_PER_{name} = {constant:.1e}")


if __name__ == "__main__":
    main()
