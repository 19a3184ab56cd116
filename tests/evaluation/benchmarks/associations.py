"""Tables of google/rappor's association reports: hubbub's against google/rappor's way.

Theirs (`decode-assoc` with `fast_em`) keeps the strings that least squares on bit counts puts two
standard errors above 0, adds "Other", whose bits are what those strings leave over, and takes 1,000
steps of expectation maximisation from equal shares over single reports. It is written here with
numpy, from its published sources' description. Compared are the total variation to the population's
table, and processor time from bits in memory on; a mean over some runs of each case.

`PYTHONPATH=tests python -m evaluation.benchmarks associations` prints it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from association_data import (
    AssociationCase,
    AssociationData,
    PairPopulation,
    draw,
    reports_of,
    strings_and_flags,
)
from evaluation.benchmarks.timing import Comparison
from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.association.decoding import counts_of, decode_association
from hubbub.inference.association.reports import AssociationReports
from hubbub.inference.decoding import decode
from hubbub.inference.parallel import one_thread
from hubbub.inference.params import DecodingParams

STEPS = 1_000
_SETTLED = 1e-6
_RUNS = 2
_LEAST_Z = 2.0


def _cases() -> Iterator[AssociationCase]:
    def population(shares: FloatArray, absent: int, unlisted: int) -> PairPopulation:
        rng = np.random.default_rng(len(shares))
        hidden = sorted(rng.choice(np.arange(5, len(shares)), unlisted, replace=False).tolist())
        return strings_and_flags(shares, rng.random(len(shares)), absent, hidden)

    common = 1 / np.arange(1.0, 31.0)
    falling = np.exp(-np.arange(40) / 8)
    usual = {"f": 0.5, "p": 0.25, "q": 0.75}
    yield AssociationCase(
        "k=8 m=128", population(common, 30, 3), DecodingParams(8, 1, 128, **usual), 100_000
    )
    yield AssociationCase(
        "k=16 m=64", population(falling, 20, 4), DecodingParams(16, 1, 64, **usual), 100_000
    )
    yield AssociationCase(
        "k=16 h=2 m=32",
        population(np.ones(40), 10, 2),
        DecodingParams(16, 2, 32, f=0.0, p=0.225, q=0.775),
        50_000,
    )
    yield AssociationCase(
        "k=32 h=2 m=64",
        population(1 / np.arange(1.0, 61.0), 30, 5),
        DecodingParams(32, 2, 64, f=0.25, p=0.25, q=0.75),
        100_000,
    )


def comparisons() -> Iterator[Comparison]:
    """Decode each case both ways."""
    for case in _cases():
        found = []
        for seed in range(_RUNS):
            data = draw(case.population, case.params, case.reports, np.random.default_rng(seed))
            reports = reports_of(data)
            with one_thread():
                found.append((*_ours(data, reports), *_theirs(data, reports)))
        distance, seconds, their_distance, their_seconds = np.mean(found, axis=0)
        yield Comparison(
            f"{case.reports:,} pairs, {case.name}: distance, s",
            f"{distance:.3f}, {seconds:.2f}",
            f"google/rappor's EM, {STEPS:,} steps",
            f"{their_distance:.3f}, {their_seconds:.2f}",
            f"{distance / their_distance:.2f} of the distance, "
            f"{seconds / their_seconds:.2f} of the time",
        )


def _ours(data: AssociationData, reports: AssociationReports) -> tuple[float, float]:
    started = time.process_time()
    found = decode_association(reports, data.candidates)
    seconds = time.process_time() - started
    return _distance(found.cells.refit, data), seconds


def _theirs(data: AssociationData, reports: AssociationReports) -> tuple[float, float]:
    started = time.process_time()
    listed = data.candidates["page"]
    counts = counts_of(reports, 0)
    found = decode(counts, data.params, listed)
    kept = np.flatnonzero(found.share > _LEAST_Z * found.std_error)
    string, flag = _densities(data, kept, found.share[kept])
    cells = (string[:, None] * flag).reshape(-1, len(data.cohorts))
    shares = np.full(len(cells), 1 / len(cells))
    for _ in range(STEPS):
        risen = shares * (cells @ (1 / (shares @ cells))) / len(data.cohorts)
        settled = np.abs(risen - shares).max() < _SETTLED
        shares = risen
        if settled:
            break
    seconds = time.process_time() - started
    table = np.zeros((len(listed) + 1, 2))
    table[np.append(kept, len(listed))] = shares.reshape(-1, 2)
    return _distance(table.ravel(), data), seconds


def _densities(
    data: AssociationData, kept: IntArray, kept_shares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return each report's density by each kept string and "Other", and by both flags."""
    params, (bits, flag), positions = data.params, data.bits, data.positions[0]
    if positions is None:
        raise ValueError("the first variable must be of strings")
    p, q, n = params.p_star, params.q_star, len(bits)
    log_unset = np.where(bits, np.log(p), np.log(1 - p))
    log_set = np.where(bits, np.log(q), np.log(1 - q))
    found = np.empty((len(kept) + 1, n))
    for row, string in enumerate(kept.tolist()):
        true = np.zeros((params.m, params.k), dtype=np.bool_)
        np.put_along_axis(true, positions[string].astype(np.int64), True, axis=1)
        own = true[data.cohorts]
        found[row] = np.exp(np.where(own, log_set, log_unset).sum(axis=1))
    others = _other_rates(data, positions[kept].astype(np.int64), kept_shares)[data.cohorts]
    found[-1] = np.where(bits, others, 1 - others).prod(axis=1)
    flags = np.stack([np.where(flag[:, 0], p, 1 - p), np.where(flag[:, 0], q, 1 - q)])
    return found, flags


def _other_rates(data: AssociationData, positions: IntArray, kept_shares: FloatArray) -> FloatArray:
    """Return how often bits of "Other" are set: what the kept strings leave of each cohort's."""
    params, bits = data.params, data.bits[0]
    p, q = params.p_star, params.q_star
    reports = np.bincount(data.cohorts, minlength=params.m)
    counts = np.zeros((params.m, params.k))
    np.add.at(counts, data.cohorts, bits)
    tops = np.ceil(kept_shares * len(bits) / params.m)
    own = np.zeros((len(positions), params.m, params.k))
    np.put_along_axis(own, positions, 1.0, axis=2)
    explained = np.einsum("s,smk->mk", tops, own * q + (1 - own) * p)
    left, left_reports = np.maximum(counts - explained, 0), np.maximum(reports - tops.sum(), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.nan_to_num(left / left_reports[:, None], nan=0.0, posinf=0.0)
    return np.asarray(np.minimum(rates, 1.0))


def _distance(table: FloatArray, data: AssociationData) -> float:
    """Return the total variation to the population's table."""
    return float(np.abs(table - data.population.cells.ravel()).sum() / 2)
