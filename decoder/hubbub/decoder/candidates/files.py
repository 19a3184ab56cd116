"""A list of candidates, file or stream -> distinct strings and their hashes, in little memory.

Strings are read and hashed piece by piece; what stays is a compact table, about 16 bytes a string
beyond its text.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hubbub.decoder.arrays import WordArray
from hubbub.decoder.candidates.hashing import hash_words, repeated
from hubbub.decoder.candidates.listing import Candidates, of_words
from hubbub.decoder.candidates.sources import PARQUET, read_pieces
from hubbub.decoder.candidates.string_table import StringTable
from hubbub.decoder.errors import CandidateError
from hubbub.protocol.params import RapporParams

_SETTLE_ROWS = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class CandidateList:
    """Distinct candidates in the order of the file.

    Attributes
    ----------
    strings : StringTable, length n
    words : uint32 array, shape (n, 2)
        Their hashes.
    repeats : int
        Strings left out because the same one stands earlier.
    notes : tuple of str
        What became of a cache that couldn't be used.
    """

    strings: StringTable
    words: WordArray
    repeats: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.strings)

    def hashed(self, params: RapporParams) -> Candidates:
        """Return the candidates with the positions that hubbub's clients give them."""
        return of_words(self.strings, self.words, params)


def read_list(path: str) -> CandidateList:
    """Read a list of candidates, and leave out those that stand earlier, too.

    Parameters
    ----------
    path : str
        As of `candidate_sources.read_pieces`.

    Raises
    ------
    CandidateError
        If it can't be read, holds no string, or one that no client could report: not UTF-8, or too
        long. The message names the line.
    """
    table = _TableInMaking()
    try:
        for piece in read_pieces(path):
            table.add(piece.encoded, hash_words(piece.encoded, piece.place))
    except (OSError, EOFError, zlib.error) as error:
        after = f" after {_unit(path)} {table.given}" if table.given else ""
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise CandidateError(
            f"candidates {path}: can't be read{after}: {reason}; expected {_expected(path)}"
        ) from error
    if not table.given:
        raise CandidateError(f"candidates {path}: empty; expected one string a {_unit(path)}")
    return table.finished()


class _TableInMaking:
    """A table that grows; strings that stand earlier, too, are dropped whenever it has doubled."""

    def __init__(self) -> None:
        self.given = 0
        self._blob, self._lengths, self._words = bytearray(), bytearray(), bytearray()
        self._rows = self._settled = 0

    def add(self, encoded: Sequence[bytes], words: WordArray) -> None:
        self.given += len(encoded)
        self._rows += len(encoded)
        self._blob += b"".join(encoded)
        self._lengths += np.fromiter(map(len, encoded), np.int64, len(encoded)).data
        self._words += words.data
        if self._rows > 2 * max(_SETTLE_ROWS, self._settled):
            self._settle()

    def finished(self) -> CandidateList:
        blob = np.frombuffer(self._blob, dtype=np.uint8)
        lengths = np.frombuffer(self._lengths, dtype=np.int64)
        words = np.frombuffer(self._words, dtype=np.uint32).reshape(-1, 2)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        strings = StringTable(blob, offsets)
        again = repeated(words, strings.equal)
        if again.any():
            strings, words = strings.only(~again), words[~again]
        return CandidateList(strings, words, self.given - len(strings))

    def _settle(self) -> None:
        settled = self.finished()
        if len(settled) < self._rows:
            self._blob = bytearray(settled.strings.blob.data)
            self._lengths = bytearray(np.diff(settled.strings.offsets).data)
            self._words = bytearray(settled.words.data)
        self._rows = self._settled = len(settled)


def _unit(path: str) -> str:
    return "row" if path.endswith(PARQUET) else "line"


def _expected(path: str) -> str:
    kinds = {PARQUET: "a Parquet file", ".gz": "gzip"}
    return kinds.get(Path(path).suffix, "a file or pipe")
