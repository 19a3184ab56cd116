"""What the planner chooses for an epsilon, beside the best that is published for the same.

A row is a piece of work: N times the variance of the share of what nobody has. The planner's own
entry of metrics.toml is read, its reports are drawn and decoded as always; beside it stand the best
published response in theory and, where multi-freq-ldpy is installed (a study's peer, which the
project doesn't need), the reports of its clients.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.drawn_counts import draw_cells, draw_counts
from evaluation.studies.study import Study, mean
from hubbub.decoder import decode
from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import estimate_categories
from hubbub.planning.categories import categories_goal
from hubbub.planning.goals import Goal, Plan, Schedule
from hubbub.planning.limits import DetectionTest, coin_variance
from hubbub.planning.modes import compare, plan_options
from hubbub.planning.noise import Budget, oue_variance, params_within
from hubbub.planning.search import least_noise_rate, make_plan
from hubbub.planning.strings import StringsGoal
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry
from hubbub.protocol.responses import UNARY

_CLIENTS = 20_000
_PERIOD = 30
_PEER_CLIENTS = 2_000  # whose Python takes a millisecond or two for each report
_SUBSET, _RESPONSE, _LONGITUDINAL = "SS", "GRR", "L-OSUE"


class Measured(NamedTuple):
    """N times mean squared errors of the shares of what nobody has; nan without the peer."""

    planned: float
    peer: float


def chosen(goal: Goal, epsilon: float, mode: str, report: float | None = None) -> Plan:
    """Return what `plan --epsilon` has for a mode, and of mode "once" what it recommends."""
    schedule = Schedule("once", period_days=_PERIOD)
    found = compare(plan_options(goal, epsilon, schedule, report), n_clients=_CLIENTS)
    if mode == "once":
        return found.best
    plan = found.rival("longitudinal (value), unary")
    assert plan is not None
    return plan


def metric_of(plan: Plan) -> Metric:
    """Read the entry that a plan prints."""
    entry = plan.goal.entry(plan.params, "planned")
    return Registry.parse(f'application = "com.example.study"\n{entry}')["planned"]


def subset_peer(categories: int, size: int, epsilon: float) -> float:
    """Return N times the variance of an absent category of a subset (Ye and Barg 2018)."""
    grown = size * math.exp(epsilon)
    q = grown / (grown + categories - size)
    p = ((size - 1) * grown + (categories - size) * size) / (
        (categories - 1) * (grown + categories - size)
    )
    return p * (1 - p) / (q - p) ** 2


def best_published(categories: int, epsilon: float) -> tuple[str, float]:
    """Return the least of generalized randomized response, subset selection and OUE."""
    sizes = range(1, categories)
    return min(
        (_RESPONSE, subset_peer(categories, 1, epsilon)),
        (_SUBSET, min(subset_peer(categories, size, epsilon) for size in sizes)),
        ("OUE", oue_variance(epsilon)),
        key=lambda each: each[1],
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """Of L-OSUE: the chances of its two rounds (Arcolezi et al. 2022)."""

    p1: float
    q1: float
    p2: float
    q2: float

    @classmethod
    def of(cls, permanent: float, report: float) -> Rates:
        """Return those of two epsilons."""
        all_of_it, one = math.exp(permanent), math.exp(report)
        p2 = (1 - one * all_of_it) / (one - all_of_it - one * all_of_it + 1)
        return cls(1 / 2, 1 / (all_of_it + 1), p2, 1 - p2)

    def variance(self, reports: int) -> float:
        """Return N times the variance of an absent value after so many reports of N clients."""
        p, q = self.q1 * self.p2 + (1 - self.q1) * self.q2, self.p1 * self.p2
        q += (1 - self.p1) * self.q2
        instantaneous = self.q1 * self.p2 * (1 - self.p2) + (1 - self.q1) * self.q2 * (1 - self.q2)
        permanent = self.q1 * (1 - self.q1) * (self.p2 - self.q2) ** 2
        return (permanent + instantaneous / reports) / (q - p) ** 2


@dataclass(frozen=True, slots=True)
class Categories:
    """Categories of which half are held by nobody, asked once."""

    categories: int
    epsilon: float
    asked = 1.03

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"enum of {self.categories}, epsilon {self.epsilon:g}, once"

    @property
    def work(self) -> float:
        """About how long a trial takes."""
        return float(self.categories)

    @property
    def plan(self) -> Plan:
        """What the planner recommends."""
        return chosen(categories_goal(self.categories), self.epsilon, "once")

    @property
    def planned(self) -> float:
        """N times the variance that the planner states."""
        return self.plan.std_error**2 * _CLIENTS

    @property
    def published(self) -> tuple[str, float]:
        """The best that is published."""
        return best_published(self.categories, self.epsilon)

    def run(self, number: int) -> Measured:
        """Draw the planner's reports, and the peer's."""
        rng = np.random.default_rng([number, self.categories])
        metric, half = metric_of(self.plan), self.categories // 2
        shares = np.repeat([1 / (self.categories - half), 0.0], [self.categories - half, half])
        if metric.response == UNARY:
            values = [str(i + 1) for i in range(self.categories)]
            counts = draw_counts(values, shares, metric.params, _CLIENTS, rng, metric.type)
        else:
            counts = draw_cells(metric, range(self.categories), shares, _CLIENTS, rng)
        found = estimate_categories(counts, metric).unbiased[-half:]
        return Measured(_CLIENTS * float((found**2).mean()), self._of_peer(number, shares))

    def _of_peer(self, number: int, shares: FloatArray) -> float:
        """Draw the reports of multi-freq-ldpy's client for subset selection, its size 1 GRR's."""
        client = peer("pure_frequency_oracles.SS", "SS_Client")
        if client is None or self.published[0] == "OUE":
            return math.nan
        np.random.seed(number)  # noqa: NPY002 - the peer draws from it
        d, epsilon = self.categories, self.epsilon
        held = np.random.default_rng(number).choice(d, _PEER_CLIENTS, p=shares)
        reports = np.concatenate([client(int(value), d, epsilon) for value in held])
        size = len(reports) // _PEER_CLIENTS
        grown = size * math.exp(epsilon)
        q = grown / (grown + d - size)
        p = ((size - 1) * grown + (d - size) * size) / ((d - 1) * (grown + d - size))
        counted = np.bincount(reports.astype(np.int64), minlength=d)[-(d // 2) :] / _PEER_CLIENTS
        return _PEER_CLIENTS * float((((counted - p) / (q - p)) ** 2).mean())


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings of a list, asked once; the planner's own cohorts and bits, collisions included.

    Attributes
    ----------
    days : int
        Of which one is estimated, if each client reports on one of them; N are the clients of all.
    bits : int
        If not 0, in place of the planner's, with the rate of ones that is best for an absent value.
    """

    days: int = 1
    bits: int = 0
    epsilon: float = 4.39
    candidates: int = 10_000
    work = 1e5

    @property
    def name(self) -> str:
        """What tells it from the others."""
        bits = f", {self.bits:,} bits" if self.bits else ""
        day = f", a day of {self.days}" if self.days > 1 else ""
        return f"strings, epsilon {self.epsilon:g}, once{day}{bits}"

    @property
    def asked(self) -> float:
        """How many times the published may be."""
        return (1.6 if self.days > 1 else 0.058) / self.published[1]

    @property
    def plan(self) -> Plan:
        """What the planner recommends."""
        goal = StringsGoal(DetectionTest(self.candidates))
        found = chosen(goal, self.epsilon, "once")
        if not self.bits:
            return found
        budget = Budget(math.inf, self.epsilon)
        params = params_within(self.bits, 1, found.params.m, budget, least_noise_rate(1, budget))
        return make_plan(found.goal, found.name, params, found.reports)

    @property
    def planned(self) -> float:
        """N times the variance that the planner states."""
        return self.days * self.plan.std_error**2 * _CLIENTS

    @property
    def published(self) -> tuple[str, float]:
        """OUE, which knows the list before it asks; of days RAPPOR, asked on each of them."""
        if self.days > 1:
            return "daily, (4.39, 1.07)", Rates.of(self.epsilon, 1.07).variance(1)
        return "OUE", oue_variance(self.epsilon)

    def run(self, number: int) -> Measured:
        """Draw reports of Zipf's law over half of the list, and decode them."""
        rng = np.random.default_rng(number)
        held, absent = self.candidates // 2, self.candidates // 2
        shares = 1 / np.arange(1, held + 1)
        names = [f"{number} {i}" for i in range(held + absent)]
        params = self.plan.params
        counts = draw_counts(names[:held], shares / shares.sum(), params, _CLIENTS, rng)
        found = decode(counts, params, names).share[held:]
        return Measured(self.days * _CLIENTS * float(np.nanmean(found**2)), math.nan)


@dataclass(frozen=True, slots=True)
class Repeated:
    """Categories of which half are held by nobody, R reports of each client."""

    epsilon: float
    report: float
    reports: int
    categories: int = 10
    asked = 1.05

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"longitudinal ({self.epsilon:g}, {self.report:g}), R = {self.reports}"

    @property
    def work(self) -> float:
        """About how long a trial takes."""
        return float(self.reports)

    @property
    def plan(self) -> Plan:
        """What the planner has for a month of daily reports, whatever is looked at."""
        goal = categories_goal(self.categories)
        return chosen(goal, self.epsilon, "longitudinal", self.report)

    @property
    def planned(self) -> float:
        """N times the variance of one bit after so many reports, as published ones are of one."""
        return coin_variance(self.plan.params, 0.0, self.reports)

    @property
    def published(self) -> tuple[str, float]:
        """L-OSUE."""
        return _LONGITUDINAL, Rates.of(self.epsilon, self.report).variance(self.reports)

    def run(self, number: int) -> Measured:
        """Draw N clients' permanent responses and the sums of their reports."""
        rng = np.random.default_rng([number, self.reports])
        params, d = metric_of(self.plan).params, self.categories
        held = rng.integers(0, d - d // 2, _CLIENTS)
        true = np.arange(d) == held[:, None]
        rates = (params.f0, 1 - params.f1, params.p, params.q)
        planned = self._variance(rates, true, rng)
        return Measured(planned, self._of_peer(number))

    def _variance(
        self, rates: tuple[float, float, float, float], true: FloatArray, rng: np.random.Generator
    ) -> float:
        """Return N times the mean squared error of the absent, from the bits' own rates."""
        zero, one, p, q = rates
        permanent = rng.random(true.shape) < np.where(true, one, zero)
        seen = rng.binomial(self.reports, np.where(permanent, q, p)).mean(axis=0) / self.reports
        p_star, q_star = zero * q + (1 - zero) * p, one * q + (1 - one) * p
        absent = seen[-(self.categories // 2) :]
        return len(true) * float((((absent - p_star) / (q_star - p_star)) ** 2).mean())

    def _of_peer(self, number: int) -> float:
        """Draw one report of each of multi-freq-ldpy's clients, which keep no permanent one."""
        client = peer("long_freq_est.L_OSUE", "L_OSUE_Client")
        if client is None or self.reports > 1:
            return math.nan
        np.random.seed(number)  # noqa: NPY002 - the peer draws from it
        held = np.random.default_rng(number).integers(0, self.categories // 2, _PEER_CLIENTS)
        bits = [client(int(each), self.categories, self.epsilon, self.report) for each in held]
        rates = Rates.of(self.epsilon, self.report)
        p_star = rates.q1 * rates.p2 + (1 - rates.q1) * rates.q2
        slope = (rates.p1 - rates.q1) * (rates.p2 - rates.q2)
        absent = np.mean(bits, axis=0)[-(self.categories // 2) :]
        return _PEER_CLIENTS * float((((absent - p_star) / slope) ** 2).mean())


def peer(module: str, name: str) -> Callable[..., Any] | None:
    """Return a function of multi-freq-ldpy, if it is installed."""
    try:
        found = importlib.import_module(f"multi_freq_ldpy.{module}")
    except ImportError:
        return None
    function: Callable[..., Any] = getattr(found, name)
    return function


def cases() -> tuple[Categories | Strings | Repeated, ...]:
    """Return all pieces of work."""
    return (
        *(Categories(d, epsilon) for d in (4, 10, 20, 100) for epsilon in (1.0, 2.0, 4.0)),
        Strings(),
        Strings(_PERIOD),
        Strings(_PERIOD, bits=1024),
        *(Repeated(4.39, report, n) for report in (1.1, 2.04) for n in (1, 7, 30)),
    )


def _ratio(case: Any) -> float:
    return float(case.planned / case.published[1])


def _without_peer(_cases: Sequence[Any], _scores: Sequence[Any]) -> tuple[str, ...]:
    if peer("pure_frequency_oracles.SS", "SS_Client"):
        return ()
    return ("No peer: multi-freq-ldpy isn't installed (pip install multi-freq-ldpy).",)


def _peer_over(case: Any, trials: Sequence[Measured]) -> object:
    found = [trial.peer / case.published[1] for trial in trials]
    return "" if all(map(math.isnan, found)) else mean(found)


STUDY = Study(
    "N times the variance of what nobody has, planned and published",
    """What the planner chooses, beside the best of what is published at the same epsilon.

    \\b
    planned    N times the variance of an absent value, as the planner states it
    ratio      to the best published in theory; asked is at most the next column
    measured   planned over published, from the planner's own entry, drawn and decoded
    peer       reports of multi-freq-ldpy's clients over published, if it is installed
    """,
    cases,
    {
        "work": lambda case, _: case.name,
        "planned": lambda case, _: f"{case.planned:.4f}",
        "best published": lambda case, _: case.published[0],
        "published": lambda case, _: f"{case.published[1]:.4f}",
        "ratio": lambda case, _: f"{_ratio(case):.3f}",
        "asked": lambda case, _: f"{case.asked:.3g}",
        "measured": lambda case, trials: mean(
            [trial.planned / case.published[1] for trial in trials]
        ),
        "peer": _peer_over,
    },
    runs=40,
    notes=_without_peer,
)
