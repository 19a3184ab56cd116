"""What a report says for a string: densities relative to "no bit is set".

Given the string the bits of a report are independent, so a string's density at report i is a
product over its distinct bits j in the report's cohort,
    L_is = prod_j rho_ij,   rho = q*/p* if the reported bit is 1, (1 - q*)/(1 - p*) if it is 0,
and every other bit cancels. The unknown string's density is the mean of L over h independent
uniform positions, which depends on the number of ones alone.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy import special, stats

from hubbub.decoder.arrays import ByteArray, FloatArray, PositionArray
from hubbub.protocol.params import RapporParams


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
    """Return L of some strings.

    Parameters
    ----------
    rows : float64 array, shape (k + 1, n)
        From `ratio_rows`.
    positions : int16 array, shape (a, h)
        The strings' distinct positions in the reports' cohort.

    Returns
    -------
    float64 array, shape (a, n)
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
    """Return L of a random string at reports that have u ones, for all u.

    Returns
    -------
    float64 array, shape (k + 1,)

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
        mass = stats.hypergeom.pmf(hit[None, :], params.k, ones[:, None], d)
        total += chance * (mass @ (one**hit * zero ** (d - hit)))
    return total
