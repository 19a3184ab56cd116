"""What the likelihood can take: how many members, and which filters.

Whoever only asks whether whole reports are worth decoding needs these numbers and nothing else.
"""

from __future__ import annotations

from hubbub.inference.errors import UndecodableError
from hubbub.protocol.params import RapporParams

MOST_MEMBERS = 300
"""Most candidates that are in the mixture from the start."""
LARGEST_SPREAD = 1 / 3
"""Largest standard deviation of the information about absent strings, over its mean, at which
shares are estimated without the members that lack evidence.

Beyond it a few reports decide about a string, and estimates aren't normal: errors of absent strings
were stated at a half to a tenth of what they were (docs/understand/likelihood.md, Limits).
"""
# Tables of all tuples of positions stay within 128 MB of doubles (docs/understand/likelihood.md,
# Limits).
MAX_TUPLES = 2**16
MAX_NUMBERS = 2**24


def require_tabulable(params: RapporParams) -> None:
    """Raise UndecodableError if filters have too many sets of bits for tables."""
    tuples = params.k**params.h
    if tuples > MAX_TUPLES or tuples * params.m > MAX_NUMBERS:
        raise UndecodableError(
            f"likelihood: k = {params.k}, h = {params.h}, m = {params.m} give {tuples:,} ways to "
            f"set bits in each cohort; expected k^h of at most {MAX_TUPLES:,} and k^h m of at most "
            f"{MAX_NUMBERS:,}. Use --method regression"
        )
