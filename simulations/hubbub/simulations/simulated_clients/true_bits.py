"""What clients' values set before any noise, for many clients at once.

Strings set the bits of their Bloom filters, which are hashed once and kept packed, and so do tuples
of several fields where they are hashed; otherwise a tuple sets the bit of its cell, and a category
its own. Open strings
set one bit of the prefix that the client's cohort asks for, hashed for each client. Invariant:
every bit is the real client's (a property test holds them together).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hubbub.inference.arrays import ByteArray, IntArray
from hubbub.inference.candidates import bit_numbers, first_numbers, hash_words, positions_in
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.metric_types.joint import JointType
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams

_FILTERS_AT_ONCE = 1 << 24
"""Unpacked bits of Bloom filters that are held in memory while they are packed."""


class TrueBits(Protocol):
    """True bits of a list of values."""

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        """Return the packed true bits of clients, uint8, shape (n, k / 8).

        `held` and `cohorts`, shape (n,): index of each client's value, and its cohort.
        """


def true_bits(
    values: Sequence[Value], params: RapporParams, metric_type: MetricType | None = None
) -> TrueBits:
    """Return the bits of strings or, given their type, of any other values.

    `metric_type`: of the values, if they aren't listed strings.
    """
    if isinstance(metric_type, OpenStringType):
        return _PrefixBits(values, params, metric_type)
    if isinstance(metric_type, JointType):
        tuples = [metric_type.digits(value) for value in values]
        if not metric_type.hashed:
            cells = [metric_type.cell(digits) for digits in tuples]
            return _CellBits(np.array(cells, dtype=np.int64), params)
        return _FilterBits([metric_type.tuple_bytes(parts) for parts in tuples], params)
    if metric_type is not None and metric_type.width is not None:
        return _CategoryBits([metric_type.bits(value, 0, params) for value in values], params)
    return _FilterBits([canonical_bytes(value) for value in values], params)


class _FilterBits:
    def __init__(self, encoded: Sequence[bytes], params: RapporParams) -> None:
        self._m = params.m
        self._filters = packed_filters(encoded, params)

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        return np.take(self._filters, held * self._m + cohorts, axis=0)


class _CellBits:
    def __init__(self, cells: IntArray, params: RapporParams) -> None:
        self._cells = cells
        self._params = params

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:  # noqa: ARG002 - there is one
        return _single_bits(self._cells[held], self._params)


class _CategoryBits:
    """Bits of categories, which are the same in every cohort."""

    def __init__(self, bits: Sequence[int], params: RapporParams) -> None:
        packed = b"".join(each.to_bytes(params.k // 8, "little") for each in bits)
        self._packed = np.frombuffer(packed, dtype=np.uint8).reshape(len(bits), -1)

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:  # noqa: ARG002 - all are alike
        return self._packed[held]


class _PrefixBits:
    def __init__(
        self, values: Sequence[Value], params: RapporParams, open_type: OpenStringType
    ) -> None:
        self._params = params
        cohorts = range(params.m)
        self._step = np.array([cohort // open_type.cohorts for cohort in cohorts])
        self._hashed_cohort = np.array([open_type.hashed_cohort(cohort) for cohort in cohorts])
        encoded = [canonical_bytes(value) for value in values]
        steps = range(len(open_type.steps) + 1)
        self._words = np.stack(
            [hash_words([open_type.prefix(data, step) for data in encoded]) for step in steps]
        )

    def take(self, held: IntArray, cohorts: IntArray) -> ByteArray:
        words = self._words[self._step[cohorts], held]
        position = positions_in(words, self._hashed_cohort[cohorts], self._params)[:, 0]
        return _single_bits(position, self._params)


def _single_bits(position: IntArray, params: RapporParams) -> ByteArray:
    bits = np.zeros((len(position), params.k // 8), dtype=np.uint8)
    bits[np.arange(len(position)), position >> 3] = 1 << (position & 7)
    return bits


def packed_filters(encoded: Sequence[bytes], params: RapporParams) -> ByteArray:
    """Return every value's Bloom filter in every cohort: uint8, shape (v * m, k / 8)."""
    packed = np.empty((len(encoded), params.m, params.k // 8), dtype=np.uint8)
    step = max(1, _FILTERS_AT_ONCE // (params.m * params.k))
    for start in range(0, len(encoded), step):
        rows = slice(start, start + step)
        numbers = bit_numbers(hash_words(encoded[rows]), params) - first_numbers(params)
        positions = numbers.transpose(0, 2, 1).astype(np.int64)
        filters = np.zeros((len(positions), params.m, params.k), dtype=np.uint8)
        np.put_along_axis(filters, positions, 1, axis=2)
        packed[rows] = np.packbits(filters, axis=2, bitorder="little")
    return packed.reshape(-1, params.k // 8)
