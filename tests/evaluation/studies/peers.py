"""hubbub beside what else decodes such reports, on the same reports.

Listed strings: pure-ldp's RAPPOR server, and what everybody would write first, scikit-learn's Lasso
and statsmodels' least squares with Benjamini and Hochberg's correction. Categories: the unary
encodings of pure-ldp and multi-freq-ldpy. Of these statsmodels alone tests anything; what the
others name is every share above 0. `pip install multi-freq-ldpy pure-ldp statsmodels` has them,
beside `hubbub[dev]` and with its versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.drawn_counts import draw_repeated_counts
from evaluation.laboratory import seed_of
from evaluation.studies.cases import uniform, zipf
from evaluation.studies.regimes import timed
from evaluation.studies.study import Study, means
from factories import make_metric
from hubbub.decoder import CohortCounts, decode
from hubbub.inference import FloatArray, decode_categories, estimate_bits, hashed, make_design
from hubbub.protocol import EnumType, RapporParams

PARAMS = RapporParams(k=128, h=2, m=32, f=0.5, p=0.25, q=0.75)
_LEVEL = 0.05  # of false names among those that a test finds
_IN_USE = set[str]()  # decoders that have decoded something in this process


class Named(NamedTuple):
    """Which candidates a decoder names, and what share it gives to each."""

    names: Any  # bool array, shape (n,)
    share: FloatArray  # shape (n,)


class PeerScore(NamedTuple):
    """What one decoder made of one collection; distance is half the sum of absolute errors."""

    right: int
    false: int
    distance: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Strings:
    """Candidates with Zipf's or even shares; as many again that nobody has."""

    name: str
    reports: int
    held: int
    absent: int
    params: RapporParams = PARAMS
    unlisted: float = 0.1

    def collect(self, number: int) -> tuple[Any, Any, FloatArray]:
        """Return counts, candidates and the candidates' shares of the reports."""
        rng = np.random.default_rng(seed_of(self.name, number))
        shares = np.append((1 - self.unlisted) * zipf(self.held), self.unlisted * uniform(50))
        names = [f"{self.name} {number} {i}" for i in range(len(shares) + self.absent)]
        listed = names[: self.held] + names[len(shares) :]
        held = names[: len(shares)]
        drawn = draw_repeated_counts(held, shares, self.params, {1: self.reports}, rng)
        truth = np.append(drawn.share[: self.held], np.zeros(self.absent))
        return drawn.counts, hashed(listed, self.params), truth


@dataclass(frozen=True, slots=True)
class Categories:
    """Categories of which nobody has the last tenth, reported as optimal unary encoding does."""

    name: str
    reports: int
    held: int
    absent: int
    epsilon: float = 2.0

    def collect(self, number: int) -> tuple[Any, Any, FloatArray]:
        """Return reports, shape (N, n), the metric and the categories' shares of the reports."""
        rng = np.random.default_rng(seed_of(self.name, number))
        n, p = self.held + self.absent, 1 / (math.exp(self.epsilon) + 1)
        shares = np.append(zipf(self.held), np.zeros(self.absent))
        held = rng.choice(n, size=self.reports, p=shares)
        bits = rng.random((self.reports, n)) < np.where(np.arange(n) == held[:, None], 0.5, p)
        params = RapporParams(k=-(-n // 8) * 8, h=1, m=1, f=0.0, p=p, q=0.5)
        metric = make_metric(
            metric_type=EnumType(tuple(f"category {i}" for i in range(n))), params=params
        )
        return bits.astype(np.int64), metric, np.bincount(held, minlength=n) / self.reports


def _hubbub(counts: CohortCounts, candidates: Any) -> Named:
    found = decode(counts, candidates.params, candidates, alpha=_LEVEL)
    return Named(found.detected, found.constrained_share)


def _hubbub_categories(bits: Any, metric: Any) -> Named:
    ones = np.zeros((1, metric.params.k), dtype=np.int64)
    ones[0, : bits.shape[1]] = bits.sum(axis=0)
    found = decode_categories(CohortCounts(np.array([len(bits)]), ones), metric, alpha=_LEVEL)
    return Named(found.detected, found.estimates.share)


def _pure_ldp(counts: CohortCounts, candidates: Any) -> Named:
    """Its noise is f alone: both responses together are one with f = 2 p*."""
    from pure_ldp.frequency_oracles.rappor import RAPPORServer

    params, n = candidates.params, len(candidates)
    server = RAPPORServer(2 * params.p_star, params.k, params.h, n, params.m, index_mapper=int)
    places = candidates.positions(slice(0, n))
    server.hash_family = [
        [(lambda row, c=c, j=j: int(places[int(row), c, j])) for j in range(params.h)]
        for c in range(params.m)
    ]
    server.bloom_filters, server.cohort_count = list(counts.bits * 1.0), counts.reports * 1.0
    server.n = int(counts.total)
    share = np.array([server.estimate(i, suppress_warnings=True) for i in range(n)]) / server.n
    return Named(share > 0, share)


def _rows(counts: CohortCounts, candidates: Any) -> tuple[FloatArray, FloatArray]:
    design = make_design(candidates.positions(slice(0, len(candidates))), candidates.params)
    return design.matrix.toarray().T, estimate_bits(counts, candidates.params).rate.ravel()


def _lasso(counts: CohortCounts, candidates: Any) -> Named:
    from sklearn.linear_model import LassoCV

    filters, rates = _rows(counts, candidates)
    share = LassoCV(positive=True).fit(filters, rates).coef_
    return Named(share > 0, share)


def _least_squares(counts: CohortCounts, candidates: Any) -> Named:
    from statsmodels.regression.linear_model import OLS
    from statsmodels.stats.multitest import multipletests

    filters, rates = _rows(counts, candidates)
    fit = OLS(rates, np.column_stack([np.ones(len(rates)), filters])).fit()
    one_sided = np.where(fit.tvalues[1:] > 0, fit.pvalues[1:] / 2, 1 - fit.pvalues[1:] / 2)
    names = multipletests(one_sided, _LEVEL, "fdr_bh")[0]
    return Named(names, np.where(names, fit.params[1:], 0.0))


def _pure_ldp_categories(bits: Any, metric: Any) -> Named:
    from pure_ldp.frequency_oracles.unary_encoding import UEServer

    server = UEServer(metric.params.epsilon_report, bits.shape[1], use_oue=True, index_mapper=int)
    for report in bits:
        server.aggregate(report)
    share = np.array([server.estimate(i, suppress_warnings=True) for i in range(bits.shape[1])])
    return Named(share > 0, share / len(bits))


def _multi_freq_ldpy(bits: Any, metric: Any) -> Named:
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI

    share = UE_Aggregator_MI(list(bits), metric.params.epsilon_report, optimal=True)
    return Named(share > 0, share)


OF_STRINGS: dict[str, Callable[[Any, Any], Named]] = {
    "hubbub": _hubbub,
    "pure-ldp": _pure_ldp,
    "scikit-learn, LassoCV": _lasso,
    "statsmodels, OLS": _least_squares,
}
OF_CATEGORIES: dict[str, Callable[[Any, Any], Named]] = {
    "hubbub": _hubbub_categories,
    "pure-ldp": _pure_ldp_categories,
    "multi-freq-ldpy": _multi_freq_ldpy,
}


@dataclass(frozen=True, slots=True)
class PeerCase:
    """A collection, and who decodes it: all decoders are given the same reports."""

    collection: Strings | Categories
    decoder: str

    @property
    def name(self) -> str:
        return f"{self.collection.name}: {self.decoder}"

    @property
    def work(self) -> float:
        return float(self.collection.reports)

    def run(self, number: int) -> PeerScore:
        reports, candidates, truth = self.collection.collect(number)
        decoders = OF_STRINGS if isinstance(self.collection, Strings) else OF_CATEGORIES
        decoder = decoders[self.decoder]
        if self.decoder not in _IN_USE:  # it imports and compiles
            decoder(reports, candidates)
            _IN_USE.add(self.decoder)
        (names, share), seconds = timed(lambda: decoder(reports, candidates))
        return PeerScore(
            int((names & (truth > 0)).sum()),
            int((names & (truth == 0)).sum()),
            float(np.abs(share - truth).sum()) / 2,
            seconds,
        )


def cases() -> list[PeerCase]:
    """Return each collection with each of its decoders."""
    crowded = RapporParams(k=32, h=2, m=16, f=0.5, p=0.25, q=0.75)
    collections = (
        Strings("200 candidates", 1_000_000, 100, 100),
        Strings("1,000 candidates", 1_000_000, 100, 900),
        Strings("200 in crowded filters", 1_000_000, 100, 100, crowded),
        Categories("100 categories", 100_000, 90, 10),
    )
    return [
        PeerCase(collection, decoder)
        for collection in collections
        for decoder in (OF_STRINGS if isinstance(collection, Strings) else OF_CATEGORIES)
    ]


STUDY = Study(
    "Decoders of the same reports",
    "hubbub and other decoders, each given the same reports.\n\nRight and false are names among "
    "the candidates that it calls present, distance is half the sum of absolute errors of all "
    "candidates' shares (hubbub's are those that add up: refit, proportion).",
    cases,
    {
        "reports of": lambda case, _: case.collection.name,
        "decoder": lambda case, _: case.decoder,
        "held": lambda case, _: case.collection.held,
        **means(*PeerScore._fields),
    },
    runs=5,
)
