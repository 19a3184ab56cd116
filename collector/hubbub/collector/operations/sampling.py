"""What the latest reports of each version show of forgers: uneven cohorts, reports that repeat.

Bounded: at most 50,000 reports of a version, at most once a minute, only if more were stored since,
and away from the event loop. What a maintainer must not break: which reports are looked at depends
on nothing but the random order in which they are stored.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubbub.client.params import RapporParams
from hubbub.collector.operations.instruments import Instruments
from hubbub.collector.poisoning.balance import cohort_balance
from hubbub.collector.poisoning.repeats import RepeatSample
from hubbub.collector.store import DayCount, Declared, MetricVersion, Store
from hubbub.collector.store.records import Records, cohorts, record_width

ALARM = 1e-6
"""Chance that honest reports look forged in one sample, by either sign."""

_REPORTS = 50_000
_SECONDS = 60.0
_DAYS = 7


@dataclass(frozen=True, slots=True)
class CohortBalance:
    """How evenly reports are spread over the cohorts.

    Attributes
    ----------
    shares : tuple of float
        Of each cohort, as multiples of an equal share: 1 is even.
    cohort : int
        The most conspicuous cohort.
    clients_must_send : float
        Honest clients make a share like that one's, in more than one of a million such samples,
        only if one of them sent more of the sampled reports than this; below 1 it is mere chance.
    """

    shares: tuple[float, ...]
    cohort: int
    clients_must_send: float


@dataclass(frozen=True, slots=True)
class EqualReports:
    """How often reports are equal to the bit.

    Attributes
    ----------
    most : int
        Times that the most conspicuous report occurs.
    plausible : int
        Times that it may with honest clients, but for a chance of one in a million.
    suspicious : int
        Reports that occur more often than is plausible.
    """

    most: int
    plausible: int
    suspicious: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What the latest reports of a version look like.

    Attributes
    ----------
    reports : int
        How many were looked at.
    cohorts : CohortBalance, optional
        None if there is only one cohort.
    equal : EqualReports, optional
        None if honest reports repeat so often under these parameters that it says nothing.
    """

    reports: int
    cohorts: CohortBalance | None
    equal: EqualReports | None


def look_at(records: Records, params: RapporParams) -> Sample:
    """Return what some reports of a version look like."""
    return Sample(records.reports, _balance(records, params.m), _equal_reports(records, params))


def _balance(records: Records, m: int) -> CohortBalance | None:
    if m < 2 or not records.reports:
        return None
    counts = np.bincount(cohorts(records), minlength=m)
    balance = cohort_balance(counts, ALARM)
    shares = counts * (m / records.reports)
    return CohortBalance(tuple(shares.tolist()), balance.cohort, balance.clients_must_send)


def _equal_reports(records: Records, params: RapporParams) -> EqualReports | None:
    sample = RepeatSample(params, max(records.reports, 2))
    sample.add(records)
    found = sample.result(ALARM)
    if not found.assessed:
        return None
    return EqualReports(found.most, found.plausible, found.suspicious)


class Sampler:
    """Keeps a sample of each version's latest reports.

    Parameters
    ----------
    store : Store
    instruments : Instruments

    Attributes
    ----------
    samples : mapping of MetricVersion to Sample
        Of the versions that have reports.
    """

    def __init__(self, store: Store, instruments: Instruments) -> None:
        self.samples: Mapping[MetricVersion, Sample] = {}
        self._store = store
        self._instruments = instruments
        self._taken_at = float("-inf")
        self._looked_at: dict[MetricVersion, Sequence[DayCount]] = {}

    async def sample(self, declared: Sequence[Declared], days: Sequence[DayCount]) -> None:
        """Look again at what has changed, unless that was done a minute ago.

        A version that is new, or gone, is a reason not to wait.

        Raises
        ------
        StoreError
            If the store can't be read.
        """
        stored: dict[MetricVersion, list[DayCount]] = {}
        for count in days:
            stored.setdefault(MetricVersion(count.metric, count.version), []).append(count)
        now = time.monotonic()
        if now < self._taken_at + _SECONDS and stored.keys() == self.samples.keys():
            return
        self._forget(self.samples.keys() - stored.keys())
        for version in declared:
            key = MetricVersion(version.metric, version.version)
            if key in stored and stored[key] != self._looked_at.get(key):
                await self._take(key, version.definition, stored[key])
        self._taken_at = now

    def _forget(self, keys: set[MetricVersion]) -> None:
        self.samples = {key: it for key, it in self.samples.items() if key not in keys}
        for key in keys:
            self._looked_at.pop(key, None)
            self._tell(key, Sample(0, None, None))

    async def _take(
        self, key: MetricVersion, definition: Mapping[str, Any], days: Sequence[DayCount]
    ) -> None:
        params = RapporParams(**{name: definition[name] for name in RapporParams._fields})
        latest = max(count.day for count in days)
        records = await self._latest_records(key, record_width(params.k), latest)
        sample = await asyncio.to_thread(look_at, records, params)
        self.samples = {**self.samples, key: sample}
        self._looked_at[key] = days
        self._tell(key, sample)

    async def _latest_records(self, key: MetricVersion, width: int, day: dt.date) -> Records:
        """Read records of a week's segments, in the order of their random keys."""
        since = day - dt.timedelta(days=_DAYS - 1)
        data = bytearray()
        async with reading(self._store, key, since) as segments:
            async for segment in segments:
                data += segment
                if len(data) >= _REPORTS * width:
                    break
        return Records(width, bytes(data[: _REPORTS * width]))

    def _tell(self, key: MetricVersion, sample: Sample) -> None:
        balance = sample.cohorts
        self._instruments.sampled(
            key.metric,
            key.version,
            reports=sample.reports,
            cohort_ratio=balance.shares[balance.cohort] if balance else 1.0,
            clients_must_send=balance.clients_must_send if balance else 0.0,
            repeated=sample.equal.suspicious if sample.equal else 0,
        )


@asynccontextmanager
async def reading(
    store: Store, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Read segments as far as is wanted; the transaction ends with the context."""
    segments = store.segments(key, since, until)
    try:
        yield segments
    finally:
        if isinstance(segments, AsyncGenerator):
            await segments.aclose()
