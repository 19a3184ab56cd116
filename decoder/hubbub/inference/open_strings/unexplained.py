"""What a search hasn't found, as far as its reports show that: beginnings without their strings.

A beginning that many clients have, and whose share the strings that were found don't make up, has
strings below it that weren't looked for. Its interval allows for the choice among all beginnings
that were looked for (Benjamini, Yekutieli 2005: at level 1 - alpha R / m, where R of m stood out).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference.decoding import Decoding
from hubbub.inference.open_strings.search import FoundPrefixes
from hubbub.protocol.metric_types.open_strings import TERMINATOR

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
