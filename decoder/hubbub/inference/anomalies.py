"""Do the stored reports look like honest ones? The records that are counted are checked, too.

Three checks, each with a known chance, `ALARM`, of a false alarm, whatever people's values are:
numbers of set bits, reports equal to the bit, cohorts' sizes. The first and the last are possible
with what is kept of forgotten reports, too, and give the same as with the reports.

Invariant: nothing is left out of the counts here; leaving out what looks odd would bias estimates.

That nothing was found proves nothing: a forger who imitates the noise can't be distinguished from
honest clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.inference.arrays import IntArray
from hubbub.protocol import (
    CohortSpread,
    KeptCounts,
    Metric,
    Records,
    Repeats,
    RepeatSample,
    SetBits,
    cohort_balance,
    columns,
    plausible_set_bits,
    set_bits,
)

ALARM = 1e-6
"""Chance of each kind of false alarm, over a whole decoding.

Three checks of a hundred metrics every day raise one in nine years.
"""

REPORTS_A_CLIENT = 100
"""Most reports of one response that a client is supposed to send in the decoded days.

1 where answers are reported once: those of several periods have cohorts and coins of their own.
"""


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
        self._repeats = RepeatSample(metric.params, response=metric.response)
        self._counted = 0

    def add(self, records: Records) -> None:
        """Look at a chunk of records that `count_records` takes."""
        cohorts, bits = columns(records)
        self._set_bits += np.bincount(set_bits(bits), minlength=len(self._set_bits))
        self._cohorts += np.bincount(cohorts, minlength=len(self._cohorts))
        self._repeats.add(records)

    def take(self, kept: KeptCounts, keys: NDArray[np.uint64]) -> None:
        """Take what others saw in reports, instead of looking at them.

        `kept`: what was found when the reports were counted. `keys`: `repeat_keys` of those that
        are every `sample_step`-th of all.
        """
        self._set_bits += kept.set_bits
        self._cohorts += kept.counts.reports
        self._repeats.take(keys)

    def add_counts(self, kept: KeptCounts) -> None:
        """Look at what is kept of reports that were forgotten."""
        self._set_bits += kept.set_bits
        self._cohorts += kept.counts.reports
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
            repeats=self._repeats.result(self._alarm),
            balance=cohort_balance(self._cohorts, self._alarm),
            reports_a_client=1 if metric.reports_once else REPORTS_A_CLIENT,
            counted=self._counted,
        )
