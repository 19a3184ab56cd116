"""How often intervals hold the truth where clients report again (docs/statistics.md).

The reports of 1, 7, 30 and 365 days are decoded together, of clients who are the same every day, of
clients who leave by and by, and of some who soon leave. One trial is one set of clients.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from evaluation.drawn_counts import draw_repeated_counts
from evaluation.studies.study import Study, mean, means
from factories import make_metric, make_params
from hubbub.decoder import decode
from hubbub.inference.arrays import BoolArray, ByteArray, FloatArray, IntArray
from hubbub.inference.candidates import hashed
from hubbub.inference.categories.decoding import decode_categories
from hubbub.inference.counts import count_records
from hubbub.inference.decoding import Decoding
from hubbub.inference.joint.decoding import decode_joint
from hubbub.inference.joint.table import FieldLabels
from hubbub.inference.likelihood.decoding import decode_reports
from hubbub.inference.open_strings.decoding import decode_open_strings
from hubbub.inference.packed import pack
from hubbub.inference.repeated_reports import ONCE, RepeatedReports, flips, repeats_of
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.joint import Field, JointType
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metric_types.ordinals import OrdinalType
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.metrics import Metric
from hubbub.simulations.simulated_clients.clients import as_records
from hubbub.simulations.simulated_clients.true_bits import true_bits

DAYS = (1, 7, 30, 365)
FIRST = dt.date(2026, 1, 1)
SAME, LEAVING, VISITING = "the same", "leaving", "visiting"
STAY = {LEAVING: 1.0, VISITING: 0.1}
"""Mean days that a client stays, as a part of all."""


@dataclass(frozen=True, slots=True)
class RepeatCoverage:
    """One trial: shares of the 95% intervals that hold the truth, and of false detections.

    Attributes
    ----------
    coverage : float
    sums : float
        Of an ordinal's cumulative shares, of a joint metric's margins and conditional shares.
    false_share : float
        Of the detected.
    rejected : float
        Whether independent fields are said not to be.
    as_once, false_as_once : float
        Coverage, and share of false detections, if each client is taken to report once.
    """

    repeats: float
    coverage: float
    false_share: float
    sums: float = math.nan
    rejected: float = math.nan
    as_once: float = math.nan
    false_as_once: float = math.nan


@dataclass(frozen=True, slots=True)
class Histories:
    """How many clients make how many reports, and when.

    Attributes
    ----------
    clients : mapping of int to int
        By the number of their reports.
    by_day : mapping of datetime.date to int
        Each day's reports.
    """

    clients: Mapping[int, int]
    by_day: Mapping[dt.date, int]

    @property
    def repeats(self) -> float:
        """sum R_i^2 / sum R_i."""
        reports = np.array(list(self.clients))
        numbers = np.array(list(self.clients.values()))
        return float((reports**2 * numbers).sum() / (reports * numbers).sum())

    @classmethod
    def drawn(cls, kind: str, days: int, each_day: int, rng: np.random.Generator) -> Histories:
        """Draw those of clients of a kind, of whom as many report every day."""
        by_day = {FIRST + dt.timedelta(days=day): each_day for day in range(days)}
        if kind == SAME:
            return cls({days: each_day}, by_day)
        leaves = rng.random((each_day, days)) < 1 / max(STAY[kind] * days, 1)
        leaves[:, -1] = True
        places = np.flatnonzero(leaves.ravel())
        numbers = np.bincount(np.diff(places, prepend=-1))
        return cls({n: int(numbers[n]) for n in np.flatnonzero(numbers).tolist()}, by_day)


@dataclass(frozen=True, slots=True)
class RepeatedCase:
    """A metric, who holds what, and how long clients stay."""

    name: str
    metric: Metric
    values: tuple[Value, ...]
    shares: FloatArray
    kind: str
    days: int
    each_day: int
    whole: bool = False

    @property
    def work(self) -> float:
        """About how long a trial takes."""
        return float(self.days * self.each_day if self.whole else len(self.values))

    def run(self, number: int) -> RepeatCoverage:
        """Draw a trial's clients, decode their reports, and see which intervals hold the truth."""
        rng = np.random.default_rng([31, number])
        histories = Histories.drawn(self.kind, self.days, self.each_day, rng)
        known = histories.repeats if self.kind == VISITING else None
        repeats = repeats_of(self.metric, histories.by_day, known)
        if self.whole:
            return self.score_strings(*self.decode_whole(histories, rng), repeats)
        drawn = draw_repeated_counts(
            self.values, self.shares, self.metric.params, histories.clients, rng, self.metric.type
        )
        if isinstance(self.metric.type, OpenStringType):
            found = decode_open_strings(
                drawn.counts, self.metric.params, self.metric.type, candidates=self.texts
            )
            return self.score_strings(found.decoding, drawn.share, repeats)
        if isinstance(self.metric.type, StringType):
            decoding = decode(drawn.counts, self.metric.params, self.texts)
            return self.score_strings(decoding, drawn.share, repeats)
        score = self.score_table if isinstance(self.metric.type, JointType) else self.score_listed
        return score(drawn.counts, repeats)

    @property
    def texts(self) -> list[str]:
        """The strings, those that nobody holds as well."""
        return [str(value) for value in self.values]
