"""The whole decoding of open strings: the steps propose, the last step's reports decide.

Strings are proposed from the reports of all steps but the last (`search`), and tested in the last
step's alone, by the decoder of listed strings. A string's own reports there haven't been used to
choose it, but for how it ends those of others (`endings`), so p-values, false discoveries and
intervals mean what they mean there. What was expected of a string weighs its
p-value, so that a long list of unlikely strings hardly costs the likely ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import is_normalized

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.candidates import canonical_forms, hash_words, of_words
from hubbub.inference.counts import CohortCounts, variance_of_one
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.errors import UndecodableError
from hubbub.inference.open_strings.search import FoundPrefixes, Progress, Proposals, propose
from hubbub.inference.open_strings.steps import SATURATION, step_counts
from hubbub.inference.open_strings.unexplained import Unexplained, unexplained
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction, local_false_rates
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams

# Half of the weight for candidates that are given, half for proposals
# (docs/understand/open-strings.md): neither list costs the other more than a factor of two in its
# p-values.
_GIVEN_PART = 0.5
# Keeps a quotient finite if nothing was proposed.
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class OpenDecoding:
    """What was found without a list.

    Attributes
    ----------
    decoding : Decoding
        Of the detected strings and the given candidates; its summary counts all that were tested.
    steps : tuple of FoundPrefixes
        What was found on the way, in the order of the steps.
    proposed : int
        Whole strings that were proposed and tested.
    listed : int
        Candidates that were given.
    below : str
        What all strings begin with that were looked for.
    chance_false : float64 array, shape (n,)
        About how likely it is that nobody has the string, its letters considered: the local false
        discovery rate.
    unexplained : tuple of Unexplained
        Beginnings whose strings weren't found.
    """

    decoding: Decoding
    steps: tuple[FoundPrefixes, ...]
    proposed: int
    listed: int
    below: str
    chance_false: FloatArray
    unexplained: tuple[Unexplained, ...]


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

    Parameters
    ----------
    counts : CohortCounts
        Of all steps' cohorts.
    params : RapporParams
        Of the metric: m is the number of all cohorts.
    metric_type : OpenStringType
    candidates : sequence of str
        Strings to be tested in any case, each once.
    below : str
        Look only for strings that begin so, with all the room there is.
    corpus : sequence of str
        Public strings like those that are looked for: what is expected is learned from them, so
        that theirs are found sooner, and no others given up.
    alphabet : str
        The characters of most strings, if they are known; others aren't given up.
    alpha : float
        Level of the correction's error rate, in (0, 1).
    correction : Correction
        Which error rate `alpha` bounds: false discoveries, or the chance of any false detection.
    room : int, optional
        About how many extensions to look at in a step; 100,000 times the number of steps if not
        given.
    repeats : RepeatedReports
        How often the reports' clients have reported, and whose shares are asked for.
    progress : callable
        Told how many of how many steps are done.

    Raises
    ------
    CandidateError
        If a candidate can't be a client's value.
    UndecodableError
        If a step has no reports, or the counts don't fit the parameters.
    """
    if counts.bits.shape != (params.m, params.k):
        raise UndecodableError(
            f"counts of shape {counts.bits.shape}: must be {(params.m, params.k)}"
        )
    encoded = [text.encode() for text in candidates]
    given = list(dict.fromkeys(canonical_forms(encoded, lambda row: f"candidate {row + 1}")))
    step = len(metric_type.steps)
    last, last_params = step_counts(counts, metric_type, step), metric_type.step_params(params)
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
    texts, weights = _tested(proposals, given, _saturation(last, last_params), below)
    listed = of_words([text.decode() for text in texts], hash_words(texts), last_params)
    decoding = decode(
        last,
        last_params,
        listed,
        alpha=alpha,
        correction=correction,
        weights=weights,
        collected=counts.total,
        repeats=repeats,
    )
    progress(step + 1, step + 1)
    shown = decoding.detected.copy()
    shown[: len(given)] = True
    rows = np.flatnonzero(shown)
    return OpenDecoding(
        decoding.only(rows),
        proposals.steps,
        len(texts) - len(given),
        len(given),
        below,
        local_false_rates(
            decoding.p_value * weights.mean() / np.maximum(weights, _TINY), len(weights)
        )[rows],
        unexplained(proposals.steps, decoding),
    )


def _tested(
    proposals: Proposals, given: Sequence[bytes], saturation: float, below: str
) -> tuple[list[bytes], FloatArray]:
    """Return all strings to test, the given ones first, and their weights.

    A share beyond the saturation is as good as certain to be detected, so more weight is lost on
    it. Where there are both, the given strings have half of all the weight, in equal parts.
    """
    known = set(given)
    rows = [
        row
        for row, text in enumerate(proposals.texts)
        if text not in known and (text.isascii() or _is_canonical(text))
    ]
    proposed = [proposals.texts[row] for row in rows]
    weights = np.minimum(proposals.expected[rows], saturation)
    if not (given or proposed):
        return [canonical_bytes(below)], np.ones(1)
    of_given = np.full(len(given), _GIVEN_PART / max(len(given), 1))
    of_proposed = (1 - _GIVEN_PART if given else 1) * weights / max(float(weights.sum()), _TINY)
    return [*given, *proposed], np.concatenate([of_given, of_proposed])


def _is_canonical(text: bytes) -> bool:
    """Return whether clients may send a text: Unicode, and in its normal form."""
    try:
        return is_normalized("NFC", text.decode())
    except UnicodeDecodeError:  # a surrogate, or a longer form than need be
        return False


def _saturation(counts: CohortCounts, params: RapporParams) -> float:
    """Return the share beyond which a greater expected one makes detection no likelier.

    It follows from the number of reports, so that weights owe nothing to what is tested.
    """
    background = 1 / params.k
    variance = float(variance_of_one(np.array(background), params))
    return SATURATION * float(np.sqrt(variance / max(counts.total, 1) / (1 - background)))
