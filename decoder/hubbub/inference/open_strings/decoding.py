"""The whole decoding of open strings: steps propose, the reports that show strings whole decide.

Strings are proposed from the reports of the steps that show less of them (`search`), and tested in
those of all others, by the decoder of listed strings (`testing`). A string's own reports there
haven't been used to choose it, but for how it ends those of others (`endings`), so p-values, false
discoveries and intervals mean what they mean there. What was expected of a string weighs its
p-value, so that a long list of unlikely strings hardly costs the likely ones.

What a search hasn't found, as far as its reports show that: beginnings without their strings.

A beginning that many clients have, and whose share the strings that were found don't make up, has
strings below it that weren't looked for. Its interval allows for the choice among all beginnings
that were looked for (Benjamini, Yekutieli 2005: at level 1 - alpha R / m, where R of m stood out).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray
from hubbub.inference.candidates import canonical_forms
from hubbub.inference.counts import CohortCounts
from hubbub.inference.decoding import Decoding
from hubbub.inference.errors import UndecodableError
from hubbub.inference.open_strings.endings import as_one
from hubbub.inference.open_strings.search import FoundPrefixes, Progress, propose
from hubbub.inference.open_strings.steps import step_counts
from hubbub.inference.open_strings.testing import FamilyDecoder, string_tests
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction, local_false_rates
from hubbub.protocol import TERMINATOR, OpenStringType, RapporParams, canonical_bytes

# Of a beginning's share: less may be many rare strings, of which none can be found.
_LEAST_PART = 0.5
_ALPHA = 0.05  # by convention


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A beginning of which at least half is in no string that was found."""

    prefix: bytes  # may end within a character
    # Of the clients, with this beginning and none of the strings and longer beginnings named.
    share: float
    low: float
    high: float
    strings: int  # how many strings were found below it


def unexplained(steps: Sequence[FoundPrefixes], decoding: Decoding) -> tuple[Unexplained, ...]:
    """Return beginnings whose strings weren't found, each as long as it is known, largest first.

    `steps`: of a search, in order. `decoding`: of whole strings.
    """
    rows = decoding.largest_detected()
    known = [decoding.candidates[row].encode() for row in rows.tolist()]
    shares, variances = decoding.share[rows], decoding.std_error[rows] ** 2
    is_string = np.ones(len(rows), dtype=np.bool_)
    found: list[Unexplained] = []
    for step in reversed(steps):
        level = _ALPHA * len(step.texts) / max(step.tried, 1)
        z = float(-special.ndtri(level / 2)) if step.texts else 0.0
        for text, share in zip(step.texts, step.share.tolist(), strict=True):
            if text.endswith(TERMINATOR):
                continue
            below = np.array([each.startswith(text) for each in known], dtype=np.bool_)
            missing = share - float(shares[below].sum())
            error = z * float(np.sqrt(step.std_error**2 + variances[below].sum()))
            if missing <= error or missing < _LEAST_PART * share:
                continue
            n_strings = int((below & is_string).sum())
            found.append(Unexplained(text, missing, missing - error, missing + error, n_strings))
            known.append(text)
            shares = np.append(shares, missing)
            variances = np.append(variances, step.std_error**2)
            is_string = np.append(is_string, False)
    return tuple(sorted(found, key=lambda each: -each.share))


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
