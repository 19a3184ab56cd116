"""How often intervals hold the truth where clients report again (docs/measured/estimates.md).

The reports of 1, 7, 30 and 365 days are decoded together, of clients who are the same every day, of
clients who leave by and by, and of some who soon leave. One trial is one set of clients.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from evaluation.drawn_counts import draw_repeated_counts
from evaluation.laboratory import Figure
from evaluation.studies.study import Study, means
from factories import make_metric
from hubbub.decoder import CohortCounts, decode
from hubbub.inference import (
    ONCE,
    BoolArray,
    Decoding,
    FieldLabels,
    FloatArray,
    RepeatedReports,
    count_records,
    decode_categories,
    decode_joint,
    decode_open_strings,
    decode_reports,
    hashed,
    pack,
    repeats_of,
)
from hubbub.protocol import (
    EnumType,
    Field,
    JointType,
    Metric,
    MetricType,
    OpenStringType,
    OrdinalType,
    RapporParams,
    StringType,
    Value,
)
from hubbub.simulations import as_records, true_bits

DAYS = (1, 7, 30, 365)
FIRST = dt.date(2026, 1, 1)
SAME, LEAVING, VISITING = "the same", "leaving", "visiting"
STAY = {LEAVING: 1.0, VISITING: 0.1}
"""Mean days that a client stays, as a part of all."""

_COMMON = 0.02
_LEVEL = 0.05
# What is found without a list isn't the question; its tests are those of listed strings.
_ROOM = 2_000


@dataclass(frozen=True, slots=True)
class RepeatCoverage:
    """One trial: shares of the 95% intervals that hold the truth, and of false detections."""

    repeats: float
    coverage: float
    false_share: float  # of the detected
    common: float = math.nan  # of strings that more than 2% of the reports hold
    # of an ordinal's cumulative shares, of a joint metric's margins and conditional shares
    sums: float = math.nan
    rejected: float = math.nan  # whether independent fields are said not to be
    # as_once, false_as_once: Coverage, and share of false detections, if each client is taken to
    # report once
    as_once: float = math.nan
    false_as_once: float = math.nan


@dataclass(frozen=True, slots=True)
class Histories:
    """How many clients make how many reports, and when."""

    clients: Mapping[int, int]  # by the number of their reports
    by_day: Mapping[dt.date, int]  # each day's reports

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
    sites: tuple[str, ...] = ()

    @property
    def work(self) -> float:
        return float(self.days * self.each_day if self.whole else len(self.values))

    def run(self, number: int) -> RepeatCoverage:
        rng = np.random.default_rng([31, number])
        return self.renamed(rng).decoded(rng)

    def renamed(self, rng: np.random.Generator) -> RepeatedCase:
        """Return the case with other strings, which hash otherwise."""
        if isinstance(self.metric.type, StringType | OpenStringType):
            return replace(self, values=_words(len(self.values), rng))
        if self.metric.type is not _TUPLES:
            return self
        sites = _words(_N_SITES, rng)
        return replace(self, values=_tuples(sites), sites=sites)

    def decoded(self, rng: np.random.Generator) -> RepeatCoverage:
        """Draw clients, decode their reports, and see which intervals hold the truth."""
        histories = Histories.drawn(self.kind, self.days, self.each_day, rng)
        known = histories.repeats if self.kind == VISITING else None
        repeats = repeats_of(self.metric, histories.by_day, known)
        if self.whole:
            return self.score_strings(self.decode_whole(histories, rng, repeats), repeats)
        drawn = draw_repeated_counts(
            self.values, self.shares, self.metric.params, histories.clients, rng, self.metric.type
        )
        if isinstance(self.metric.type, OpenStringType):
            found = decode_open_strings(
                drawn.counts,
                self.metric.params,
                self.metric.type,
                candidates=self.texts,
                room=_ROOM,
                repeats=repeats,
            )
            return self.score_strings(found.decoding, repeats)
        if isinstance(self.metric.type, StringType):
            decoding = decode(drawn.counts, self.metric.params, self.texts, repeats=repeats)
            return self.score_strings(decoding, repeats)
        score = self.score_table if isinstance(self.metric.type, JointType) else self.score_listed
        return score(drawn.counts, repeats)

    @property
    def texts(self) -> list[str]:
        """The strings, those that nobody holds as well."""
        return [str(value) for value in self.values]

    def decode_whole(
        self, histories: Histories, rng: np.random.Generator, repeats: RepeatedReports
    ) -> Decoding:
        """Decode whole reports by the likelihood."""
        params = self.metric.params
        of_client = np.repeat(list(histories.clients), list(histories.clients.values()))
        cohorts = rng.integers(params.m, size=len(of_client))
        held = rng.choice(len(self.shares), size=len(of_client), p=self.shares)
        packed = true_bits(self.values, params, self.metric.type).take(held, cohorts)
        true = np.unpackbits(packed, axis=1, bitorder="little").astype(np.bool_)
        permanent = _drawn(true, 1 - params.f1, params.f0, rng)
        records = []
        for reported in range(max(histories.clients)):
            still = of_client > reported
            bits = _drawn(permanent[still], params.q, params.p, rng)
            packed = np.packbits(bits, axis=1, bitorder="little")
            records.append(as_records(cohorts[still], packed))
        candidates = hashed(self.texts, params)
        counts = count_records(b"".join(records), params)
        reports = pack(records, params)
        counted = decode(counts, params, candidates, repeats=repeats)
        return decode_reports(reports, counted, candidates, reason="measured")

    def score_strings(self, decoding: Decoding, repeats: RepeatedReports) -> RepeatCoverage:
        """Compare a decoding with the population's shares."""
        place = {text: row for row, text in enumerate(self.texts)}
        truth = np.array([self.shares[place[text]] if text in place else 0.0
                          for text in decoding.candidates])  # fmt: skip
        inside = (decoding.low <= truth) & (truth <= decoding.high)
        known = ~np.isnan(decoding.share)
        return RepeatCoverage(
            repeats=repeats.responses,
            coverage=float(inside[known].mean()),
            common=_share(inside[known & (truth > _COMMON)]),
            false_share=_false_share(decoding.detected, truth),
        )

    def score_listed(self, counts: CohortCounts, repeats: RepeatedReports) -> RepeatCoverage:
        """Compare the estimates of categories with the population's shares."""
        found, before = (
            decode_categories(counts, self.metric, repeats=each) for each in (repeats, ONCE)
        )
        sums = math.nan
        if found.ordinal:
            low, high = found.ordinal.interval
            below = np.cumsum(self.shares)
            sums = _held(low[:-1], below[:-1], high[:-1])
        return RepeatCoverage(
            repeats=repeats.responses,
            coverage=_held(found.interval.low, self.shares, found.interval.high),
            false_share=_false_share(found.detected, self.shares),
            sums=sums,
            as_once=_held(before.interval.low, self.shares, before.interval.high),
            false_as_once=_false_share(before.detected, self.shares),
        )

    def score_table(self, counts: CohortCounts, repeats: RepeatedReports) -> RepeatCoverage:
        """Compare the estimates of a table with the population's shares."""
        metric_type = self.metric.type
        assert isinstance(metric_type, JointType)
        fields = tuple(
            FieldLabels(field.name, self.sites if field.name == "site" else _labels(field))
            for field in metric_type.fields
        )
        found, before = (
            decode_joint(counts, self.metric, fields, repeats=each) for each in (repeats, ONCE)
        )
        coverage, as_once = (
            _held(each.cells.low, self.shares, each.cells.high) for each in (found, before)
        )
        sums, rejected = math.nan, math.nan
        table = found.table
        if table:
            shape = tuple(len(field.labels) for field in fields)
            kept = [
                [field.labels.index(label) for label in own.labels]
                for field, own in zip(fields, table.estimates.fields, strict=True)
            ]
            truth = self.shares.reshape(shape)[np.ix_(*kept)]
            held = [
                _held(margin.interval.low, truth.sum(axis=1 - axis), margin.interval.high)
                for axis, margin in enumerate(table.margins)
            ]
            for each in table.conditionals:
                given = truth if each.given == 0 else truth.T
                with np.errstate(invalid="ignore"):
                    conditional = given / given.sum(axis=1, keepdims=True)
                known = ~np.isnan(each.low)
                if known.any():
                    held.append(_held(each.low[known], conditional[known], each.high[known]))
            sums = float(np.mean(held))
            rejected = float(table.independence[0].p_value <= _LEVEL)
        return RepeatCoverage(
            repeats=repeats.responses,
            coverage=coverage,
            false_share=_false_share(found.cells.detected, self.shares),
            sums=sums,
            rejected=rejected,
            as_once=as_once,
            false_as_once=_false_share(before.cells.detected, self.shares),
        )


def _drawn(bits: BoolArray, if_one: float, if_zero: float, rng: np.random.Generator) -> BoolArray:
    chances = np.where(bits, np.float32(if_one), np.float32(if_zero))
    return np.asarray(rng.random(bits.shape, dtype=np.float32) < chances)


def _held(low: FloatArray, truth: FloatArray, high: FloatArray) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


def _share(held: BoolArray) -> float:
    return float(held.mean()) if held.size else math.nan


def _false_share(detected: BoolArray, truth: FloatArray) -> float:
    return float((detected & (truth == 0)).sum() / max(int(detected.sum()), 1))


def _words(n: int, rng: np.random.Generator) -> tuple[str, ...]:
    found: dict[str, None] = {}
    while len(found) < n:
        found["".join(rng.choice(_SYLLABLES, 4))] = None
    return tuple(found)


def _tuples(sites: Sequence[str]) -> tuple[Value, ...]:
    drivers = _labels(_TUPLES.fields[1])
    return tuple({"site": site, "driver": driver} for site in sites for driver in drivers)


def _labels(field: Field) -> tuple[str, ...]:
    return field.type.listed_values().labels


def _zipf(present: int, absent: int) -> FloatArray:
    shares = np.concatenate([1 / np.arange(1.0, present + 1), np.zeros(absent)])
    return np.asarray(shares / shares.sum())


MOST_WHOLE = 100_000
"""Whole reports of a trial, which are kept in memory."""
_SYLLABLES = tuple(map("".join, itertools.product("bdfgklmnprst", "aeiou")))
_N_SITES = 40
_ENUM = EnumType(tuple(f"category {i}" for i in range(40)))
_ORDINAL = OrdinalType(tuple(float(10 * edge) for edge in range(1, 20)))
_BELL = np.exp(-0.5 * ((np.arange(20) - 8) / 3) ** 2) * (np.arange(20) < 18)
_CELLS = JointType(
    (
        Field("crash", EnumType(tuple(f"crash {i}" for i in range(6)))),
        Field("driver", EnumType(tuple(f"driver {i}" for i in range(5)))),
    )
)
_TUPLES = JointType(
    (Field("site", StringType()), Field("driver", EnumType(tuple(f"driver {i}" for i in range(5)))))
)
_STRINGS = tuple(map(str, range(200)))
_OPEN = OpenStringType((4,), 32)


def _cases_of(
    name: str,
    metric: Metric,
    values: Sequence[Value],
    shares: FloatArray,
    each_day: int,
    *,
    whole: bool = False,
) -> list[RepeatedCase]:
    return [
        RepeatedCase(name, metric, tuple(values), shares, kind, days, each_day, whole)
        for kind, days in itertools.product((SAME, LEAVING, VISITING), DAYS)
        if (kind == SAME or days > 1) and days * each_day <= (MOST_WHOLE if whole else math.inf)
    ]


def _metric(metric_type: MetricType, **size: int) -> Metric:
    noise = RapporParams(**{"k": 8, "h": 1, "m": 1, **size}, f=0.5, p=0.25, q=0.75)
    return make_metric(metric_type=metric_type, params=noise)


def cases() -> list[RepeatedCase]:
    """Return all: each metric with each number of days and kind of clients."""
    listed = _metric(StringType(), k=128, h=2, m=64)
    tuples = _tuples(tuple(map(str, range(_N_SITES))))
    cells = [
        dict(zip(("crash", "driver"), labels, strict=True))
        for labels in itertools.product(*map(_labels, _CELLS.fields))
    ]
    of_cells = np.outer(_zipf(5, 1), _zipf(5, 0)).ravel()
    of_tuples = np.outer(_zipf(20, 20), _zipf(5, 0)).ravel()
    return [
        *_cases_of("enum of 40", _metric(_ENUM), _ENUM.categories, _zipf(20, 20), 5_000),
        *_cases_of(
            "ordinal of 20", _metric(_ORDINAL), (-1, *_ORDINAL.edges), _BELL / _BELL.sum(), 5_000
        ),
        *_cases_of("joint of 6 and 5", _metric(_CELLS), cells, of_cells, 5_000),
        *_cases_of("joint, hashed", _metric(_TUPLES, k=64, h=1, m=32), tuples, of_tuples, 20_000),
        *_cases_of("strings", listed, _STRINGS, _zipf(100, 100), 20_000),
        *_cases_of(
            "open strings", _metric(_OPEN, k=128, h=1, m=64), _STRINGS, _zipf(100, 100), 100_000
        ),
        *_cases_of("strings, whole", listed, _STRINGS, _zipf(100, 100), 2_000, whole=True),
    ]


def _false_shares(
    chosen: Sequence[RepeatedCase], scores: Sequence[Sequence[RepeatCoverage]]
) -> tuple[str, ...]:
    by_metric: dict[str, list[list[float]]] = {}
    for case, trials in zip(chosen, scores, strict=True):
        by_metric.setdefault(case.name, []).append([trial.false_share for trial in trials])
    means = {name: Figure.of(np.mean(rows, axis=0)) for name, rows in by_metric.items()}
    return tuple(f"False share, all rows of {name}: {figure}" for name, figure in means.items())


STUDY = Study(
    "Repeated reports: 95% intervals that hold the truth, and false detections",
    """Shares of the 95% intervals that hold the truth where clients report again.

    Clients are the same every day, leave after as many days as there are on average, or visit for a
    tenth of them; of visitors it is known how often they report. D is what was used; "as once" is
    with D = 1. Of strings D isn't used.
    """,
    cases,
    {
        "metric": lambda case, _: case.name,
        "clients": lambda case, _: case.kind,
        "days": lambda case, _: case.days,
        "D": lambda _, scores: np.mean([score.repeats for score in scores]).item(),
        **means(*(field.name for field in fields(RepeatCoverage) if field.name != "repeats")),
    },
    runs=100,
    notes=_false_shares,
)
