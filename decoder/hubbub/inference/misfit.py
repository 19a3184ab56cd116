"""Whether counts can come from the parameters, and whether any candidate fits them.

Two checks by the counts alone, whatever people's values are. `misfit`: a report sets as many bits
as the metric's type allows, and each bit's rate lies between p* and q*. `overlooked`: where bits
differ more than noise makes them, some string is common; if no candidate is detected, none of them
is that string, or they set other bits than clients' strings do.

Invariant: with the right parameters `misfit` finds something with probability at most `ALARM`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hubbub.inference.arrays import BoolArray, IntArray
from hubbub.inference.counts import CohortCounts, estimate_bits, variance_of_one
from hubbub.inference.regression.model import unknown_column
from hubbub.inference.repeated_reports import AbsentBit, RepeatedReports, RepeatSource
from hubbub.protocol import RapporParams

ALARM = 1e-6
"""Chance that right parameters are suspected, over a whole decoding."""

REPORTS_A_CLIENT = 100
"""Reports of one permanent response, where nothing is known of how many there are."""

_STANDARD_ERRORS = 5.0
# In fewer, a string that nearly everybody has is missed although it is listed (4 of 385 regimes).
_COHORTS = 8
# No sum of independent bits has a chance of less than 1e-6 nearer to its mean than this.
_LOOKED_AT = 3.0


@dataclass(frozen=True, slots=True)
class Misfit:
    """A rate that the parameters make next to impossible."""

    rate: float  # set bits per report; of a single bit, how often it is set
    low: float  # between what the parameters would have it
    high: float
    cohort: int | None = None  # which one; None: all of them together
    bit: int | None = None


def misfit(
    counts: CohortCounts, params: RapporParams, true_bits: range, repeats: RepeatedReports
) -> Misfit | None:
    """Return a rate that these parameters make next to impossible, if there is one.

    Notes
    -----
    Over t true bits of k, the number of set bits among n trials of w bits a report is a sum of
    independent Bernoulli variables (or, where clients repeat, of their responses), whose tails are
    at most those of equal ones with the same mean (Hoeffding 1956): `RepeatedReports.log_tail`.
    In a single cohort t is anything in `true_bits`. Over cohorts, whose hashes are independent,
    what strings lose to collisions of theirs is a mean of bounded terms and near its expectation
    (Bernstein), whichever strings there are: that holds the mean of t in a narrow range.
    """
    repeats = _at_most(repeats, params)
    seen, k = np.flatnonzero(counts.reports), params.k
    reports, bits = counts.reports[seen], counts.bits[seen]
    fewest, most = true_bits[0], true_bits[-1]
    together = max(fewest, most - _lost(params, most, reports))
    log_alarm = math.log(ALARM / 2 / (2 * (1 + len(seen) * (1 + k))))
    # All cohorts together, each cohort, each bit: the first of these shows most.
    for set_bits, draws, shares, width, cohorts in (
        (bits.sum().reshape(1), reports.sum().reshape(1) * k, (together / k, most / k), k, ()),
        (bits.sum(axis=1), reports * k, (fewest / k, most / k), k, seen),
        (bits.ravel(), np.repeat(reports, k), (0.0, 1.0), 1, np.repeat(seen, k)),
    ):
        low, high = sorted((_bit(params, each) for each in shares), key=lambda bit: bit.chance)
        far = _beyond(set_bits, draws, high) | _beyond(draws - set_bits, draws, low.turned)
        places = np.flatnonzero(far)
        if not len(places):
            continue
        ones, trials = set_bits[places], draws[places]
        log_p = np.minimum(
            repeats.log_tail(ones, trials, high),
            repeats.log_tail(trials - ones, trials, low.turned),
        )
        worst = int(np.argmin(log_p))
        if log_p[worst] < log_alarm:
            place = int(places[worst])
            return Misfit(
                rate=float(width * ones[worst] / trials[worst]),
                low=width * low.chance,
                high=width * high.chance,
                cohort=int(cohorts[place]) if len(cohorts) else None,
                bit=place % k if width == 1 else None,
            )
    return None


def overlooked(counts: CohortCounts, params: RapporParams, repeats: RepeatedReports) -> float:
    """Return a share that some string surely exceeds; at most 0 if none can be named.

    Notes
    -----
    With shares w_s the true rates of a cohort's bits have the variance b(1 - b) sum w_s^2, which is
    at most b(1 - b) max w_s. Noise and the drawing of clients add their known variance to that of
    the estimated rates. Less five standard errors: of the noise, and of how Bloom filters fall.
    """
    seen = np.flatnonzero(counts.reports > 1)
    if params.k < 3 or len(seen) < _COHORTS:
        return 0.0
    rates = estimate_bits(counts, params).rate[seen]
    n_reports = counts.reports[seen].astype(np.float64)
    noise = repeats.clients * variance_of_one(rates, params).mean(axis=1) / (n_reports - 1)
    weights = n_reports / n_reports.sum()
    spread = float(weights @ (rates.var(axis=1, ddof=1) - noise))
    if spread <= 0:
        return 0.0
    rows = params.k - 1
    error = weights**2 @ (2 * noise**2 + 4 * noise * spread + 2 * spread**2) / rows
    b = unknown_column(params)
    return (spread - _STANDARD_ERRORS * math.sqrt(error)) / (b * (1 - b))


def _at_most(repeats: RepeatedReports, params: RapporParams) -> RepeatedReports:
    if params.f0 == params.f1 == 0:
        return replace(repeats, responses=1.0)
    if repeats.source is RepeatSource.UNKNOWN:
        return replace(repeats, responses=float(REPORTS_A_CLIENT))
    return repeats


def _bit(params: RapporParams, share: float) -> AbsentBit:
    permanent = params.f0 + share * (1 - params.f1 - params.f0)
    return AbsentBit(float(permanent), params.p, params.q)


def _beyond(ones: IntArray, trials: IntArray, bit: AbsentBit) -> BoolArray:
    mean, variance = trials * bit.chance, trials * bit.chance * (1 - bit.chance)
    return np.asarray(ones - mean > _LOOKED_AT * np.sqrt(variance))


def _lost(params: RapporParams, most: int, reports: IntArray) -> float:
    if most == 1:  # nothing is hashed, or only once
        return 1.0
    expected = most - params.k * unknown_column(params)
    scale = math.log(2 / ALARM) * (most - 1) * float(reports.max()) / float(reports.sum())
    return expected + math.sqrt(2 * expected * scale) + scale / 3
