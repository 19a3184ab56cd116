"""Random regimes of the string decoder, and the genie's bounds in them.

A regime is drawn from its number: filters, cohorts, noise, reports, candidates, who holds what and
which strings nobody listed. Whole reports are decoded where they are few enough; of more there are
counts alone. The laws of tests/statistical/test_decoder_laws.py hold over them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from evaluation.drawn_counts import draw_repeated_counts
from evaluation.genie import Information, detected
from evaluation.laboratory import seed_of
from evaluation.studies.cases import draw_records
from hubbub.decoder import CohortCounts, Correction, Decoding, count_records, decode
from hubbub.inference import (
    ONCE_OF_REPORTS,
    BoolArray,
    Candidates,
    Choice,
    FloatArray,
    Method,
    PackedReports,
    UndecodableError,
    expected_seconds,
    hashed,
    pack,
)
from hubbub.protocol import RapporParams
from hubbub.simulations import family_shares

ALPHA = 0.05
MOST_WHOLE = 200_000
"""Reports up to which single ones are drawn, and decoded whole."""
_LONGEST = 6.0  # seconds that the likelihood may be expected to take where it isn't chosen
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4)
"""At which p-values of absent candidates are counted."""
_Made = TypeVar("_Made")
METHODS = {"counts": Method.REGRESSION, "likelihood": Method.LIKELIHOOD, "auto": Method.AUTO}


class Coverage(NamedTuple):
    """Intervals that hold the truth, and all."""

    held: int
    intervals: int

    @classmethod
    def of(cls, held: BoolArray, chosen: BoolArray) -> Coverage:
        return cls(int(held[chosen].sum()), int(chosen.sum()))


@dataclass(frozen=True, slots=True)
class MethodScore:
    """What one method made of one trial."""

    found: int  # found, false: Detected candidates that some report is of, and others
    false: int
    # error_absent, error_present: Mean squares of the errors of candidates with an estimate; nan if
    # there are none
    error_absent: float
    error_present: float
    # everyone, present, detected: Of all candidates' intervals, of those that are held, and of
    # those that are detected
    everyone: Coverage
    present: Coverage
    detected: Coverage
    # absent candidates whose p-values are at most each of `LEVELS`, and at last all of them
    p_values: tuple[int, ...]

    @property
    def false_share(self) -> float:
        """False names among the detected; 0 if nothing was detected."""
        return self.false / max(self.found + self.false, 1)

    @property
    def error(self) -> float:
        """Mean square of the errors, absent and present candidates counting alike."""
        return float(np.nanmean([self.error_absent, self.error_present]))


@dataclass(frozen=True, slots=True)
class Trial:
    """One collection: what methods made of it, and what the genie and the oracle found."""

    methods: Mapping[str, MethodScore]
    genie: int
    oracle: int


@dataclass(frozen=True, slots=True)
class Regime:
    """A population, its reports, and a list of candidates."""

    name: str  # A number, or why it is a case
    params: RapporParams
    reports: int  # one of each client
    shares: FloatArray  # shape (v,): chance that a client holds each string
    listed: BoolArray  # shape (v,): which strings are candidates
    absent: int  # candidates that nobody holds
    whole: bool = True  # whether single reports are drawn

    @property
    def candidates(self) -> int:
        """How many strings are looked for."""
        return int(self.listed.sum()) + self.absent

    @property
    def work(self) -> float:
        return self.candidates + self.reports * self.whole

    def collect(self, number: int) -> Collection:
        """Draw the strings, people and coins of a trial."""
        rng = np.random.Generator(np.random.SFC64(seed_of(self.name, number)))
        values = tuple(f"{self.name} {number} string {i}" for i in range(len(self.shares)))
        records = None
        if self.whole:
            held = rng.choice(len(self.shares), size=self.reports, p=self.shares)
            records = draw_records(values, held, self.params, rng)
            counts = count_records(records, self.params)
            share = np.bincount(held, minlength=len(values)) / self.reports
        else:
            repeated = draw_repeated_counts(
                values, self.shares, self.params, {1: self.reports}, rng
            )
            counts, share = repeated.counts, repeated.share
        listed = np.flatnonzero(self.listed)
        candidates = [values[i] for i in listed.tolist()]
        candidates += [f"{self.name} {number} absent {i}" for i in range(self.absent)]
        truth = np.append(share[listed], np.zeros(self.absent))
        return Collection(values, counts, records, candidates, truth, rng)

    def run(self, number: int) -> Trial:
        collection = self.collect(number)
        candidates = hashed(collection.candidates, self.params)
        decodings = decode_all(self, collection, candidates)
        scores = {
            name: score(collection.truth, decoding) for name, (decoding, _) in decodings.items()
        }
        return Trial(scores, *self.bounds(collection))

    def bounds(self, collection: Collection) -> tuple[int, int]:
        """Return how many of the strings that reports are of the genie finds, and the oracle.

        The genie doesn't know the bits of strings that aren't listed, as no decoder can.
        """
        counts, values, params = collection.counts, collection.values, self.params
        own, others = self.shares[self.listed], self.shares[~self.listed]
        listed = tuple(collection.candidates[: len(own)])
        z_genie = Information.of(counts, listed, own, params, others).genie()
        z_oracle = Information.of(counts, values, self.shares, params).oracle()[self.listed]
        held = collection.truth[: len(own)] > 0
        genie, oracle = (
            detected(z, self.absent, ALPHA, Correction.BH, collection.rng)
            for z in (z_genie, z_oracle)
        )
        return int((genie & held).sum()), int((oracle & held).sum())


class Collection(NamedTuple):
    """What was drawn."""

    values: tuple[str, ...]  # what clients hold
    counts: CohortCounts
    records: bytes | None  # the reports, if they were drawn one by one
    candidates: list[str]  # the listed strings that are held, then absent ones
    truth: FloatArray  # shape (n,): each candidate's share of the reports
    rng: Generator  # whose coins nobody has seen yet


def decode_all(
    regime: Regime,
    collection: Collection,
    candidates: Candidates,
    methods: Sequence[str] = ("likelihood", "auto"),
) -> dict[str, tuple[Decoding, float]]:
    """Return each method's decoding and its seconds; those that can't be had are left out."""
    counts, params = collection.counts, regime.params
    counted, seconds = timed(
        lambda: decode(counts, params, candidates, alpha=ALPHA, repeats=ONCE_OF_REPORTS)
    )
    found = {"counts": (counted, seconds)}
    if collection.records is None:
        return found
    reports = pack([collection.records], params)
    for name in methods:
        made, more = timed(partial(completed, name, counted, reports, candidates))
        if made is not None:
            found[name] = (made, seconds + more)
    return found


def completed(
    name: str, counted: Decoding, reports: PackedReports, candidates: Candidates
) -> Decoding | None:
    """Return what a method makes of whole reports, from a decoding of their counts on."""
    params, n = reports.params, len(candidates)
    choice = Choice(METHODS[name], params, n)
    if name != "auto" and expected_seconds(params, reports.total, n) > _LONGEST:
        return None
    try:
        kept = reports if choice.keeps_whole(reports.total) else None
        return choice.complete(counted, kept, candidates, lambda _passes, _gap: None)
    except UndecodableError:
        return None


def timed(work: Callable[[], _Made]) -> tuple[_Made, float]:
    start = time.process_time()
    made = work()
    return made, time.process_time() - start


def distinct(truth: FloatArray, decoding: Decoding) -> tuple[FloatArray, Decoding]:
    """Make one of candidates that set the same bits."""
    same, truth = decoding.same_bits, truth.copy()
    np.add.at(truth, same.first, truth[same.rows])
    return truth[same.others(len(truth))], decoding.distinct()


def score(truth: FloatArray, decoding: Decoding) -> MethodScore:
    """Compare a decoding with the truth, shape (n,), of `distinct` candidates."""
    truth, decoding = distinct(truth, decoding)
    known, present, detected = ~np.isnan(decoding.share), truth > 0, decoding.detected
    held = (decoding.low <= truth) & (truth <= decoding.high)
    squares, p_value = (decoding.share - truth) ** 2, decoding.p_value[known & ~present]
    return MethodScore(
        found=int((detected & present).sum()),
        false=int((detected & ~present).sum()),
        error_absent=_mean(squares[known & ~present]),
        error_present=_mean(squares[known & present]),
        everyone=Coverage.of(held, known),
        present=Coverage.of(held, known & present),
        detected=Coverage.of(held, detected),
        p_values=(*(int((p_value <= level).sum()) for level in LEVELS), len(p_value)),
    )


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def draw_regime(seed: int, number: int, most_candidates: float = 1e5) -> Regime:
    """Return a random regime, the same for the same numbers."""
    rng = np.random.default_rng([seed, number])
    params = draw_params(rng)
    reports = int(log_uniform(rng, 1e3, 1e7))
    shares = draw_shares(rng, int(log_uniform(rng, 3, 301)))
    listed = _draw_listed(rng, shares)
    absent = max(int(log_uniform(rng, 10, most_candidates)) - int(listed.sum()), 0)
    return Regime(
        f"{seed}-{number}", params, reports, shares, listed, absent, reports <= MOST_WHOLE
    )


def draw_crowded(seed: int, number: int, most: int = 1_200) -> Regime:
    """Return a random regime with a tenth to one and a half times as many candidates as rows.

    There are `most` at most. Reports are so many that a typical share is 1.5 to 12 of the errors
    that the genie makes.
    """
    rng = np.random.default_rng([seed, number])
    k, h = 8 << int(rng.integers(4)), int(rng.integers(1, 4))
    m = int(log_uniform(rng, 4, 1600 / k))
    n = min(int(k * m * log_uniform(rng, 0.1, 1.5)), most)
    return _crowded(f"crowded {seed}-{number}", rng, (k, h, m), n)


def draw_outnumbered(seed: int, number: int, most: int = 1_200) -> Regime:
    """Return a random regime of one to six cohorts with up to thrice as many candidates as rows."""
    rng = np.random.default_rng([seed, number])
    k, h, m = 16 << int(rng.integers(4)), int(rng.integers(1, 4)), int(rng.integers(1, 7))
    n = min(int(k * m * log_uniform(rng, 1, 3)) + 1, most)
    return _crowded(f"outnumbered {seed}-{number}", rng, (k, h, m), n)


def _crowded(name: str, rng: Generator, sizes: tuple[int, int, int], n: int) -> Regime:
    """Return a regime of n candidates with filters of k bits, h hashes and m cohorts."""
    params = _draw_noise(rng, *sizes)
    shares = draw_shares(rng, max(4, int(min(n, 300) * log_uniform(rng, 0.1, 1))))
    slope = params.q_star - params.p_star
    information = params.h * slope**2 / (params.p_star * (1 - params.p_star))
    reports = (len(shares) * log_uniform(rng, 1.5, 12)) ** 2 / information
    listed = _draw_listed(rng, shares)
    return Regime(
        name, params, int(np.clip(reports, 1e3, 3e8)), shares, listed,
        max(n - int(listed.sum()), 0), whole=False,
    )  # fmt: skip


def _draw_listed(rng: Generator, shares: FloatArray) -> BoolArray:
    unknown = rng.uniform(0, 0.5) * rng.integers(2)
    order = rng.permutation(len(shares))
    masses = np.zeros(len(shares))
    masses[order] = np.cumsum(shares[order])
    return masses > unknown


def draw_params(rng: Generator) -> RapporParams:
    """Return random parameters: of one report a client, or with a permanent response, too."""
    k = 8 * int(log_uniform(rng, 1, 65))
    h = int(log_uniform(rng, 1, min(8, k // 4) + 1))
    return _draw_noise(rng, k, h, int(log_uniform(rng, 1, 129)))


def _draw_noise(rng: Generator, k: int, h: int, m: int) -> RapporParams:
    if rng.integers(2):
        q = 1 / (1 + math.exp(-rng.uniform(1, 6) / (2 * h)))
        return RapporParams(k, h, m, 0.0, 1 - q, q)
    f, q = rng.uniform(0.1, 0.6), rng.uniform(0.6, 0.95)
    return RapporParams(k, h, m, f, rng.uniform(0.05, q - 0.2), q)


def draw_shares(rng: Generator, n: int) -> FloatArray:
    """Return shares of so many strings: like Zipf's, even, exponential, or of one or few large."""
    shape = int(rng.integers(5))
    if shape == 0:
        return family_shares(f"zipf:{rng.uniform(0.5, 2)}", n)
    if shape == 1:
        return family_shares("uniform", n)
    if shape == 2:
        return family_shares(f"exponential:{rng.uniform(2, 10)}", n)
    large = 1 if shape == 3 else int(rng.integers(2, min(n, 9)))
    mass = rng.uniform(0.3, 0.9)
    return np.concatenate(
        [np.full(large, mass / large), np.full(n - large, (1 - mass) / (n - large))]
    )


def log_uniform(rng: Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def whole_list(
    name: str, params: RapporParams, reports: int, shares: FloatArray, absent: int
) -> Regime:
    everyone = np.ones(len(shares), dtype=np.bool_)
    return Regime(name, params, reports, shares, everyone, absent, reports <= MOST_WHOLE)
