"""Sums over all reports, a block at a time, on all cores.

Given its string the bits of a report are independent, so a string's density at report i, relative
to "no bit is set", is a product over its distinct bits j in the report's cohort,
    L_is = prod_j rho_ij,   rho = q*/p* if the reported bit is 1, (1 - q*)/(1 - p*) if it is 0,
and every other bit cancels. The unknown string's density is the mean of L over h independent
uniform positions, which depends on the number of ones alone.

Densities are made a block at a time and dropped: no array grows with both reports and strings. If
reports are many they are of single precision for sums that measure uncertainty; the
log-likelihood and its gradient, on which the certificate rests, are of double precision always.
Invariant: the sums are the same to the bit whatever the number of threads, because blocks are fixed
and what they give is added in their order.

The best mixture: shares >= 0 that make the reports most likely, with a proof of how good.

The log-likelihood l(pi) = sum_i w_i log(sum_s pi_s L_is) is concave, so Newton's method with the
constraint kept (sequential quadratic programming) needs a few passes where EM needs thousands. It
stops at a certificate, not when steps get small: no shares whatever gain more than the gap
    max_s dl/dpi_s - N
over what was reached, N = sum_i w_i (Kim, Carbonetto, Stephens, Anitescu 2020).

Estimates are made in the model of the unknown and the members of which there is evidence. Members
at the boundary have no normal distribution and are left out; each of them, like every candidate
outside, is estimated as if it alone were added. The unknown always stays, and may go
below 0, so that estimates are unbiased when everything is listed, too.
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
from scipy import linalg, special

from hubbub.inference.arrays import (
    BoolArray,
    ByteArray,
    FloatArray,
    IntArray,
    PositionArray,
    RealArray,
)
from hubbub.inference.candidates import distinct_positions
from hubbub.inference.counts import PackedReports, ReportBlock
from hubbub.inference.errors import UndecodableError
from hubbub.inference.parallel import cores, one_thread
from hubbub.inference.regression.model import best_of_quadratic
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
_Result = TypeVar("_Result")


@cache
def bit_ratios(params: RapporParams) -> FloatArray:
    """Return rho of a reported 0 and of a reported 1."""
    p_star, q_star = params.p_star, params.q_star
    return np.array([(1 - q_star) / (1 - p_star), q_star / p_star])


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
class ReportMixture:
    """A model of all reports: the unknown string and some members."""

    reports: PackedReports  # each sum goes over them once
    members: PositionArray  # shape (a, m, h); from `distinct_positions`

    @property
    def precision(self) -> Precision:
        """The precision of sums that measure uncertainty."""
        return SINGLE if len(self.reports.bits) >= _MANY_ROWS else DOUBLE

    def densities(self, block: ReportBlock, precision: Precision = DOUBLE) -> RealArray:
        """Return L of the unknown and the members at a block's reports; shape (1 + a, n)."""
        params = self.reports.params
        density = np.empty((1 + len(self.members), len(block.bits)), dtype=precision)
        density[0] = unknown_density(block.bits, params)
        if len(self.members):
            rows = ratio_rows(block.bits, params, precision)
            density[1:] = densities(rows, self.members[:, block.cohort])
        return density

    def evaluate(self, shares: FloatArray) -> Evaluation:
        """Return the log-likelihood, its gradient, and the information (minus the Hessian).

        `shares`, shape (1 + a,): of the unknown and the members; positive somewhere, never
        negative.
        """
        precision, size = self.precision, len(shares)

        def work(block: ReportBlock) -> tuple[float, RealArray, RealArray]:
            density = self.densities(block)
            mixed = shares @ density
            value = float(block.weights @ np.log(mixed))
            gradient = density @ (block.weights / mixed)
            scaled = np.empty_like(density, dtype=precision)
            np.multiply(density, np.sqrt(block.weights) / mixed, out=scaled, casting="same_kind")
            return value, gradient, scaled @ scaled.T

        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        for _, found in in_order(self.reports, block_rows(size), work):
            value += found[0]
            gradient += found[1]
            information += found[2]
        return Evaluation(value, gradient, information)

    def overlaps(self, shares: FloatArray, others: PositionArray) -> Overlaps:
        """Return the information of other strings, and what of it they share with the model.

        `shares` has shape (1 + a,). `others`, shape (o, m, h): from `distinct_positions`.
        """

        def work(block: ReportBlock) -> tuple[RealArray, RealArray]:
            relative, other = self._relative(block, shares, others)
            root = np.sqrt(block.weights).astype(other.dtype)
            relative *= root
            other *= root
            return np.einsum("ij,ij->i", other, other), other @ relative.T

        own, shared = np.zeros(len(others)), np.zeros((len(others), len(shares)))
        for _, found in in_order(self.reports, block_rows(len(shares) + len(others)), work):
            own += found[0]
            shared += found[1]
        return Overlaps(own, shared)

    def crossings(self, shares: FloatArray, others: PositionArray) -> Crossings:
        """Return other strings' scores by cohort, and more; parameters are those of `overlaps`."""

        def work(block: ReportBlock) -> tuple[RealArray, ...]:
            relative, other = self._relative(block, shares, others)
            once = other * block.weights.astype(other.dtype)
            twice = once * other
            total = block.weights.sum()
            return (
                once.sum(axis=1) - total,
                twice.sum(axis=1) - total,
                once @ relative.T,
                twice @ relative.T,
            )

        rows, each = block_rows(len(shares) + 2 * len(others)), (len(others), len(shares))
        shapes = (len(others),), (len(others),), each, each
        return Crossings(*sums_by_cohort(self.reports, rows, work, shapes))

    def moved(
        self, shares: FloatArray, moves: FloatArray, chosen: IntArray, exactly: BoolArray
    ) -> Moved:
        """Return scores of components by cohort, and how they change when the shares move.

        `shares` has shape (1 + a,). `moves`, shape (1 + a, 1 + f): changes of the shares: one that
        is of interest for all, then one for each chosen. `chosen`, shape (f,): components.
        `exactly`, shape (f,): of which the change by their own move is wanted exactly. Returns
        changes by the first move, to first order, and by a component's own; shape (m, f, 2).
        """
        precision, no_others = self.precision, self.members[:0]
        first, own = moves[:, 0].astype(precision), moves[:, 1:].T.astype(precision)
        exact = np.flatnonzero(exactly)

        def work(block: ReportBlock) -> tuple[RealArray, ...]:
            relative, _ = self._relative(block, shares, no_others)
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

        rows, n = block_rows(len(shares) + 4 * len(chosen)), len(chosen)
        return Moved(*sums_by_cohort(self.reports, rows, work, ((n,), (n,), (n, 2), (n, 2))))

    def _relative(
        self, block: ReportBlock, shares: FloatArray, others: PositionArray
    ) -> tuple[RealArray, RealArray]:
        """Return L / mix of the components and of other strings, shapes (1 + a, n) and (o, n)."""
        params, members = self.reports.params, self.members[:, block.cohort]
        shape = (1 + len(members) + len(others), len(block.bits))
        relative = np.empty(shape, dtype=self.precision)
        relative[0] = unknown_density(block.bits, params)
        rows = ratio_rows(block.bits, params, self.precision)
        relative[1:] = densities(rows, np.concatenate([members, others[:, block.cohort]]))
        relative /= shares.astype(self.precision) @ relative[: len(shares)]
        return relative[: len(shares)], relative[len(shares) :]


def block_rows(numbers: int) -> int:
    """Return the rows of a block, if each takes so many numbers, that suit the caches."""
    return int(np.clip(BLOCK_NUMBERS // numbers, _LEAST_ROWS, _MOST_ROWS))


def in_order(
    reports: PackedReports, rows: int, work: Callable[[ReportBlock], _Result]
) -> Iterator[tuple[int, _Result]]:
    """Yield each block's cohort and result, in the order of the blocks, computed in parallel."""
    waiting: deque[Future[list[tuple[int, _Result]]]] = deque()
    threads = cores()

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


def sums_by_cohort(
    reports: PackedReports,
    rows: int,
    work: Callable[[ReportBlock], Sequence[RealArray]],
    shapes: Sequence[tuple[int, ...]],
) -> list[FloatArray]:
    """Return what blocks add up to, the first axis being the cohort.

    `work`: arrays of these shapes of a block.
    """
    totals = [np.zeros((reports.params.m, *shape)) for shape in shapes]
    for cohort, found in in_order(reports, rows, work):
        for total, part in zip(totals, found, strict=True):
            total[cohort] += part
    return totals


def _dot(left: RealArray, right: RealArray) -> RealArray:
    return np.asarray(np.einsum("fn,fn->f", left, right))


TOLERANCE = 1e-3
"""Gap at which to stop. A log-likelihood d^2 / 2 short of its maximum is d standard errors off, so
what is left to gain moves no estimate by more than 0.045 of its standard error."""
# Steps converge quadratically near the maximum; what hasn't by then is refused.
_MAX_PASSES = 100
# The line search: the usual part of the expected gain (Nocedal and Wright, section 3.1), steps
# shortened to .3 of themselves, and what rounding of a sum over all reports may hide.
_SLOPE = 1e-4
_SHORTEN = 0.3
_ROUNDING = 1e-13
# Any fixed number: the same reports give the same estimates.
_PROBE_SEED = 20140814
_DEPENDENT = 1e-6  # single precision leaves less


@dataclass(frozen=True, slots=True)
class Solution:
    """Shares that no others beat by more than the gap."""

    shares: FloatArray  # shape (a,); at least 0, with sum 1
    at: Evaluation  # there
    gap: float  # log-likelihood that may still be missing, at most


class Fitted(NamedTuple):
    """The most likely mixture of some candidates."""

    mixture: ReportMixture
    solution: Solution
    members: IntArray  # shape (a,); which candidates the mixture's members are, in ascending order


def maximise(
    evaluate: Callable[[FloatArray], Evaluation],
    total: float,
    start: FloatArray,
    *,
    tolerance: float = TOLERANCE,
    progress: Callable[[float], None] = lambda _gap: None,
) -> Solution:
    """Find the most likely shares.

    `evaluate`: from shares to the log-likelihood there. `total`: N, the sum of the reports'
    weights. `start`, shape (a,): at least 0, with a positive sum; components at 0 may rise.
    `tolerance`: gap at which to stop. `progress`: called with the gap after each pass. Raises
    `UndecodableError` if the gap doesn't get there.
    """
    shares = start / start.sum()
    at = evaluate(shares)
    for _ in range(1, _MAX_PASSES):
        gap = float(at.gradient.max()) - total
        progress(gap)
        if gap <= tolerance:
            return Solution(shares, at, max(gap, 0.0))
        aim = best_of_quadratic(at.information, at.gradient - total, shares)
        aim /= aim.sum()
        slope = float(at.gradient @ (aim - shares))
        step, ahead = 1.0, evaluate(aim)
        while ahead.value < at.value + _SLOPE * step * slope - _ROUNDING * abs(at.value):
            step *= _SHORTEN
            ahead = evaluate((1 - step) * shares + step * aim)
        shares, at = (1 - step) * shares + step * aim, ahead
    raise UndecodableError(
        f"likelihood: {_MAX_PASSES} passes left a gap of {gap:.3g}; expected at most "
        f"{tolerance:g}. Use --method regression"
    )


def best_among(solution: Solution, components: IntArray) -> FloatArray:
    """Return the most likely shares of some components without the others.

    The log-likelihood is taken to be a parabola: a start for `maximise`.
    """
    at, shares = solution.at, solution.shares
    others = np.setdiff1d(np.arange(len(shares)), components)
    score = at.gradient - float(shares @ at.gradient)
    return best_of_quadratic(
        at.information[np.ix_(components, components)],
        score[components] + at.information[np.ix_(components, others)] @ shares[others],
        shares[components],
    )


@dataclass(frozen=True, slots=True, eq=False)
class EstimationModel:
    """The model that estimates are made in: the unknown, and the members that were kept."""

    mixture: ReportMixture  # of the kept members alone
    kept: IntArray  # shape (1 + a,); their components in the whole mixture: 0, the unknown, first
    rows: IntArray  # shape (a,); which candidates the members are, in ascending order
    shares: FloatArray  # shape (1 + a,); at the maximum
    step: FloatArray  # shape (1 + a,); the Newton step from there that lets the unknown go below 0
    inverse: FloatArray  # shape (1 + a, 1 + a); of the observed information

    def left_over(self, own: FloatArray, shared: FloatArray) -> FloatArray:
        """Return the information that strings have beyond what they share with the model.

        `own` has shape (o,). `shared` has shape (o, 1 + a).
        """
        return np.asarray(own - np.einsum("ij,ij->i", shared @ self.inverse, shared))


def estimation_model(
    mixture: ReportMixture, solution: Solution, members: IntArray
) -> EstimationModel:
    """Keep the members above 0, but for those whose bits the others explain.

    `mixture`: the reports, and the strings of which they may be. `solution`: its most likely
    shares. `members`, shape (a,): which candidates its members are.
    """
    kept = _independent(solution)
    inverse = linalg.inv(solution.at.information[np.ix_(kept, kept)])
    step = inverse @ (solution.at.gradient[kept] - mixture.reports.total)
    smaller = ReportMixture(mixture.reports, mixture.members[kept[1:] - 1])
    return EstimationModel(
        smaller, kept, members[kept[1:] - 1], solution.shares[kept], step, inverse
    )


def with_evidence(solution: Solution, total: float, least_z: float) -> IntArray:
    """Return the members that are left when the weakest leaves until all have evidence.

    Of many absent strings about half lie above 0 at the maximum, by chance. Kept in the model, they
    take from the unknown what they have too much, and make every error larger.

    `solution`: the most likely shares of the unknown, component 0, and of all members. `total`: N,
    the sum of the reports' weights. `least_z`: least share of those that are left, in its standard
    errors in their model, the log-likelihood being taken for a parabola. Returns numbers of
    members, in ascending order.
    """
    kept = _independent(solution)
    inverse = linalg.inv(solution.at.information[np.ix_(kept, kept)])
    shares = solution.shares[kept] + inverse @ (solution.at.gradient[kept] - total)
    while len(kept) > 1:
        z = shares[1:] / np.sqrt(np.diag(inverse)[1:])
        weakest = 1 + int(z.argmin())
        if z[weakest - 1] >= least_z:
            break
        others = np.delete(np.arange(len(kept)), weakest)
        pull = inverse[others, weakest] / inverse[weakest, weakest]
        shares = shares[others] - pull * shares[weakest]
        inverse = inverse[np.ix_(others, others)] - np.outer(pull, inverse[weakest, others])
        kept = kept[others]
    return kept[1:] - 1


def _independent(solution: Solution) -> IntArray:
    kept = np.concatenate([[0], 1 + np.flatnonzero(solution.shares[1:] > 0)])
    information = solution.at.information[np.ix_(kept, kept)]
    scale = np.sqrt(np.diag(information))
    scale[0] /= 2  # the largest pivot comes first: the unknown always stays
    _, pivots, rank, _ = linalg.lapack.dpstrf(information / np.outer(scale, scale), tol=_DEPENDENT)
    return np.asarray(kept[np.sort(pivots[:rank]) - 1])


def random_strings(params: RapporParams, n: int) -> PositionArray:
    """Return the distinct positions of absent strings, the same at every call."""
    rng = np.random.default_rng(_PROBE_SEED)
    drawn = rng.integers(params.k, size=(n, params.m, params.h), dtype=np.int16)
    return distinct_positions(drawn, params)
