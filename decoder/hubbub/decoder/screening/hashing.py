"""Parts of a list -> hashes of its strings, and the strings of a few of them.

Both are tasks: pure functions of a part (and of what all tasks share), which run wherever an engine
runs them. Repeats within a part are left out here, so that not even a list that is one string, over
and over, has many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import mmh3
import numpy as np

from hubbub.decoder.candidates.parts import Part, read_part
from hubbub.inference.arrays import BoolArray, ByteArray, IntArray, NumberArray, WordArray
from hubbub.inference.candidates import canonical_forms, repeated
from hubbub.inference.scanning import fingerprints
from hubbub.protocol.params import RapporParams


class Cohorts(NamedTuple):
    """By which bits candidates are told apart.

    Attributes
    ----------
    has_reports : bool array, shape (m,)
    """

    params: RapporParams
    has_reports: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class HashedPart:
    """The different strings of a part.

    Attributes
    ----------
    given : int
        Strings that it has, repeats too.
    kept : uint8 array, or None
        One bit per string (`numpy.packbits`): whether it is no repeat; None if none is one.
    words : uint32 array, shape (r, 2)
        All that their bits depend on: half of their digest.
    rest : uint64 array, shape (r,)
        The other half.
    fingerprints : uint64 array, shape (r,)
        Of their sets of bits.
    """

    given: int
    kept: ByteArray | None
    words: WordArray
    rest: NumberArray
    fingerprints: NumberArray


def hash_part(cohorts: Cohorts, part: Part) -> HashedPart:
    """Read and hash a part (raises CandidateError as `read_list`)."""
    digests = bytearray()
    for piece in read_part(part):
        canonical = canonical_forms(piece.encoded, piece.place)
        digests += b"".join(map(mmh3.mmh3_x86_128_digest, canonical))
    words, rest = _halves(digests)
    again = repeated(words, lambda rows, others: rest[rows] == rest[others])
    given, kept = len(words), None
    if again.any():
        kept = np.packbits(~again)
        words, rest = words[~again], rest[~again]
    return HashedPart(given, kept, words, rest, fingerprints(words, *cohorts))


class Wanted(NamedTuple):
    """Some strings of a part.

    Attributes
    ----------
    numbers : int64 array, shape (r,)
        From 0, in ascending order.
    """

    part: Part
    numbers: IntArray


def read_strings(_shared: None, wanted: Wanted) -> list[bytes]:
    """Return the normal forms of strings, in UTF-8 (raises CandidateError as `read_list`)."""
    found: list[bytes] = []
    before = 0
    for piece in read_part(wanted.part):
        after = before + len(piece.encoded)
        first, end = np.searchsorted(wanted.numbers, [before, after])
        chosen = [piece.encoded[number - before] for number in wanted.numbers[first:end].tolist()]
        found += canonical_forms(chosen, piece.place)
        before = after
        if end == len(wanted.numbers):
            break
    return found


def _halves(digests: bytearray) -> tuple[WordArray, NumberArray]:
    words = np.frombuffer(digests, dtype="<u4").reshape(-1, 4)
    rest = np.ascontiguousarray(words[:, 2:]).view("<u8").ravel()
    return words[:, :2].astype(np.uint32), rest.astype(np.uint64)
