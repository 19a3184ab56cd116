"""The whole decoding of open strings: steps propose, the reports that show strings whole decide.

Strings are proposed from the reports of the steps that show less of them (`search`), and tested in
those of all others, by the decoder of listed strings (`testing`). A string's own reports there
haven't been used to choose it, but for how it ends those of others (`endings`), so p-values, false
discoveries and intervals mean what they mean there. What was expected of a string weighs its
p-value, so that a long list of unlikely strings hardly costs the likely ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.candidates import canonical_forms
from hubbub.inference.counts import CohortCounts
from hubbub.inference.decoding import Decoding
from hubbub.inference.errors import UndecodableError
from hubbub.inference.open_strings.families import as_one
from hubbub.inference.open_strings.search import FoundPrefixes, Progress, propose
from hubbub.inference.open_strings.steps import step_counts
from hubbub.inference.open_strings.testing import FamilyDecoder, string_tests
from hubbub.inference.open_strings.unexplained import Unexplained, unexplained
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction, local_false_rates
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams

# Reports of a cohort, as planned at least: with fewer a step's model says too little of other
# strings, and the last step's reports, which show all of them whole, decide alone.
_FEWEST_REPORTS = 100


@dataclass(frozen=True, slots=True)
class OpenDecoding:
    """What was found without a list."""

    # Of the detected strings and the given candidates; its summary counts all that were tested.
    decoding: Decoding
    steps: tuple[FoundPrefixes, ...]  # what was found on the way, in the order of the steps
    proposed: int  # whole strings that were proposed and tested
    listed: int  # candidates that were given
    below: str  # what all strings begin with that were looked for
    # Shape (n,); about how likely it is that nobody has the string, its letters considered: the
    # local false discovery rate.
    chance_false: FloatArray
    unexplained: tuple[Unexplained, ...]  # beginnings whose strings weren't found


def decode_open_strings(
    counts: CohortCounts,
    params: RapporParams,
    metric_type: OpenStringType,
    *,
    candidates: Sequence[str] = (),
    below: str = "",
    corpus: Sequence[str] = (),
    alphabet: str = "",
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    room: int | None = None,
    repeats: RepeatedReports = ONCE,
    progress: Progress = lambda _done, _total: None,
) -> OpenDecoding:
    """Find strings that nobody listed, and how common they are.

    `counts`: of all steps' cohorts. `params`: of the metric: m is the number of all cohorts.
    `candidates`: strings to be tested in any case, each once. `below`: look only for strings that
    begin so, with all the room there is. `corpus`: public strings like those that are looked for:
    what is expected is learned from them, so that theirs are found sooner, and no others given up.
    `alphabet`: the characters of most strings, if they are known; others aren't given up. `room`:
    about how many extensions to look at in a step; 100,000 times the number of steps if not given.
    `progress`: told how many of how many steps are done. Raises `CandidateError` if a candidate
    can't be a client's value. Raises `UndecodableError` if a step has no reports, or the counts
    don't fit the parameters.
    """
    if counts.bits.shape != (params.m, params.k):
        raise UndecodableError(
            f"counts of shape {counts.bits.shape}: must be {(params.m, params.k)}"
        )
    encoded = [text.encode() for text in candidates]
    given = list(dict.fromkeys(canonical_forms(encoded, lambda row: f"candidate {row + 1}")))
    step = len(metric_type.steps)
    last = step_counts(counts, metric_type, step)
    proposals = propose(
        counts,
        params,
        metric_type,
        below=below,
        corpus=corpus,
        alphabet=alphabet,
        room=room,
        progress=progress,
    )
    families, explained = proposals.families, proposals.explained
    of_step = metric_type.step_params(params)
    tested, kind = counts, metric_type
    if counts.total < _FEWEST_REPORTS * params.m:
        families, explained = (as_one(families),), {}
        tested, kind = last, OpenStringType((), metric_type.cohorts)
    tests = string_tests(families, given, tested, of_step, kind)
    if not tests.texts:
        tests = string_tests((), [canonical_bytes(below)], tested, of_step, kind)
    decoding = FamilyDecoder(
        tests, tested, of_step, kind, explained, alpha, correction, repeats, counts.total
    ).run()
    progress(step + 1, step + 1)
    shown = decoding.detected.copy()
    shown[: len(given)] = True
    rows = np.flatnonzero(shown)
    return OpenDecoding(
        decoding.only(rows),
        proposals.steps,
        tests.n_tests - len(given),
        len(given),
        below,
        local_false_rates(tests.weighted(decoding.p_value), tests.n_tests)[rows],
        unexplained(proposals.steps, decoding),
    )
