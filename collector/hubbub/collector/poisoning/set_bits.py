"""How many bits an honest report has set, and what forged ones can do.

Whatever value a client holds, nearly all of its reports have a number of set bits in a known range;
a forger who sets just the bits that help is outside of it. Invariant: the range holds for *every*
value, so that no honest client is ever singled out by what it reports. Nothing here needs more than
numpy, because the collector uses it at every commit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import COHORT_BYTES, Records, cohorts

_FloatArray = NDArray[np.float64]
_WORDS = ((8, "<u8"), (4, "<u4"), (2, "<u2"), (1, "u1"))
_ROUNDING = 1 + 1e-9  # far more than k products and sums of positive doubles can be off


class SetBits(NamedTuple):
    """The plausible numbers of set bits, both ends included."""

    low: int
    high: int


def plausible_set_bits(params: RapporParams, metric_type: MetricType, tail: float) -> SetBits:
    """Return the range outside which a report of any one value falls with at most `tail`.

    Parameters
    ----------
    params : RapporParams
    metric_type : MetricType
        Says how many true bits a value has.
    tail : float
        In (0, 1); half of it on each side.

    Raises
    ------
    ValueError
        If the tail isn't in (0, 1).

    Notes
    -----
    Over both responses each of the j true bits is reported with q*, each of the other k - j (bits
    that no value uses among them, which get the same noise) with p*, all independently. So the
    number of set bits is Binomial(j, q*) + Binomial(k - j, p*), computed exactly, and the range is
    that of the worst j that the metric's type allows.

    The probability is over both responses. Reports of one client share the permanent one, so they
    fall outside together, but their *expected* number is at most tail times the reports, always.
    """
    if not 0 < tail < 1:
        raise ValueError(f"tail = {tail}: must be between 0 and 1")
    low, high = params.k, 0
    for true_bits in metric_type.true_bits(params):
        law = set_bits_law(params, true_bits) * _ROUNDING
        low = min(low, int(np.count_nonzero(np.cumsum(law) <= tail / 2)))
        above = int(np.count_nonzero(np.cumsum(law[::-1]) <= tail / 2))
        high = max(high, params.k - above)
    return SetBits(low, high)


def set_bits_law(params: RapporParams, true_bits: int) -> _FloatArray:
    """Return the probability of 0 to k set bits in a report of a value with so many true bits.

    Returns
    -------
    float64 array, shape (k + 1,)
    """
    hits = _binomial(true_bits, params.q_star)
    return np.convolve(hits, _binomial(params.k - true_bits, params.p_star))


def set_bits(records: Records) -> NDArray[np.uint16]:
    """Return each record's number of set bits, shape (n,)."""
    total = np.zeros(records.reports, dtype=np.uint16)
    for word in words(records):
        total += np.bitwise_count(word)
    return total


def words(records: Records, start: int = 0, step: int = 1) -> Iterator[NDArray[np.uint64]]:
    """Yield the bits of every step-th record word by word: arrays of equal length.

    Whatever the width, all bytes of the bits are in exactly one of the words.
    """
    offset = COHORT_BYTES
    for size, dtype in _WORDS:
        while offset + size <= records.width:
            yield column(records, offset, dtype, start, step).astype(np.uint64)
            offset += size


def column(
    records: Records, offset: int, dtype: str, start: int = 0, step: int = 1
) -> NDArray[np.unsignedinteger]:
    """View what lies at an offset of every step-th record; faster than slicing a table of bytes."""
    count = len(range(start, records.reports, step))
    if not count:
        return np.empty(0, dtype)
    first, stride = start * records.width + offset, step * records.width
    return np.ndarray((count,), dtype, records.data, first, (stride,))


def improbable(records: Records, bounds: SetBits) -> NDArray[np.bool_]:
    """Return which records have an implausible number of set bits, shape (n,)."""
    numbers = set_bits(records)
    return (numbers < bounds.low) | (numbers > bounds.high)


def improbable_by_cohort(records: Records, bounds: SetBits) -> dict[int, int]:
    """Return the number of improbable records of each cohort that has any."""
    flagged = cohorts(records)[improbable(records, bounds)]
    found, numbers = np.unique(flagged, return_counts=True)
    return dict(zip(found.tolist(), numbers.tolist(), strict=True))


def forgery_shift(params: RapporParams, share: float) -> tuple[float, float]:
    """Return how far forged reports move the estimate of one bit's rate at most: (down, up).

    Parameters
    ----------
    params : RapporParams
    share : float
        Forged reports as a share of all, in [0, 1].

    Raises
    ------
    ValueError
        If the share isn't in [0, 1].

    Notes
    -----
    The estimate is (y - p*)/(q* - p*), y being the share of reports with the bit set. A forged
    report can make its own y 0 or 1, so its own term is anything from -p*/(q* - p*) to
    (1 - p*)/(q* - p*), where honest ones average to a true rate in [0, 1]. So a share x moves the
    estimate, against that of the honest reports alone, up by at most x (1 - p*)/(q* - p*) and down
    by at most x q*/(q* - p*); if q* < p* the ends change places: x p*/(p* - q*) and
    x (1 - q*)/(p* - q*). The same holds for any average of bit rates, such as that of a string's
    bits over cohorts. A regression that also *subtracts* rates can be moved further; the decoder
    computes by how much (docs/poisoning.md).
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share = {share}: must be between 0 and 1")
    slope = params.q_star - params.p_star
    one, zero = (1 - params.p_star) / slope, -params.p_star / slope
    return share * (1 - min(one, zero)), share * max(one, zero)


def _binomial(n: int, chance: float) -> _FloatArray:
    """Return the probabilities of 0 to n successes."""
    chance = min(max(chance, 1e-300), 1 - 2**-53)  # strictly between, although a double may not be
    return np.array(
        [
            math.exp(
                math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
                + i * math.log(chance) + (n - i) * math.log1p(-chance)
            )
            for i in range(n + 1)
        ]
    )  # fmt: skip
