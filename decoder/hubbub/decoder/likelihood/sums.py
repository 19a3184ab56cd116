"""Sums over all reports, a block at a time, on all cores.

Given its string the bits of a report are independent, so a string's density at report i, relative
to "no bit is set", is a product over its distinct bits j in the report's cohort,
    L_is = prod_j rho_ij,   rho = q*/p* if the reported bit is 1, (1 - q*)/(1 - p*) if it is 0,
and every other bit cancels. The unknown string's density is the mean of L over h independent
uniform positions, which depends on the number of ones alone.

Densities are made a block at a time and dropped: no array grows with both reports and strings.
Invariant: the sums are the same to the bit whatever the number of threads, because blocks are fixed
and their results are added in their order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import special
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hubbub.decoder.arrays import ByteArray, FloatArray, IntArray, PositionArray
from hubbub.decoder.reports.packed import Block, PackedReports
from hubbub.protocol.params import RapporParams

BLOCK_NUMBERS = 2**18
_LEAST_ROWS, _MOST_ROWS = 256, 8192
_AHEAD = 4
_LEAST_MIX = 0.02  # of a mix, when a string is taken out that explains nearly all of it
_Result = TypeVar("_Result")


def bit_ratios(params: RapporParams) -> FloatArray:
    """Return rho of a reported 0 and of a reported 1."""
    p_star, q_star = params.p_star, params.q_star
    return np.array([(1 - q_star) / (1 - p_star), q_star / p_star])


def distinct_positions(positions: PositionArray, params: RapporParams) -> PositionArray:
    """Sort each string's positions in a cohort and turn repeats into k, a bit that never matters.

    Parameters
    ----------
    positions : int16 array, shape (..., h)
        From 0, below k.

    Returns
    -------
    int16 array, shape (..., h)
        Ascending; from 0 to k.
    """
    ordered = np.sort(positions, axis=-1)
    repeat = ordered[..., 1:] == ordered[..., :-1]
    ordered[..., 1:][repeat] = params.k
    return np.sort(ordered, axis=-1)


def ratio_rows(bits: ByteArray, params: RapporParams) -> FloatArray:
    """Return each report's rho of every bit, and a row of ones for the bit that never matters.

    Parameters
    ----------
    bits : uint8 array, shape (n, k / 8)

    Returns
    -------
    float64 array, shape (k + 1, n)
        Bits are rows, because strings pick bits.
    """
    rows = np.ones((params.k + 1, len(bits)))
    unpacked = np.unpackbits(np.ascontiguousarray(bits.T), axis=0, bitorder="little")
    # Bit j of the filter is bit j % 8 of byte j // 8, and unpacking along axis 0 keeps that order.
    np.take(bit_ratios(params), unpacked, out=rows[: params.k], mode="clip")
    return rows


def densities(rows: FloatArray, positions: PositionArray) -> FloatArray:
    """Return L of some strings; shape (a, n).

    Parameters
    ----------
    rows : float64 array, shape (k + 1, n)
        From `ratio_rows`.
    positions : int16 array, shape (a, h)
        The strings' distinct positions in the reports' cohort.
    """
    product = rows[positions[:, 0]]
    for column in positions.T[1:]:
        product *= rows[column]
    return product


def unknown_density(bits: ByteArray, params: RapporParams) -> FloatArray:
    """Return L of a string nobody listed, at each report; shape (n,)."""
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
    """The log-likelihood at some shares.

    Attributes
    ----------
    gradient : float64 array, shape (a,)
    information : float64 array, shape (a, a)
        Minus the second derivatives.
    """

    value: float
    gradient: FloatArray
    information: FloatArray


class Overlaps(NamedTuple):
    """What strings outside of a model have to do with it.

    Attributes
    ----------
    own : float64 array, shape (o,)
        Information of each, sum_i w_i L_i^2 / mix_i^2.
    shared : float64 array, shape (o, 1 + a)
        sum_i w_i L_i L_is / mix_i^2 with each component s of the model.
    score : float64 array, shape (o,)
        sum_i w_i (L_i / mix_i - 1): what the log-likelihood would gain per share.
    """

    own: FloatArray
    shared: FloatArray
    score: FloatArray


class Moved(NamedTuple):
    """Scores of n strings by cohort.

    Attributes
    ----------
    score : float64 array, shape (m, n)
        sum_i w_i (L_i / mix_i - 1) over a cohort's reports.
    variance : float64 array, shape (m, n)
        sum_i w_i ((L_i / mix_i)^2 - 1): of that score, but for what the model explains of it.
    score_change, variance_change : float64 array, shape (m, n, moves)
        By each move of the shares.
    """

    score: FloatArray
    variance: FloatArray
    score_change: FloatArray
    variance_change: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """A model of all reports: the unknown string and some members.

    Attributes
    ----------
    members : int16 array, shape (a, m, h)
        From `distinct_positions`.
    """

    reports: PackedReports
    members: PositionArray
    threads: int

    def evaluate(self, shares: FloatArray) -> Evaluation:
        """Return the log-likelihood, its gradient, and the information (minus the Hessian).

        Parameters
        ----------
        shares : float64 array, shape (1 + a,)
            Of the unknown and the members; positive somewhere, never negative.
        """

        def work(block: Block) -> tuple[float, FloatArray, FloatArray]:
            density = self.densities(block)
            mixed = shares @ density
            value = float(block.weights @ np.log(mixed))
            gradient = density @ (block.weights / mixed)
            density *= np.sqrt(block.weights) / mixed
            return value, gradient, density @ density.T

        size = 1 + len(self.members)
        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        for _, found in in_order(self.reports, block_rows(size), work, self.threads):
            value += found[0]
            gradient += found[1]
            information += found[2]
        return Evaluation(value, gradient, information)

    def overlaps(self, shares: FloatArray, others: PositionArray) -> Overlaps:
        """Return the information of other strings, what of it they share with the model, and more.

        Parameters
        ----------
        shares : float64 array, shape (1 + a,)
        others : int16 array, shape (o, m, h)
            From `distinct_positions`.
        """

        def work(block: Block) -> tuple[FloatArray, FloatArray, FloatArray]:
            density = self.densities(block)
            root = np.sqrt(block.weights)
            scale = root / (shares @ density)
            density *= scale
            other = densities(ratio_rows(block.bits, self.reports.params), others[:, block.cohort])
            other *= scale
            return np.einsum("ij,ij->i", other, other), other @ density.T, other @ root

        size = 1 + len(self.members)
        own, shared = np.zeros(len(others)), np.zeros((len(others), size))
        score = np.full(len(others), -float(self.reports.total))
        rows = block_rows(size + len(others))
        for _, found in in_order(self.reports, rows, work, self.threads):
            own += found[0]
            shared += found[1]
            score += found[2]
        return Overlaps(own, shared, score)

    def moved(
        self, shares: FloatArray, moves: FloatArray, chosen: IntArray, others: PositionArray
    ) -> tuple[Moved, Moved]:
        """Return scores by cohort, and how they change when the shares move.

        Parameters
        ----------
        shares : float64 array, shape (1 + a,)
        moves : float64 array, shape (1 + a, 1 + f)
            Changes of the shares: one that is of interest for all, then one for each chosen.
        chosen : int64 array, shape (f,)
            Components.
        others : int16 array, shape (o, m, h)
            Other strings, from `distinct_positions`.

        Returns
        -------
        own : Moved
            Of the chosen, shape (m, f, 3): changes by the first move and by their own to first
            order, and by their own exactly.
        other : Moved
            Of the others: changes by all moves, shape (m, o, 1 + f), to first order.
        """
        params = self.reports.params

        def work(block: Block) -> tuple[Moved, Moved]:
            density = self.densities(block)
            mixed = shares @ density
            density /= mixed
            change = moves.T @ density
            other = densities(ratio_rows(block.bits, params), others[:, block.cohort]) / mixed
            return (
                _moved_own(density[chosen], block.weights, change),
                _moved(other, block.weights, change),
            )

        own = _no_moves(params.m, len(chosen), 3)
        other = _no_moves(params.m, len(others), moves.shape[1])
        rows = block_rows(len(shares) + len(others) + 2 * len(chosen))
        for cohort, found in in_order(self.reports, rows, work, self.threads):
            for total, part in zip((own, other), found, strict=True):
                for sums, values in zip(total, part, strict=True):
                    sums[cohort] += values
        return own, other

    def densities(self, block: Block) -> FloatArray:
        """Return L of the unknown and the members at a block's reports; shape (1 + a, n)."""
        params = self.reports.params
        rows = ratio_rows(block.bits, params)
        density = np.empty((1 + len(self.members), len(block.bits)))
        density[0] = unknown_density(block.bits, params)
        if len(self.members):
            density[1:] = densities(rows, self.members[:, block.cohort])
        return density


def block_rows(numbers: int) -> int:
    """Return the rows of a block, if each takes so many numbers, that suit the caches."""
    return int(np.clip(BLOCK_NUMBERS // numbers, _LEAST_ROWS, _MOST_ROWS))


def in_order(
    reports: PackedReports, rows: int, work: Callable[[Block], _Result], threads: int
) -> Iterator[tuple[int, _Result]]:
    """Yield each block's cohort and result, in the order of the blocks, computed in parallel."""
    waiting: deque[tuple[int, Future[_Result]]] = deque()
    # Linear algebra stays on one thread: its own threads would only wait for each other.
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        for block in reports.blocks(rows):
            waiting.append((block.cohort, pool.submit(work, block)))
            if len(waiting) > _AHEAD * threads:
                cohort, future = waiting.popleft()
                yield cohort, future.result()
        for cohort, future in waiting:
            yield cohort, future.result()


def _moved(ratio: FloatArray, weights: FloatArray, change: FloatArray) -> Moved:
    """Sum over reports, to first order in each move's relative change of the mix, (moves, n)."""
    total, square, weighted = weights.sum(), ratio**2, change * weights
    return Moved(
        ratio @ weights - total,
        square @ weights - total,
        -ratio @ weighted.T,
        -2 * square @ weighted.T,
    )


def _moved_own(ratio: FloatArray, weights: FloatArray, change: FloatArray) -> Moved:
    """Sum over reports: to first order in the first move and in each string's own, and exactly."""
    total, square = weights.sum(), ratio**2
    left = 1 / np.maximum(1 + change[1:], _LEAST_MIX)
    first = _moved(ratio, weights, change[:1])

    def over(values: FloatArray, factor: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("fn,fn,n->f", values, factor, weights))

    score = [over(ratio, -change[1:]), over(ratio, left) - ratio @ weights]
    variance = [over(square, -2 * change[1:]), over(square, left**2) - square @ weights]
    return Moved(
        ratio @ weights - total,
        square @ weights - total,
        np.stack([first.score_change[:, 0], *score], axis=-1),
        np.stack([first.variance_change[:, 0], *variance], axis=-1),
    )


def _no_moves(cohorts: int, strings: int, moves: int) -> Moved:
    shape, each = (cohorts, strings), (cohorts, strings, moves)
    return Moved(np.zeros(shape), np.zeros(shape), np.zeros(each), np.zeros(each))
