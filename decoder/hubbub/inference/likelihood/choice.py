"""Choose how strings are decoded: least squares on counts, or whole reports' likelihood.

Whole reports are decoded where that takes less than a second, and where it is expected to gain
something within seconds. The decoding with the smaller errors is kept. Users who
want more from whole reports ask for it.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hubbub.inference.candidates import Candidates
from hubbub.inference.counts import PackedReports
from hubbub.inference.decoding import Decoding
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.inference import MOST_MEMBERS, require_tabulable
from hubbub.protocol import RapporParams

LEAST_GAIN = 0.05
"""Least variance, as a share of the likelihood's, that counts must lose.

5% of variance are 2.5% of a standard error: less isn't worth keeping whole reports in memory.
"""
NO_WAIT = 0.6
"""Seconds of one core that the likelihood may take where nothing is known to be gained by it.

Lists that the mixture holds whole, that is: of longer ones strings that weren't proposed are
missing in it, and where they share bits its errors don't hold.
"""
LONGEST = 4.0
"""Seconds of one core that least squares and the likelihood may take together.

Users who chose no method don't wait longer (docs/understand/likelihood.md); only `auto` depends on
it.
"""
_NO_GAIN = 5e-4  # rounds to 0.0%
# Standard deviation of the information about absent strings, over its mean. Beyond it errors of
# absent strings were over twice the stated ones in 31 of 57 random regimes of few reports or little
# noise; from a third to it in 8 of 81.
_UNRELIABLE_SPREAD = 0.8
# Fitted to the processor's times of ten sizes of reports and lists, 2026-11, AMD EPYC, one core.
_SECONDS_PER_NUMBER = 4.5e-8
_SECONDS_PER_CELL = 3.5e-10
_SECONDS_PER_TUPLE = 3.8e-7
_SECONDS_PER_LOOKUP = 1.8e-8
_SECONDS_PER_CANDIDATE = 3.5e-6  # of least squares
# A list of which only proposals are in the mixture is gone over twice: what is detected joins it.
_ROUNDS_OF_LONG_LISTS = 2
ASKED_FOR = "as asked for"
ONLY_COUNTS = "because there are only bit counts"
FEW_DECIDE = "a few of the whole reports would decide about a string"
NO_SHARE = "bit counts alone determine no share"
TOO_LITTLE = "whole reports are too few at these parameters"


def variance_gain(params: RapporParams) -> float:
    """Return how much larger variances from counts are than the likelihood's, for strings apart.

    ((1 + c)^h - 1) / (h c) - 1 with c = (q* - p*)^2 / (p*(1 - p*)): the information of h bits taken
    together over that of the bits one by one, where a string's share is small and its bits are its
    own. In crowded filters the gain is larger: pairs of bits distinguish what single bits can't.
    """
    slope = params.q_star - params.p_star
    contrast: float = slope * slope / (params.p_star * (1 - params.p_star))
    together = math.expm1(params.h * math.log1p(contrast))
    return float(together / (params.h * contrast) - 1)


def expected_seconds(params: RapporParams, n_reports: int, n_candidates: int) -> float:
    """Return roughly how long the likelihood takes on one core."""
    rows, components = min(n_reports, params.m << params.k), 1 + min(n_candidates, MOST_MEMBERS)
    tuples = float(params.k**params.h)
    rounds = _ROUNDS_OF_LONG_LISTS if n_candidates > MOST_MEMBERS else 1
    return rounds * (
        _SECONDS_PER_NUMBER * rows * (params.k + components)
        + _SECONDS_PER_CELL * rows * tuples
        + _SECONDS_PER_TUPLE * params.m * tuples
        + _SECONDS_PER_LOOKUP * params.m * n_candidates
    )


def is_worthwhile(params: RapporParams, n_reports: int, n_candidates: int) -> tuple[bool, str]:
    """Return whether to decode whole reports, and why, in words."""
    try:
        require_tabulable(params)
    except UndecodableError:
        return False, "whole reports have too many sets of bits for the likelihood's tables"
    gain, seconds = variance_gain(params), expected_seconds(params, n_reports, n_candidates)
    if seconds <= NO_WAIT and n_candidates <= MOST_MEMBERS:
        return True, "whole reports take no longer"
    if gain < _NO_GAIN:
        return False, "whole reports add nothing about rare strings"
    if gain < LEAST_GAIN:
        return False, f"decoding whole reports would reduce variances by only {gain:.1%}"
    if seconds + _SECONDS_PER_CANDIDATE * n_candidates > LONGEST:
        return False, (
            f"decoding whole reports would reduce variances by {1 - 1 / (1 + gain):.0%} or more, "
            f"but take about {seconds:,.0f} seconds (--method likelihood)"
        )
    return True, f"bit counts alone would have variances at least {gain:.0%} larger"


def lower_error(found: Decoding, counted: Decoding) -> Decoding:
    """Return the likelihood's decoding if its errors hold and are no larger, or the counts'.

    Variances within `LEAST_GAIN` of each other are the same: a typical error is known no better.
    The likelihood's follow from the mean information about an absent string. Where information
    scatters by s times its mean, its inverse is 1 + s^2 times as large on average.

    Both state their errors, and neither looks at the other's shares: so whichever is returned, its
    intervals and p-values are those of one method alone.
    """
    spread = found.summary.information_spread
    if spread > _UNRELIABLE_SPREAD:
        return _because(counted, FEW_DECIDE)
    if not np.isfinite(counted.std_error).any():
        return _because(found, NO_SHARE)
    gain = (_typical_error(counted) / _typical_error(found)) ** 2 / (1 + spread**2) - 1
    if gain > 0:
        return _because(found, f"bit counts alone have variances {gain:.0%} larger")
    if gain > -LEAST_GAIN:
        return _because(found, "bit counts alone have about the same variances")
    return _because(counted, f"whole reports' variances are {1 / (1 + gain) - 1:.0%} larger")


def _typical_error(decoding: Decoding) -> float:
    return float(np.nanmedian(decoding.std_error))


def _because(decoding: Decoding, reason: str) -> Decoding:
    return replace(decoding, summary=replace(decoding.summary, method_reason=reason))


class Method(enum.StrEnum):
    """The method that the operator asked for."""

    AUTO = "auto"
    LIKELIHOOD = "likelihood"
    REGRESSION = "regression"


@dataclass(slots=True)
class Choice:
    """Decides, once it is known how many reports there are, and remembers why."""

    method: Method
    params: RapporParams
    n_candidates: int
    reason: str = ONLY_COUNTS  # why the method that was chosen was chosen

    def keeps_whole(self, n_reports: int, counted_until: dt.date | None = None) -> bool:
        """Return whether to keep whole reports: not if counts are enough, or all there is.

        `counted_until`: the last day of which only counts are kept. Raises `UndecodableError` if
        the likelihood is asked for, but filters have too many sets of bits, or some reports are
        only counted.
        """
        if counted_until and self.method is not Method.REGRESSION:
            first_whole = counted_until + dt.timedelta(days=1)
            what = f"of days up to {counted_until} only counts are kept"
            if self.method is Method.LIKELIHOOD:
                raise UndecodableError(
                    f"--method likelihood needs whole reports, and {what}: decode from "
                    f"{first_whole} on (--since {first_whole}), or leave --method out"
                )
            self.reason = f"{what}; there are whole reports from {first_whole} on"
            return False
        if self.method is Method.AUTO:
            wanted, self.reason = is_worthwhile(self.params, n_reports, self.n_candidates)
            return wanted
        self.reason = ASKED_FOR
        if self.method is Method.REGRESSION:
            return False
        require_tabulable(self.params)
        return True

    def complete(
        self,
        counted: Decoding,
        reports: PackedReports | None,
        candidates: Candidates,
        progress: Callable[[int, float], None],
    ) -> Decoding:
        """Return the decoding of the chosen method.

        `counted`: by least squares. `reports`: none if least squares was chosen. `progress`: called
        with passes over the reports so far and the duality gap that is left. Raises
        `UndecodableError` if the likelihood is asked for, but the reports hold too little
        information.
        """
        if reports is not None:
            from hubbub.inference.likelihood.decoding import decode_reports  # noqa: PLC0415 - counts need none

            try:
                found = decode_reports(
                    reports, counted, candidates, reason=self.reason, progress=progress
                )
            except UndecodableError:
                if self.method is not Method.AUTO:
                    raise
                return _because(counted, TOO_LITTLE)
            return lower_error(found, counted) if self.method is Method.AUTO else found
        return _because(counted, self.reason)
