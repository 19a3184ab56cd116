"""Candidate strings -> Bloom positions -> sparse design matrix.

`bit_positions` is `hubbub.client.bloom` for many strings and all cohorts at once, and must equal it
to the bit (a property test holds them together). Candidates are opaque: "007", "NA" and " x " are
themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from hubbub.client.bloom import hash_words
from hubbub.client.errors import EncodingError
from hubbub.client.params import RapporParams
from hubbub.decoder.arrays import BoolArray, FloatArray, PositionArray, SparseMatrix, WordArray
from hubbub.decoder.errors import CandidateError


@dataclass(frozen=True, slots=True)
class CandidateList:
    """Distinct candidates in the order of the file.

    Attributes
    ----------
    strings : tuple of str
    repeats : int
        Lines left out because the same string stands earlier.
    """

    strings: tuple[str, ...]
    repeats: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """Distinct strings and the positions of their bits, hashed here or given by a map.

    Attributes
    ----------
    strings : sequence of str, length n
    positions : int16 array, shape (n, m, h)
        From 0, below k.
    """

    strings: Sequence[str]
    positions: PositionArray


@dataclass(frozen=True, slots=True)
class Design:
    """Which bits each candidate sets.

    Attributes
    ----------
    positions : int16 array, shape (n, m, h)
    matrix : sparse 0/1 float64 array, shape (n, m * k)
        Row of a candidate: its Bloom filters in all cohorts, side by side.
    """

    positions: PositionArray
    matrix: SparseMatrix

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum a vector over the m * k rows at each candidate's set bits; shape (n,)."""
        return np.asarray(self.matrix @ values)


def read_candidates(path: str) -> CandidateList:
    """Read one candidate a line from a UTF-8 file, or from standard input if `path` is "-".

    A byte order mark and the carriage return of a Windows line end are left out; all else counts,
    blanks too. An empty line is the empty string.

    Raises
    ------
    CandidateError
        If the file can't be read, isn't UTF-8, or has no line.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CandidateError(f"candidates {path}: can't be read as UTF-8: {error}") from error
    if not text:
        raise CandidateError(f"candidates {path}: empty; expected one string a line")
    lines = text.removesuffix("\n").split("\n")
    return distinct(line.removesuffix("\r") for line in lines)


def distinct(strings: Iterable[str]) -> CandidateList:
    """Keep the first of equal strings, and count the others."""
    given = list(strings)
    kept = tuple(dict.fromkeys(given))
    return CandidateList(kept, len(given) - len(kept))


def hashed(strings: Sequence[str], params: RapporParams) -> Candidates:
    """Return candidates with the positions that hubbub's clients give them.

    Raises
    ------
    CandidateError
        As `bit_positions`.
    """
    return Candidates(strings, bit_positions(strings, params))


def bit_positions(strings: Sequence[str], params: RapporParams) -> PositionArray:
    """Return the Bloom positions of many strings in all cohorts.

    Returns
    -------
    int16 array, shape (n, m, h)

    Raises
    ------
    CandidateError
        If a string is one that no client could report (too long, or not Unicode).
    """
    words = _hash_words(strings)
    index = np.arange(params.m * params.h, dtype=np.uint32)
    step = words[:, 1:] | np.uint32(1)
    mixed = _fmix32(words[:, :1] + index[None, :] * step)
    positions = (mixed % np.uint32(params.k)).astype(np.int16)
    return positions.reshape(len(strings), params.m, params.h)


def make_design(positions: PositionArray, params: RapporParams) -> Design:
    """Return the sparse design of candidates whose positions are known."""
    n = positions.shape[0]
    ordered = np.sort(positions, axis=2)
    first = np.ones(ordered.shape, dtype=np.bool_)
    first[:, :, 1:] = ordered[:, :, 1:] != ordered[:, :, :-1]
    columns = ordered.astype(np.int32) + (np.arange(params.m, dtype=np.int32) * params.k)[:, None]
    starts = np.concatenate([[0], np.cumsum(first.sum(axis=(1, 2)))]).astype(np.int32)
    values = np.ones(int(starts[-1]))
    matrix = sparse.csr_array((values, columns[first], starts), shape=(n, params.m * params.k))
    return Design(positions, matrix)


def indistinguishable(positions: PositionArray, has_reports: BoolArray) -> BoolArray:
    """Mark candidates that set the very same bits as another one, wherever there are reports.

    Parameters
    ----------
    positions : int16 array, shape (n, m, h)
    has_reports : bool array, shape (m,)

    Returns
    -------
    bool array, shape (n,)
    """
    filters = _without_repeats(np.sort(positions[:, has_reports], axis=2))
    rows = np.ascontiguousarray(filters.reshape(len(positions), -1))
    keys = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
    _, inverse, copies = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(copies[inverse] > 1)


def _without_repeats(ordered: PositionArray) -> PositionArray:
    """Give equal *sets* of positions equal rows: repeats go last, as one mark."""
    repeat = ordered[:, :, 1:] == ordered[:, :, :-1]
    ordered[:, :, 1:][repeat] = np.iinfo(np.int16).max
    return np.sort(ordered, axis=2)


def _hash_words(strings: Sequence[str]) -> WordArray:
    words = np.empty((len(strings), 2), dtype=np.uint32)
    for row, string in enumerate(strings):
        try:
            words[row] = hash_words(string)
        except EncodingError as error:
            raise CandidateError(f"candidate {row + 1}: {error}") from error
    return words


def _fmix32(x: WordArray) -> WordArray:
    """Apply MurmurHash3's 32-bit finalizer in place."""
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return x
