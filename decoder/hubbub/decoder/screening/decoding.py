"""Counts and a list of any length -> the decoding of the detected strings alone.

It is what `decoding.decode` says of these, by the same steps: the list is read and hashed in parts,
what is equal is found, the search tests block after block, and in the end the strings of what was
detected are read again. Memory depends on what is detected, hardly on how long the list is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hubbub.decoder.candidates.files import changed, list_files, no_string
from hubbub.decoder.candidates.parts import Part, count_lines, cut, is_packed
from hubbub.decoder.engines import Engine
from hubbub.decoder.screening.distinct import DistinctList
from hubbub.decoder.screening.hashing import Cohorts, hash_part, read_strings
from hubbub.decoder.screening.search import ListSearch
from hubbub.inference.arrays import IntArray
from hubbub.inference.candidates import Candidates, hash_words, of_words
from hubbub.inference.counts import CohortCounts, estimate_bits
from hubbub.inference.decoding import Decoding, decoding_of
from hubbub.inference.parallel import one_thread
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.scanning import CollisionGroups
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.params import RapporParams


class ScreenedList(NamedTuple):
    """What was detected.

    Attributes
    ----------
    decoding : Decoding
        Of the detected strings; its summary is about all.
    candidates : Candidates
        The same strings.
    repeats : int
        Strings of the list that stand in it earlier, too.
    """

    decoding: Decoding
    candidates: Candidates
    repeats: int


def screen(
    counts: CohortCounts,
    params: RapporParams,
    address: str,
    engine: Engine,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    repeats: RepeatedReports = ONCE,
) -> ScreenedList:
    """Find which strings of a list are present, and how often.

    Parameters
    ----------
    counts : CohortCounts
        Of the reports.
    params : RapporParams
        Those of the metric.
    address : str
        As of `files.read_list`, but no pipe.
    engine : Engine
        Where the list is read, hashed and tested.
    alpha : float
        Level of the correction's error rate, in (0, 1).
    correction : Correction
        What keeps false discoveries below alpha.
    repeats : RepeatedReports
        How often the reports' clients have reported, and whose shares are asked for.

    Raises
    ------
    CandidateError
        As `files.read_list`, or if a file was changed meanwhile.
    UndecodableError
        If there are no reports or the counts don't fit the parameters.
    """
    bits = estimate_bits(counts, params)
    parts = _parts(address, engine)
    cohorts = Cohorts(params, counts.reports > 0)
    with tempfile.TemporaryDirectory(prefix="hubbub-") as folder:
        distinct = DistinctList(Path(folder), cohorts)
        distinct.fill(parts, engine.map(hash_part, cohorts, parts))
        if not distinct.given:
            raise no_string(address)
        log_alpha = float(np.log(alpha))
        # The digits that sums of many threads end in depend on how many there are.
        with one_thread():
            screened = ListSearch(distinct, engine, bits, params, log_alpha, correction).run()
            found, sets = screened.found, screened.sets
            decoding = decoding_of(found, counts, alpha, correction, repeats, screened.of_detected)
        rows, owners = distinct.strings_of(sets[found.detected])
        strings = _read(distinct, rows, engine)
        candidates = of_words(strings, distinct.row_words(rows), params)
    alone = decoding.only(np.flatnonzero(found.detected))
    decoding = alone.with_groups(strings, _groups(owners))
    decoding = replace(
        decoding,
        p_value_counts=screened.p_value_counts,
        summary=replace(
            decoding.summary,
            candidates=distinct.strings,
            indistinguishable=distinct.indistinguishable,
        ),
    )
    return ScreenedList(decoding, candidates, distinct.given - distinct.strings)


def _parts(address: str, engine: Engine) -> list[Part]:
    files = list_files(address)
    packed = [file for file in files if is_packed(file)]
    lines = dict(zip(packed, engine.map(count_lines, None, packed), strict=True))
    return [part for file in files for part in cut(file, lines.get(file))]


def _read(distinct: DistinctList, rows: IntArray, engine: Engine) -> Sequence[str]:
    """Read the strings of rows, in ascending order."""
    wanted, words = distinct.places(rows), distinct.row_words(rows)
    strings: list[str] = []
    for part, found in zip(wanted, engine.map(read_strings, None, wanted), strict=True):
        end = len(strings) + len(part.numbers)
        if not np.array_equal(hash_words(found), words[len(strings) : end]):
            raise changed(part.part.path)
        strings += [string.decode() for string in found]
    return strings


def _groups(owners: IntArray) -> CollisionGroups:
    """Return which strings have the set of bits of an earlier one.

    Parameters
    ----------
    owners : int64 array, shape (r,)
        Which set of bits each string has.
    """
    _, first, group = np.unique(owners, return_index=True, return_inverse=True)
    firsts = first[group]
    rows = np.flatnonzero(firsts != np.arange(len(owners)))
    return CollisionGroups(rows, firsts[rows])
