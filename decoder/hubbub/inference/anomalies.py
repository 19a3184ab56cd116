"""Whether reports look like honest ones of these parameters, and whether any candidate fits them.

Whatever people's values are: a report sets as many bits as the metric's type allows, and each bit's
rate lies between p* and q* (`misfit`); single records have plausible numbers of set bits, aren't
equal to the bit too often, and cohorts are of about one size (`AnomalyDetector`). Where bits differ
more than noise makes them, some string is common; if no candidate is detected, none of them is that
string, or they set other bits than clients' strings do (`overlooked`).

Invariants: of honest reports with the right parameters each check finds something with probability
at most `ALARM`; nothing is left out of the counts here, because leaving out what looks odd would
bias estimates. That nothing was found proves nothing: a forger who imitates the noise can't be
distinguished from honest clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.inference.arrays import BoolArray, IntArray
from hubbub.inference.counts import estimate_bits, variance_of_one
from hubbub.inference.regression.model import unknown_column
from hubbub.inference.repeated_reports import AbsentBit, RepeatedReports, RepeatSource
from hubbub.protocol import (
    CohortCounts,
    CohortSpread,
    Columns,
    KeptCounts,
    Metric,
    RapporParams,
    Repeats,
    SetBits,
    cohort_balance,
    plausible_set_bits,
    repeat_keys,
    repeats_among,
)

ALARM = 1e-6
"""Chance of each kind of false alarm, over a whole decoding.

Three checks of a hundred metrics every day raise one in nine years.
"""

REPORTS_A_CLIENT = 100
"""Most reports of one permanent response, where nothing is known of how many there are.

1 where answers are reported once: those of several periods have cohorts and coins of their own.
"""

_NO_KEYS = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class AnomalyReport:
    """Anomalies found in the records."""

    alarm: float  # chance of each kind of false alarm, over all of the records
    bits: int  # k and m
    cohorts: int
    # Reports whose number of set bits is implausible. An honest collection of this size holds not
    # even one, but for a chance `alarm`.
    improbable: int
    plausible: SetBits  # the numbers of set bits that aren't
    repeats: Repeats
    balance: CohortSpread
    reports_a_client: int  # reports of one client that shouldn't make cohorts look suspicious
    counted: int = 0  # reports of which only counts are kept, in which repeats can't be seen

    @property
    def set_bits_assessed(self) -> bool:
        """Whether any number of set bits would be implausible."""
        return self.plausible.low > 0 or self.plausible.high < self.bits

    @property
    def cohorts_assessed(self) -> bool:
        """Whether there is more than one cohort."""
        return self.cohorts > 1

    @property
    def cohorts_suspicious(self) -> bool:
        """Whether cohorts are more uneven than clients of `reports_a_client` reports make them."""
        return self.balance.clients_must_send > self.reports_a_client

    @property
    def suspicious(self) -> bool:
        """Whether anything is beyond what honest reports would show."""
        return bool(self.improbable or self.repeats.suspicious or self.cohorts_suspicious)

    def as_json(self) -> dict[str, object]:
        """Return all of it, and what follows from it, as JSON can hold it."""
        return {
            "suspicious": self.suspicious,
            "alarm": self.alarm,
            "set_bits": {
                "assessed": self.set_bits_assessed,
                "improbable": self.improbable,
                "plausible": [self.plausible.low, self.plausible.high],
            },
            "repeats": self.repeats._asdict(),
            "cohorts": {
                "assessed": self.cohorts_assessed,
                "suspicious": self.cohorts_suspicious,
                "reports_a_client": self.reports_a_client,
                **self.balance._asdict(),
            },
            "only_counted": self.counted,
        }


class AnomalyDetector:
    """Adds up what the checks of one metric's reports need, chunk by chunk, in bounded memory.

    `metric`: the metric: its parameters, and whether clients report once. `alarm`: chance of each
    kind of false alarm.
    """

    def __init__(self, metric: Metric, alarm: float = ALARM) -> None:
        self._metric = metric
        self._alarm = alarm
        self._set_bits: IntArray = np.zeros(metric.params.k + 1, dtype=np.int64)
        self._cohorts: IntArray = np.zeros(metric.params.m, dtype=np.int64)
        self._keys: list[NDArray[np.uint64]] = []
        self._seen = self._counted = 0

    def look(self, kept: KeptCounts, reports: Columns, step: int = 1) -> None:
        """Take counts of reports, and look at every step-th of all that are shown."""
        self.add(kept, repeat_keys(reports, -self._seen % step, step))
        self._seen += reports.reports

    def add(self, kept: KeptCounts, keys: NDArray[np.uint64]) -> None:
        """Take reports' counts, and the `repeat_keys` of every `sample_step`-th of all."""
        self._set_bits += kept.set_bits
        self._cohorts += kept.counts.reports
        self._keys.append(keys)

    def add_counts(self, kept: KeptCounts) -> None:
        """Take what is kept of reports that were forgotten, in which no repeats can be seen."""
        self.add(kept, _NO_KEYS)
        self._counted += kept.total

    def result(self) -> AnomalyReport:
        """Return what was found so far.

        Notes
        -----
        A report's tail is alarm/N, so by the union bound, which asks for no independence, N honest
        reports hold an improbable one with probability at most `alarm`.
        """
        total = max(int(self._cohorts.sum()), 1)
        metric = self._metric
        plausible = plausible_set_bits(
            metric.params, metric.type, self._alarm / total, metric.response
        )
        inside = self._set_bits[plausible.low : plausible.high + 1].sum()
        return AnomalyReport(
            alarm=self._alarm,
            bits=metric.params.k,
            cohorts=metric.params.m,
            improbable=int(self._set_bits.sum() - inside),
            plausible=plausible,
            repeats=repeats_among(
                np.concatenate([_NO_KEYS, *self._keys]), metric.params, self._alarm, metric.response
            ),
            balance=cohort_balance(self._cohorts, self._alarm),
            reports_a_client=1 if metric.reports_once else REPORTS_A_CLIENT,
            counted=self._counted,
        )


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
    for counted, draws, shares, width, cohorts in (
        (bits.sum().reshape(1), reports.sum().reshape(1) * k, (together / k, most / k), k, ()),
        (bits.sum(axis=1), reports * k, (fewest / k, most / k), k, seen),
        (bits.ravel(), np.repeat(reports, k), (0.0, 1.0), 1, np.repeat(seen, k)),
    ):
        low, high = sorted((_bit(params, each) for each in shares), key=lambda bit: bit.chance)
        far = _beyond(counted, draws, high) | _beyond(draws - counted, draws, low.turned)
        places = np.flatnonzero(far)
        if not len(places):
            continue
        ones, trials = counted[places], draws[places]
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
