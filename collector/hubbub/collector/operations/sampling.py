"""Signs of forgery in the latest reports of each version: uneven cohorts, reports that repeat.

At most 50,000 reports of a version are read, at most once in an upkeep, only if more were stored
since, and outside the event loop. Invariant: each report of the last week is as likely to be
examined as any other, so that what is forged today isn't hidden behind what came before; nothing
depends on its bits.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.poisoning import RepeatSample, cohort_balance
from hubbub.collector.store import SEALED, DayCount, Declared, MetricVersion, Store
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Records, cohorts, record_width

ALARM = 1e-6
"""Chance that honest reports look forged in one sample, by either sign."""

_REPORTS = 50_000
_DAYS = 7


@dataclass(frozen=True, slots=True)
class CohortBalance:
    """Of `poisoning.Balance`, what the page shows, with each cohort's share.

    Attributes
    ----------
    shares : tuple of float
        As multiples of an equal share: 1 is even.
    """

    shares: tuple[float, ...]
    cohort: int
    clients_must_send: float


@dataclass(frozen=True, slots=True)
class EqualReports:
    """Of `poisoning.Repeats`, what the page shows."""

    most: int
    plausible: int
    suspicious: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What the latest reports of a version look like.

    Attributes
    ----------
    reports : int
        How many were examined.
    cohorts : CohortBalance, optional
        None if there is only one cohort.
    equal : EqualReports, optional
        None if honest reports repeat so often under these parameters that it says nothing.
    """

    reports: int
    cohorts: CohortBalance | None
    equal: EqualReports | None


def examine(records: Records, params: RapporParams) -> Sample:
    """Return what some reports of a version look like."""
    shown, equal = None, None
    if params.m > 1 and records.reports:
        counts = np.bincount(cohorts(records), minlength=params.m)
        shares = counts * (params.m / records.reports)
        balance = cohort_balance(counts, ALARM)
        shown = CohortBalance(tuple(shares.tolist()), balance.cohort, balance.clients_must_send)
    sample = RepeatSample(params, max(records.reports, 2))
    sample.add(records)
    repeats = sample.result(ALARM)
    if repeats.assessed:
        equal = EqualReports(repeats.most, repeats.plausible, repeats.suspicious)
    return Sample(records.reports, shown, equal)


class Sampler:
    """Keeps a sample of each version's latest reports.

    Parameters
    ----------
    store : Store
    metrics : Metrics
    seconds : float
        Time for which a sample is good enough.

    Attributes
    ----------
    samples : mapping of MetricVersion to Sample
        Of the versions that have reports.
    """

    def __init__(self, store: Store, metrics: Metrics, seconds: float) -> None:
        self.samples: Mapping[MetricVersion, Sample] = {}
        self._store = store
        self._metrics = metrics
        self._seconds = seconds
        self._taken_at = float("-inf")
        self._examined: dict[MetricVersion, Sequence[DayCount]] = {}

    @property
    def is_due(self) -> bool:
        """Whether what was sampled last is too old."""
        return time.monotonic() >= self._taken_at + self._seconds

    async def sample(self, declared: Sequence[Declared], days: Sequence[DayCount]) -> None:
        """Examine again what has changed, unless that isn't due.

        A version that is new, or gone, is a reason not to wait.

        Raises
        ------
        StoreError
            If the store can't be read.
        """
        stored: dict[MetricVersion, list[DayCount]] = {}
        for count in days:
            if not count.segments or count.metric == SEALED:  # what can't be examined
                continue
            stored.setdefault(MetricVersion(count.metric, count.version), []).append(count)
        if not self.is_due and stored.keys() == self.samples.keys():
            return
        begun = time.monotonic()
        for key in self.samples.keys() - stored.keys():
            self.samples = {other: it for other, it in self.samples.items() if other != key}
            self._examined.pop(key, None)
            self._publish(key, Sample(0, None, None))
        for version in declared:
            key = MetricVersion(version.metric, version.version)
            if key in stored and stored[key] != self._examined.get(key):
                await self._take(key, version.params, stored[key])
        self._taken_at = begun

    async def _take(
        self, key: MetricVersion, params: RapporParams, days: Sequence[DayCount]
    ) -> None:
        latest, width = max(count.day for count in days), record_width(params.k)
        since = latest - dt.timedelta(days=_DAYS - 1)
        records = Records(width, await self._store.sample(key, _REPORTS, width, since))
        sample = await asyncio.to_thread(examine, records, params)
        self.samples = {**self.samples, key: sample}
        self._examined[key] = days
        self._publish(key, sample)

    def _publish(self, key: MetricVersion, sample: Sample) -> None:
        balance = sample.cohorts
        self._metrics.sampled(
            key.metric,
            key.version,
            reports=sample.reports,
            cohort_ratio=balance.shares[balance.cohort] if balance else 1.0,
            clients_must_send=balance.clients_must_send if balance else 0.0,
            repeated=sample.equal.suspicious if sample.equal else 0,
        )
