"""Signs of forgery in the latest reports of each version: uneven cohorts, reports that repeat.

At most 50,000 reports of a version are read, when numbers are published, only if more were stored
since, and outside the event loop. Invariants: each report of the last week is as likely to be
examined as any other, so that what is forged today isn't hidden behind what came before; nothing
depends on its bits. What is shown of today's reports is the verdict alone, in one digit: the sizes
of cohorts, from which single reports could be told, are those of closed days.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.protocol.params import RapporParams
from hubbub.protocol.poisoning import RepeatSample, cohort_balance
from hubbub.protocol.records import Records, cohorts, record_width
from hubbub.protocol.responses import UNARY, Response
from hubbub.storage import DayCount, Declared, MetricVersion, Store

ALARM = 1e-6
"""Chance that honest reports look forged in one sample, by either sign."""

_REPORTS = 50_000  # read and examined in a fraction of a second, however many there are
_DAYS = 7  # a whole week: weekdays and weekends have other users


@dataclass(frozen=True, slots=True)
class CohortBalance:
    """Of `poisoning.Balance`, what the page shows, with each cohort's share."""

    # As multiples of an equal share: 1 is even. Once it is shown, those of closed days; none if
    # there are no such days.
    shares: tuple[float, ...]
    cohort: int  # the most conspicuous one
    ratio: float  # its share; once it is shown, 1 unless that is more than chance
    clients_must_send: float  # see `poisoning.Balance`; once it is shown, 0 if less than 1


@dataclass(frozen=True, slots=True)
class EqualReports:
    """Of `poisoning.Repeats`, what the page shows."""

    most: int
    plausible: int
    suspicious: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What the latest reports of a version look like."""

    reports: int  # how many were examined
    cohorts: CohortBalance | None  # none if there is only one cohort
    # None if honest reports repeat so often under these parameters that it says nothing.
    equal: EqualReports | None


def examine(records: Records, params: RapporParams, response: Response = UNARY) -> Sample:
    """Return what some reports of a version look like.

    `records`: reports, as they are stored. `params`: the version's. `response`: by which they were
    drawn.
    """
    balance, equal = None, None
    if params.m > 1 and records.reports:
        counts = np.bincount(cohorts(records), minlength=params.m)
        shares = counts * (params.m / records.reports)
        found = cohort_balance(counts, ALARM)
        balance = CohortBalance(
            tuple(shares.tolist()),
            found.cohort,
            float(shares[found.cohort]),
            found.clients_must_send,
        )
    sample = RepeatSample(params, max(records.reports, 2), response)
    sample.add(records)
    repeats = sample.result(ALARM)
    if repeats.assessed:
        equal = EqualReports(repeats.most, repeats.plausible, repeats.suspicious)
    return Sample(records.reports, balance, equal)


def shown(sample: Sample, settled: Sample) -> Sample:
    """Return what may be shown of a sample, and of one of closed days."""
    balance, equal = sample.cohorts, sample.equal
    if balance is not None:
        is_chance = balance.clients_must_send < 1
        balance = CohortBalance(
            settled.cohorts.shares if settled.cohorts else (),
            0 if is_chance else balance.cohort,
            1.0 if is_chance else _one_digit(balance.ratio),
            0.0 if is_chance else _one_digit(balance.clients_must_send),
        )
    if equal is not None:
        most, suspicious = int(_one_digit(equal.most)), int(_one_digit(equal.suspicious))
        equal = EqualReports(most if suspicious else 0, equal.plausible, suspicious)
    return Sample(sample.reports, balance, equal)


def _one_digit(number: float) -> float:
    return float(f"{number:.1g}")


class Sampler:
    """Keeps a sample of each version's latest reports.

    `samples`: as `shown`, of the versions that have reports.
    """

    def __init__(self, store: Store) -> None:
        self.samples: Mapping[MetricVersion, Sample] = {}
        self._store = store
        self._examined: dict[MetricVersion, Sequence[DayCount]] = {}
        self._settled: dict[MetricVersion, tuple[Sequence[DayCount], Sample]] = {}

    async def sample(
        self, declared: Sequence[Declared], days: Sequence[DayCount], today: dt.date
    ) -> None:
        """Examine again what has changed.

        Raises `StoreError` if the store can't be read.
        """
        stored: dict[MetricVersion, list[DayCount]] = {}
        for count in days:
            if not count.segments:  # what can't be examined
                continue
            stored.setdefault(MetricVersion(count.metric, count.version), []).append(count)
        self.samples = {key: it for key, it in self.samples.items() if key in stored}
        for version in declared:
            key = MetricVersion(version.metric, version.version)
            if key in stored and (
                key not in self.samples or stored[key] != self._examined.get(key)
            ):
                sample = await self._take(version, stored[key], today)
                self.samples = {**self.samples, key: sample}
                self._examined[key] = stored[key]

    async def _take(self, version: Declared, days: Sequence[DayCount], today: dt.date) -> Sample:
        key = MetricVersion(version.metric, version.version)
        latest = await self._read(version, max(count.day for count in days), None)
        over = [count for count in days if count.day < today]
        before, settled = self._settled.get(key, (None, _NOTHING))
        if over != before:
            settled = _NOTHING
            if over:
                yesterday = today - dt.timedelta(days=1)
                settled = await self._read(version, max(it.day for it in over), yesterday)
            self._settled[key] = over, settled
        return shown(latest, settled)

    async def _read(self, version: Declared, latest: dt.date, until: dt.date | None) -> Sample:
        key, params = MetricVersion(version.metric, version.version), version.params
        since, width = latest - dt.timedelta(days=_DAYS - 1), record_width(params.k)
        data = await self._store.sample(key, _REPORTS, width, since, until)
        return await asyncio.to_thread(examine, Records(width, data), params, version.response)


_NOTHING = Sample(0, None, None)  # of no reports, nothing is said
