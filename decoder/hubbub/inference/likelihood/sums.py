"""Sums over all reports, a block at a time, on all cores.

Given its string the bits of a report are independent, so a string's density at report i, relative
to "no bit is set", is a product over its distinct bits j in the report's cohort,
    L_is = prod_j rho_ij,   rho = q*/p* if the reported bit is 1, (1 - q*)/(1 - p*) if it is 0,
and every other bit cancels. The unknown string's density is the mean of L over h independent
uniform positions, which depends on the number of ones alone.

Densities are made a block at a time and dropped: no array grows with both reports and strings. If
reports are many they are of single precision for sums that measure uncertainty; the
log-likelihood and its gradient, on which the certificate rests, are of double precision always.
Invariant: the sums are the same to the bit whatever the number of threads, and wherever parts of
the reports are kept, because parts and blocks are fixed and what they give is added in their order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import special

from hubbub.inference.arrays import (
    BoolArray,
    ByteArray,
    FloatArray,
    IntArray,
    PositionArray,
    RealArray,
)
from hubbub.inference.packed import PackedReports, RawReports, ReportBlock
from hubbub.inference.parallel import one_thread
from hubbub.protocol import RapporParams

# A block's 2 MB of doubles suit a core's cache, within rows that make matrix work worthwhile.
# Fixed, because blocks are summed in this order: other sizes change last digits.
BLOCK_NUMBERS = 2**18
_LEAST_ROWS, _MOST_ROWS = 256, 8192
_HANDFUL = 4096  # rows that are handed to a thread together; speed alone depends on it
# Such handfuls waiting for each thread: enough that none idles, few enough to bound memory.
_AHEAD = 4
_LEAST_MIX = 0.02  # of a mix, when a string is taken out that explains nearly all of it
_MANY_ROWS = 2**14  # from here on rounding to single precision averages out
Precision = np.dtype[np.floating[Any]]
SINGLE: Precision = np.dtype(np.float32)
DOUBLE: Precision = np.dtype(np.float64)
CohortSums = dict[int, list[FloatArray]]
"""Some sums over the reports of each cohort that a part of the reports has."""
_Result = TypeVar("_Result")


@cache
def bit_ratios(params: RapporParams) -> FloatArray:
    """Return rho of a reported 0 and of a reported 1."""
    p_star, q_star = params.p_star, params.q_star
    return np.array([(1 - q_star) / (1 - p_star), q_star / p_star])


def distinct_positions(positions: PositionArray, params: RapporParams) -> PositionArray:
    """Sort each string's positions in a cohort and turn repeats into k, a bit that never matters.

    `positions`, shape (..., h): from 0, below k. Returns an array of shape (..., h): ascending;
    from 0 to k.
    """
    ordered = np.sort(positions, axis=-1)
    repeat = ordered[..., 1:] == ordered[..., :-1]
    ordered[..., 1:][repeat] = params.k
    return np.sort(ordered, axis=-1)


def ratio_rows(bits: ByteArray, params: RapporParams, precision: Precision = DOUBLE) -> RealArray:
    """Return each report's rho of every bit, and a row of ones for the bit that never matters.

    `bits` has shape (n, k / 8). `precision`: float32 or float64: the type of the rows. Returns an
    array of shape (k + 1, n): bits are rows, because strings pick bits.
    """
    rows = np.empty((params.k + 1, len(bits)), dtype=precision)
    rows[params.k] = 1
    unpacked = np.unpackbits(np.ascontiguousarray(bits.T), axis=0, bitorder="little")
    # Bit j of the filter is bit j % 8 of byte j // 8, and unpacking along axis 0 keeps that order.
    zero, one = bit_ratios(params).astype(precision)
    # A multiplication takes a fifth of a look-up's time.
    np.multiply(unpacked, one - zero, out=rows[: params.k])
    rows[: params.k] += zero
    return rows


def densities(rows: RealArray, positions: PositionArray) -> RealArray:
    """Return L of some strings; shape (a, n).

    `rows`, shape (k + 1, n): from `ratio_rows`. `positions`, shape (a, h): the strings' distinct
    positions in the reports' cohort.
    """
    product = rows[positions[:, 0]]
    for column in positions.T[1:]:
        product *= rows[column]
    return product


def unknown_density(bits: ByteArray, params: RapporParams) -> FloatArray:
    """Return L of an unlisted string, at each report; shape (n,)."""
    ones = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return np.asarray(unknown_densities(params)[ones])


@cache
def unknown_densities(params: RapporParams) -> FloatArray:
    """Return L of a random string at reports that have u ones, for all u; shape (k + 1,).

    Notes
    -----
    h uniform positions are d different bits with probability S(h, d) k! / ((k - d)! k^h), S being
    Stirling's numbers of the second kind; of these, i are among the u ones with the hypergeometric
    probability:
        E_h(u) = sum_d P(d) sum_i Hypergeometric(i; k, u, d) rho_1^i rho_0^(d - i).
    """
    zero, one = bit_ratios(params)
    ones = np.arange(params.k + 1)
    total = np.zeros(params.k + 1)
    for d in range(params.h + 1):
        ways = special.stirling2(params.h, d, exact=True) * math.perm(params.k, d)
        chance = ways / params.k**params.h
        hit = np.arange(d + 1)
        among = special.binom(ones[:, None], hit) * special.binom(params.k - ones[:, None], d - hit)
        mass = among / special.binom(params.k, d)
        total += chance * (mass @ (one**hit * zero ** (d - hit)))
    return total


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The log-likelihood at some shares."""

    value: float
    gradient: FloatArray  # shape (a,)
    information: FloatArray  # shape (a, a); minus the second derivatives


class Overlaps(NamedTuple):
    """Information that strings outside of a model share with it."""

    own: FloatArray  # shape (o,); information of each, sum_i w_i L_i^2 / mix_i^2
    # Shape (o, 1 + a); sum_i w_i L_i L_is / mix_i^2 with each component s of the model.
    shared: FloatArray
    # Shape (o,); sum_i w_i (L_i / mix_i - 1): what the log-likelihood would gain per share.
    score: FloatArray


class Crossings(NamedTuple):
    """Scores of n strings by cohort, and what they have in common with a model's components."""

    score: FloatArray  # shape (m, n); sum_i w_i (L_i / mix_i - 1) over a cohort's reports
    # Shape (m, n); sum_i w_i ((L_i / mix_i)^2 - 1): of that score, but for what the model explains
    # of it.
    variance: FloatArray
    shared: FloatArray  # shape (m, n, 1 + a); sum_i w_i L_i L_is / mix_i^2 with each component s
    squared: FloatArray  # shape (m, n, 1 + a); sum_i w_i L_i^2 L_is / mix_i^3

    def moved(self, moves: FloatArray) -> Moved:
        """Return how the scores change to first order when shares move, shape (1 + a, moves)."""
        return Moved(self.score, self.variance, -self.shared @ moves, -2 * self.squared @ moves)


class Moved(NamedTuple):
    """Scores of n strings by cohort, as in `Crossings`, and their changes."""

    score: FloatArray  # shape (m, n)
    variance: FloatArray
    score_change: FloatArray  # shape (m, n, moves); by each move of the shares
    variance_change: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """The components of a mixture: all that a part of the reports needs."""

    params: RapporParams
    members: PositionArray  # shape (a, m, h); from `distinct_positions`
    precision: Precision  # of sums that measure uncertainty

    def densities(self, block: ReportBlock, precision: Precision = DOUBLE) -> RealArray:
        """Return L of the unknown and the members at a block's reports; shape (1 + a, n)."""
        density = np.empty((1 + len(self.members), len(block.bits)), dtype=precision)
        density[0] = unknown_density(block.bits, self.params)
        if len(self.members):
            rows = ratio_rows(block.bits, self.params, precision)
            density[1:] = densities(rows, self.members[:, block.cohort])
        return density

    def relative(
        self, block: ReportBlock, shares: FloatArray, others: PositionArray
    ) -> tuple[RealArray, RealArray]:
        """Return L / mix of the components and of other strings, shapes (1 + a, n) and (o, n)."""
        members = self.members[:, block.cohort]
        shape = (1 + len(members) + len(others), len(block.bits))
        relative = np.empty(shape, dtype=self.precision)
        relative[0] = unknown_density(block.bits, self.params)
        rows = ratio_rows(block.bits, self.params, self.precision)
        relative[1:] = densities(rows, np.concatenate([members, others[:, block.cohort]]))
        relative /= shares.astype(self.precision) @ relative[: len(shares)]
        return relative[: len(shares)], relative[len(shares) :]


@dataclass(frozen=True, slots=True, eq=False)
class ReportMixture:
    """A model of all reports: the unknown string and some members."""

    reports: RawReports  # each sum goes over them once, part by part, wherever they are kept
    members: PositionArray  # shape (a, m, h); from `distinct_positions`
    threads: int  # for reports that are kept here

    @property
    def components(self) -> Components:
        """The components, for parts of the reports."""
        return Components(self.reports.params, self.members, self.precision)

    @property
    def precision(self) -> Precision:
        """The precision of sums that measure uncertainty."""
        return SINGLE if self.reports.rows >= _MANY_ROWS else DOUBLE

    def evaluate(self, shares: FloatArray) -> Evaluation:
        """Return the log-likelihood, its gradient, and the information (minus the Hessian).

        `shares`, shape (1 + a,): of the unknown and the members; positive somewhere, never
        negative.
        """
        size = 1 + len(self.members)
        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        for found in self.reports.map(_evaluate, (self.components, shares), self.threads):
            value += found.value
            gradient += found.gradient
            information += found.information
        return Evaluation(value, gradient, information)

    def overlaps(self, shares: FloatArray, others: PositionArray) -> Overlaps:
        """Return the information of other strings, what of it they share with the model, and more.

        `shares` has shape (1 + a,). `others`, shape (o, m, h): from `distinct_positions`.
        """
        own, shared = np.zeros(len(others)), np.zeros((len(others), 1 + len(self.members)))
        score = np.full(len(others), -float(self.reports.total))
        asked = (self.components, shares, others)
        for found in self.reports.map(_overlaps, asked, self.threads):
            own += found.own
            shared += found.shared
            score += found.score
        return Overlaps(own, shared, score)

    def crossings(self, shares: FloatArray, others: PositionArray) -> Crossings:
        """Return other strings' scores by cohort, and more; parameters are those of `overlaps`."""
        cohorts, strings, size = self.reports.params.m, len(others), 1 + len(self.members)
        shape, each = (cohorts, strings), (cohorts, strings, size)
        totals = Crossings(np.zeros(shape), np.zeros(shape), np.zeros(each), np.zeros(each))
        asked = (self.components, shares, others)
        fill(totals, self.reports.map(_crossings, asked, self.threads))
        return totals

    def moved(
        self, shares: FloatArray, moves: FloatArray, chosen: IntArray, exactly: BoolArray
    ) -> Moved:
        """Return scores of components by cohort, and how they change when the shares move.

        `shares` has shape (1 + a,). `moves`, shape (1 + a, 1 + f): changes of the shares: one that
        is of interest for all, then one for each chosen. `chosen`, shape (f,): components.
        `exactly`, shape (f,): of which the change by their own move is wanted exactly. Returns
        changes by the first move, to first order, and by a component's own; shape (m, f, 2).
        """
        shape, each = (self.reports.params.m, len(chosen)), (self.reports.params.m, len(chosen), 2)
        totals = Moved(np.zeros(shape), np.zeros(shape), np.zeros(each), np.zeros(each))
        asked = (self.components, shares, moves, chosen, np.flatnonzero(exactly))
        fill(totals, self.reports.map(_moved, asked, self.threads))
        return totals


def _evaluate(
    asked: tuple[Components, FloatArray], reports: PackedReports, threads: int
) -> Evaluation:
    """Return a part's terms of `ReportMixture.evaluate`."""
    components, shares = asked
    precision = components.precision

    def work(block: ReportBlock) -> tuple[float, RealArray, RealArray]:
        density = components.densities(block)
        mixed = shares @ density
        value = float(block.weights @ np.log(mixed))
        gradient = density @ (block.weights / mixed)
        scaled = np.empty_like(density, dtype=precision)
        np.multiply(density, np.sqrt(block.weights) / mixed, out=scaled, casting="same_kind")
        return value, gradient, scaled @ scaled.T

    size = len(shares)
    value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
    for _, found in in_order(reports, block_rows(size), work, threads):
        value += found[0]
        gradient += found[1]
        information += found[2]
    return Evaluation(value, gradient, information)


def _overlaps(
    asked: tuple[Components, FloatArray, PositionArray], reports: PackedReports, threads: int
) -> Overlaps:
    """Return a part's terms of `ReportMixture.overlaps`, its score being the sum of L / mix."""
    components, shares, others = asked

    def work(block: ReportBlock) -> tuple[RealArray, RealArray, RealArray]:
        relative, other = components.relative(block, shares, others)
        root = np.sqrt(block.weights).astype(other.dtype)
        relative *= root
        other *= root
        return np.einsum("ij,ij->i", other, other), other @ relative.T, other @ root

    sums = Overlaps(
        np.zeros(len(others)), np.zeros((len(others), len(shares))), np.zeros(len(others))
    )
    rows = block_rows(len(shares) + len(others))
    for _, found in in_order(reports, rows, work, threads):
        for total, part in zip(sums, found, strict=True):
            total += part  # noqa: PLW2901 - in place
    return sums


def _crossings(
    asked: tuple[Components, FloatArray, PositionArray], reports: PackedReports, threads: int
) -> CohortSums:
    """Return `ReportMixture.crossings` of the cohorts of a part."""
    components, shares, others = asked

    def work(block: ReportBlock) -> tuple[RealArray, ...]:
        relative, other = components.relative(block, shares, others)
        once = other * block.weights.astype(other.dtype)
        twice = once * other
        total = block.weights.sum()
        return (
            once.sum(axis=1) - total,
            twice.sum(axis=1) - total,
            once @ relative.T,
            twice @ relative.T,
        )

    return by_cohort(reports, block_rows(len(shares) + 2 * len(others)), work, threads)


def _moved(
    asked: tuple[Components, FloatArray, FloatArray, IntArray, IntArray],
    reports: PackedReports,
    threads: int,
) -> CohortSums:
    """Return `ReportMixture.moved` of the cohorts of a part."""
    components, shares, moves, chosen, exact = asked
    precision, no_members = components.precision, components.members[:0]
    first, own = moves[:, 0].astype(precision), moves[:, 1:].T.astype(precision)

    def work(block: ReportBlock) -> tuple[RealArray, ...]:
        relative, _ = components.relative(block, shares, no_members)
        ratio, weights = relative[chosen], block.weights.astype(precision)
        once = ratio * weights
        twice = once * ratio
        score, variance = once.sum(axis=1), twice.sum(axis=1)
        change, by_own = first @ relative, own @ relative
        left = 1 / np.maximum(1 + by_own[exact], _LEAST_MIX)
        score_by_own = -_dot(once, by_own)
        score_by_own[exact] = _dot(once[exact], left - 1)
        variance_by_own = -2 * _dot(twice, by_own)
        variance_by_own[exact] = _dot(twice[exact], left**2 - 1)
        total = block.weights.sum()
        return (
            score - total,
            variance - total,
            np.stack([-once @ change, score_by_own], axis=-1),
            np.stack([-2 * twice @ change, variance_by_own], axis=-1),
        )

    return by_cohort(reports, block_rows(len(shares) + 4 * len(chosen)), work, threads)


def block_rows(numbers: int) -> int:
    """Return the rows of a block, if each takes so many numbers, that suit the caches."""
    return int(np.clip(BLOCK_NUMBERS // numbers, _LEAST_ROWS, _MOST_ROWS))


def in_order(
    reports: PackedReports, rows: int, work: Callable[[ReportBlock], _Result], threads: int
) -> Iterator[tuple[int, _Result]]:
    """Yield each block's cohort and result, in the order of the blocks, computed in parallel."""
    waiting: deque[Future[list[tuple[int, _Result]]]] = deque()

    def work_on(several: Sequence[ReportBlock]) -> list[tuple[int, _Result]]:
        return [(block.cohort, work(block)) for block in several]

    # Linear algebra stays on one thread: its own threads would only wait for each other.
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        for several in _handfuls(reports.blocks(rows)):
            waiting.append(pool.submit(work_on, several))
            if len(waiting) > _AHEAD * threads:
                yield from waiting.popleft().result()
        for future in waiting:
            yield from future.result()


def _handfuls(blocks: Iterable[ReportBlock]) -> Iterator[list[ReportBlock]]:
    """Yield successive blocks together, if they are small: handing them over takes time, too."""
    several: list[ReportBlock] = []
    rows = 0
    for block in blocks:
        several.append(block)
        rows += len(block.bits)
        if rows >= _HANDFUL:
            yield several
            several, rows = [], 0
    if several:
        yield several


def by_cohort(
    reports: PackedReports,
    rows: int,
    work: Callable[[ReportBlock], Sequence[RealArray]],
    threads: int,
) -> CohortSums:
    """Return what blocks add up to, of each cohort that has reports."""
    sums: CohortSums = {}
    for cohort, found in in_order(reports, rows, work, threads):
        if cohort not in sums:
            sums[cohort] = [np.zeros(part.shape) for part in found]
        for total, part in zip(sums[cohort], found, strict=True):
            total += part  # noqa: PLW2901 - in place
    return sums


def fill(totals: Sequence[FloatArray], parts: Iterable[CohortSums]) -> None:
    """Write the sums of all parts' cohorts into arrays whose first axis is the cohort."""
    for part in parts:
        for cohort, sums in part.items():
            for total, of_cohort in zip(totals, sums, strict=True):
                total[cohort] = of_cohort


def _dot(left: RealArray, right: RealArray) -> RealArray:
    return np.asarray(np.einsum("fn,fn->f", left, right))
