"""Statistics that forged reports may fail and honest ones pass; pure functions.

The number of set bits of a report, the sizes of cohorts, and how often one exact report occurs.
Invariants: a bound holds for *every* value, so that no honest client is ever singled out by what it
reports; and no bound assumes anything about how many reports a client sends. Nothing here needs
more than numpy, because the collector uses it at every commit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metrics import UNARY, Response
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Columns, Records, columns, set_bits, words

SAMPLE = 2**19
"""Most reports in which repeats are looked for, 8 bytes each."""

_FloatArray = NDArray[np.float64]
_IntArray = NDArray[np.int64]
_ROUNDING = 1 + 1e-9  # far more than k products and sums of positive doubles can be off
# A key is the cohort (16 bits), the set bits (13, for there are up to 4096) and a hash (35).
_COHORT_SHIFT, _SET_BITS_SHIFT = np.uint64(48), np.uint64(35)
_SET_BITS_MASK = np.uint64(2**13 - 1)  # 13 bits of a key
_HASH_SHIFT = np.uint64(64 - 35)  # 35 bits of a key
_COLLISION = 2.0**-35  # chance that two other reports have one hash
_MOST_CHANCE = 0.01  # if honest reports repeat each other more often, repeats prove nothing
_MULTIPLIER, _FOLD = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class SetBits(NamedTuple):
    """The plausible set bits of a report."""

    low: int  # the plausible numbers of set bits, both ends included
    high: int
    cells: int | None = None  # how many of the first bits may be set at all; None: each of them


def plausible_set_bits(
    params: RapporParams, metric_type: MetricType, tail: float, response: Response = UNARY
) -> SetBits:
    """Return the range outside which a report of any one value falls with at most `tail`.

    `metric_type`: gives a value's number of true bits. `tail`: in (0, 1); half of it on each side.
    `response`: may fix one number for all reports. Raises `ValueError` if the tail isn't
    in (0, 1).

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
    if response.ones is not None:
        return SetBits(response.ones, response.ones, response.cells)
    low, high = params.k, 0
    for true_bits in metric_type.true_bits(params):
        distribution = set_bits_distribution(params, true_bits) * _ROUNDING
        low = min(low, int(np.count_nonzero(np.cumsum(distribution) <= tail / 2)))
        above = int(np.count_nonzero(np.cumsum(distribution[::-1]) <= tail / 2))
        high = max(high, params.k - above)
    return SetBits(low, high)


def set_bits_distribution(params: RapporParams, true_bits: int) -> _FloatArray:
    """Return the probability of 0 to k set bits in a report; shape (k + 1,)."""
    hits = _binomial(true_bits, params.q_star)
    return np.convolve(hits, _binomial(params.k - true_bits, params.p_star))


def improbable(records: Records, bounds: SetBits) -> NDArray[np.bool_]:
    """Return which records have an implausible number of set bits, or an impossible one; (n,)."""
    bits = columns(records).bits
    numbers = set_bits(bits)
    found = (numbers < bounds.low) | (numbers > bounds.high)
    if bounds.cells is not None:
        places = np.arange(8 * bits.shape[1])
        impossible = np.packbits(places >= bounds.cells, bitorder="little")
        found |= (bits & impossible).any(axis=1)
    return found


def _binomial(n: int, chance: float) -> _FloatArray:
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


class CohortSpread(NamedTuple):
    """How uneven cohorts are.

    A client's cohort is uniform, but all of its reports are in the same one, so that cohorts differ
    in size by more than single draws would. How much more depends on how many reports a client
    sends, which isn't known (reports carry no sender); so the answer is that number instead of a
    p-value.
    """

    cohort: int  # the most conspicuous cohort
    ratio: float  # its size as a multiple of the mean size
    # An honest population shows such a cohort with probability above `alarm` only if some client
    # sent more reports than this.
    clients_must_send: float


def cohort_balance(reports: NDArray[np.int64], alarm: float) -> CohortSpread:
    """Compare cohorts' sizes.

    `reports`, shape (m,): reports of each cohort. `alarm`: in (0, 1).

    Notes
    -----
    Let client i send r_i <= R reports. A cohort's size is sum_i r_i 1[c_i = c] with independent c_i
    and mean mu = N/m; over R it is a sum of independent variables in [0, 1], so Chernoff's bound
    holds: P(size >= (1 + d) mu) <= exp(-(mu/R) phi(d)), phi(d) = (1 + d) ln(1 + d) - d, and the
    same for (1 - d). Over m cohorts and two sides, sizes this uneven have probability at most
    `alarm` unless R > mu phi(d) / ln(2m / alarm). No approximation is involved, and neither is
    anything supposed about how much each client sends.
    """
    m, mean = len(reports), float(reports.mean())
    if m == 1 or not mean:
        return CohortSpread(0, 1.0, 0.0)
    ratio = reports / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.where(reports > 0, ratio * np.log(ratio), 0.0) - (ratio - 1)
    worst = int(np.argmax(deviation))
    return CohortSpread(
        cohort=worst,
        ratio=float(ratio[worst]),
        clients_must_send=mean * float(deviation[worst]) / float(np.log(2 * m / alarm)),
    )


class Repeats(NamedTuple):
    """Identical reports that a sample contains."""

    # False if honest reports may repeat so often under these parameters that repeats prove nothing.
    assessed: bool
    sampled: int  # reports looked at
    most: int  # times that the most conspicuous report occurs among them
    plausible: int  # times that it might with honest clients, but for a chance `alarm`
    suspicious: int  # sampled reports that occur more often than is plausible


def repeats_among(
    keys: NDArray[np.uint64], params: RapporParams, alarm: float, response: Response = UNARY
) -> Repeats:
    """Return the repeats in a sample, and how many are plausible but for a chance `alarm`.

    `keys`: the `repeat_keys` of one metric's reports, all of them or every `sample_step`-th. A
    report that makes up a share x of all makes up about as much of the sample. `alarm`: in (0, 1).

    Notes
    -----
    Given the permanent responses, reports are independent, and each bit of one is what a pattern
    has with probability at most max(p, q) where the pattern is 1 and max(1 - p, 1 - q) where it is
    0. So a report equals a pattern of s ones with probability at most
    B = max(p, q)^s max(1 - p, 1 - q)^(k - s), whatever the values and permanent responses are.
    Take any report i: given its bits, the number of *other* reports in its cohort that are equal to
    it is at most Binomial(n_c - 1, B) in stochastic order. A report is suspicious if that would
    reach the observed number with probability at most alarm/n; over the n sampled reports the
    chance of any suspicious one adds up to at most `alarm`. The tail is bounded by Chernoff's
    exp(-n KL(t/n || B)); B includes the chance that two keys collide. The bound holds only for a
    sample that is chosen without looking at bits.

    A one-time metric without a second response has p = 0, q = 1, but a client reports once, so p*
    and q* take their place.
    """
    if chance_of_repeat(params, np.arange(params.k + 1), response).max() > _MOST_CHANCE:
        return Repeats(False, 0, 0, 0, 0)
    if not len(keys):
        return Repeats(True, 0, 0, 0, 0)
    different, occurrences = np.unique(keys, return_counts=True)
    cohort = (different >> _COHORT_SHIFT).astype(np.int64)
    others = np.bincount(cohort, weights=occurrences).astype(np.int64)[cohort] - 1
    ones = ((different >> _SET_BITS_SHIFT) & _SET_BITS_MASK).astype(np.int64)
    chance = chance_of_repeat(params, ones, response)
    level = math.log(alarm / len(keys))
    log_tails = log_binomial_tails(occurrences - 1, others, chance)
    worst = int(np.lexsort((-occurrences, log_tails))[0])
    return Repeats(
        assessed=True,
        sampled=len(keys),
        most=int(occurrences[worst]),
        plausible=1 + _most_plausible(int(others[worst]), float(chance[worst]), level),
        suspicious=int(occurrences[log_tails <= level].sum()),
    )


def chance_of_repeat(
    params: RapporParams, ones: _IntArray, response: Response = UNARY
) -> _FloatArray:
    """Return a bound on the chance that a report equals a given one with so many set bits."""
    if response.ones is not None:
        chance = math.exp(response.log_chance(params))
        return np.minimum(1.0, np.full(ones.shape, chance) + _COLLISION)
    one_time = {params.p, params.q} == {0.0, 1.0}
    p, q = (params.p_star, params.q_star) if one_time else (params.p, params.q)
    log_one, log_zero = np.log(max(p, q)), np.log(max(1 - p, 1 - q))
    chance = np.exp(ones * log_one + (params.k - ones) * log_zero)
    return np.asarray(np.minimum(1.0, chance + _COLLISION))


def log_binomial_tails(reached: _IntArray, n: _IntArray, chance: _FloatArray) -> _FloatArray:
    """Return Chernoff's bound on ln P(Binomial(n, chance) >= reached), elementwise."""
    a = reached / np.maximum(n, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        hit = np.where(a > 0, a * np.log(a / chance), 0.0)
        missed = np.where(a < 1, (1 - a) * np.log((1 - a) / (1 - chance)), 0.0)
    return np.asarray(np.where(a > chance, -n * (hit + missed), 0.0))


def _most_plausible(n: int, chance: float, level: float) -> int:
    low, high = 0, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        tail = log_binomial_tails(np.array([middle]), np.array([n]), np.array([chance]))[0]
        low, high = (middle, high) if tail > level else (low, middle)
    return low


def sample_step(reports: int, size: int = SAMPLE) -> int:
    """Return between how many reports one is looked at, so that at most `size` are."""
    step = 1
    while -(-reports // step) > size:
        step *= 2
    return step


def repeat_keys(reports: Columns, first: int = 0, step: int = 1) -> NDArray[np.uint64]:
    """Return the cohort, the set bits and a hash of every step-th report from `first` on.

    Equal reports have equal keys. The hash multiplies and folds word by word; like a random
    function of 35 bits, it lets two different patterns share a key with probability 2^-35.
    """
    cohort = reports.cohorts[first::step].astype(np.uint64)
    hashed = np.zeros(len(cohort), dtype=np.uint64)
    ones = np.zeros(len(cohort), dtype=np.uint64)
    for word in words(reports.bits[first::step]):
        ones += np.bitwise_count(word)
        hashed ^= hashed >> _FOLD
        hashed ^= word
        hashed *= _MULTIPLIER
    keys = (cohort << _COHORT_SHIFT) | (ones << _SET_BITS_SHIFT) | (hashed >> _HASH_SHIFT)
    return np.asarray(keys)
