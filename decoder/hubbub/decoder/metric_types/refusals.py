"""Options that types refuse which are decoded from the bit counts of all days together."""

from __future__ import annotations

from hubbub.decoder.options import DecodeOptions
from hubbub.protocol.errors import Option, OptionError


def refuse_beyond_counts(options: DecodeOptions, what: str, hashing: str) -> None:
    """Raise OptionError if whole reports, days or kept candidates are asked for.

    Parameters
    ----------
    options : DecodeOptions
        What is asked for.
    what : str
        The metric and its type.
    hashing : str
        What the type hashes instead of candidates alone.
    """
    how = options.estimate
    if how.method == "likelihood":
        raise OptionError(
            Option("method", how.method), f": {what} is decoded from bit counts. Leave ",
            Option("method"), " out.",
        )  # fmt: skip
    if how.by:
        raise OptionError(
            Option("by", how.by), f": {what} is decoded over all days at once; choose days with ",
            Option("since"), " and ", Option("until"), ".",
        )  # fmt: skip
    if options.candidates.candidate_cache:
        raise OptionError(Option("candidate_cache"), f": {what} {hashing}. Leave it out.")
