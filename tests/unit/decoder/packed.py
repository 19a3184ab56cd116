"""Makers of raw reports for the likelihood's tests."""

from itertools import product

import numpy as np

from hubbub.client import RapporParams
from hubbub.inference import (
    ByteArray,
    FloatArray,
    IntArray,
    PackedReports,
    PositionArray,
    distinct_positions,
    hashed,
    pack,
)
from hubbub.simulations import SimulatedClients


def records_of(held: dict[str, int], params: RapporParams, seed: int = 20140814) -> bytes:
    """Return the records of so many clients a string, as the collector stores them."""
    indices = np.repeat(np.arange(len(held)), list(held.values()))
    fleet = SimulatedClients(tuple(held), params, np.random.default_rng(seed))
    return as_records(*fleet.report(indices))


def as_records(cohorts: IntArray, bits: ByteArray) -> bytes:
    return np.hstack([cohorts.astype("<u2")[:, None].view(np.uint8), bits]).tobytes()


def reports_of(held: dict[str, int], params: RapporParams, seed: int = 20140814) -> PackedReports:
    return pack([records_of(held, params, seed)], params)


def members_of(strings: list[str], params: RapporParams) -> PositionArray:
    """Return the strings' distinct positions, shape (a, m, h)."""
    return distinct_positions(hashed(strings, params).positions(slice(None)), params)


def every_report(params: RapporParams) -> ByteArray:
    """Return all 2^k filters of 8 bits, shape (256, 1)."""
    assert params.k == 8
    return np.arange(256, dtype=np.uint8)[:, None]


def likelihood_ratio(
    bits: ByteArray, positions: tuple[int, ...], params: RapporParams
) -> FloatArray:
    """Return P(report | a string of these positions) / P(report | no bit set), bit by bit."""
    reported = np.unpackbits(bits, axis=1, bitorder="little").astype(bool)
    ratio = np.ones(len(bits))
    for bit in range(params.k):
        chance = params.q_star if bit in positions else params.p_star
        ratio *= np.where(reported[:, bit], chance, 1 - chance)
        ratio /= np.where(reported[:, bit], params.p_star, 1 - params.p_star)
    return ratio


def every_tuple(params: RapporParams) -> list[tuple[int, ...]]:
    return list(product(range(params.k), repeat=params.h))
