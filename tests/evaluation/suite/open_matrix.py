"""Cases of strings that nobody listed, beside the matrix of listed ones.

Names and domain names at usual epsilons; null cases, in which no string is common enough to be
found; and the cases of google/rappor's unknown dictionaries, at the epsilon of one of its reports.
"""

from __future__ import annotations

import math
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.laboratory import seed_of
from evaluation.suite.bounds import ALPHA, CaseResult, StringsTrial, judge_strings
from hubbub.inference import ONCE_OF_REPORTS, FloatArray, decode, decode_open_strings
from hubbub.protocol import OpenStringType, RapporParams
from hubbub.simulations import (
    LISTS,
    DecodedShares,
    Population,
    ReportingPlan,
    family_shares,
    held_shares,
    mass_covered,
    sample_population,
    score,
)

_MILLION = 1_000_000
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)
_RANDOM = 200_000
"""A share of 5e-6 each; what is found at a million reports and epsilon 4 is above .2%."""
_DICTIONARY = 10
"""Strings of google/rappor's unknown dictionaries."""
_NAMES, _DOMAINS = (4, 7), (3, 5, 7, 10, 13, 16)
"""By hand for names, most of which have at most seven letters; for domains those of the planner,
told their letters and that few have more than 40."""
_ALPHABETS = dict.fromkeys(("census", "surnames", "random"), string.ascii_letters) | {
    "domains": string.ascii_lowercase + string.digits + "-."
}
"""The characters of populations of which the decoder is told them."""


@dataclass(frozen=True, slots=True)
class OpenCase:
    """One line of the suite's table; every client reports once."""

    population: str  # A key of `POPULATIONS`
    reports: int
    epsilon: float  # of a client's only report: f = 0, p = 1 / (e^epsilon + 1), q = 1/2
    steps: tuple[int, ...]  # lengths of the prefixes
    k: int = 256  # k, cohorts: Bits of a filter; cohorts of each step
    cohorts: int = 256
    is_null: bool = False  # whether no string is common enough to be found

    @property
    def name(self) -> str:
        """A short name that says what matters, such as open-census-1M-eps4."""
        size = f"{self.reports / _MILLION:g}M-eps{self.epsilon:.3g}"
        return f"open-{self.population}-{size}" + ("-null" if self.is_null else "")

    @property
    def metric_type(self) -> OpenStringType:
        return OpenStringType(self.steps, self.cohorts)

    @property
    def params(self) -> RapporParams:
        return self._params((len(self.steps) + 1) * self.cohorts)

    @property
    def listed_params(self) -> RapporParams:
        return self._params(self.cohorts)

    @property
    def work(self) -> float:
        return 5.0 * _MILLION * len(self.steps) + self.reports

    def seed(self, run: int) -> np.random.SeedSequence:
        return seed_of(self.name, run)

    def values(self, run: int) -> Population:
        """Return a run's population; made-up strings are of this run alone."""
        return POPULATIONS[self.population](np.random.default_rng(self.seed(run)))

    def run(self, number: int) -> StringsTrial:
        population = self.values(number)
        people, if_listed = self.seed(number).spawn(2)
        plan = ReportingPlan(population, self.params, self.reports, open_type=self.metric_type)
        sample = sample_population(plan, people)
        started = time.process_time()
        found = decode_open_strings(
            sample.counts,
            self.params,
            self.metric_type,
            alpha=ALPHA,
            repeats=ONCE_OF_REPORTS,
            alphabet=_ALPHABETS.get(self.population, ""),
        ).decoding
        seconds = time.process_time() - started
        held = held_shares(population.values, sample.holders)
        strings = dict.fromkeys((*found.candidates, *held))
        truth = np.array([held.get(each, 0.0) for each in strings])
        ours = DecodedShares.of(found).extended(len(strings))
        constrained = np.zeros(len(strings))
        constrained[: len(found.candidates)] = found.constrained_share
        summary, detected = found.summary, ours.detected
        return StringsTrial(
            candidates=0,
            ours=score(truth, ours.share, ours.low, ours.high, detected, constrained),
            baseline=None,
            oracle=None,
            if_listed=None if self.is_null else self._found_if_listed(population, if_listed),
            unknown_covered=mass_covered(
                1 - float(truth[detected].sum()), summary.unknown_share, summary.unknown_std_error
            ),
            unlisted_covered=None,
            seconds=seconds,
        )

    def judge(self, trials: Sequence[StringsTrial]) -> CaseResult:
        return judge_strings(self.name, trials, is_null=self.is_null)

    def _found_if_listed(self, population: Population, seed: np.random.SeedSequence) -> int:
        plan = ReportingPlan(population, self.listed_params, self.reports)
        sample = sample_population(plan, seed)
        decoding = decode(sample.counts, plan.params, population.values, alpha=ALPHA)
        return int(np.count_nonzero(decoding.detected & (sample.holders > 0)))

    def _params(self, m: int) -> RapporParams:
        return RapporParams(self.k, 1, m, 0.0, 1 / (math.exp(self.epsilon) + 1), 0.5)


def open_cases() -> tuple[OpenCase, ...]:
    """Return all, in the table's order."""
    return (
        *_small(),
        OpenCase("census", _MILLION, 4, _NAMES),
        OpenCase("census", _MILLION, 2, _NAMES),
        OpenCase("census", 10 * _MILLION, 4, _NAMES),
        OpenCase("surnames", 10 * _MILLION, 4, _NAMES),
        OpenCase("domains", _MILLION, 4, _DOMAINS),
        OpenCase("random", _MILLION, 4, _NAMES, is_null=True),
    )


def quick_open_cases() -> tuple[OpenCase, ...]:
    """Return the few that continuous integration runs."""
    return _small()[:2]


def _small() -> tuple[OpenCase, ...]:
    return (
        OpenCase("census", _MILLION // 10, 4, _NAMES),
        _unknown_dictionary("uniform", 30_000, 0.0),
        _unknown_dictionary("geometric", 60_000, 0.25),
        _unknown_dictionary("uniform", 30_000, 0.5, k=32),
    )


def _unknown_dictionary(shares: str, reports: int, f: float, k: int = 128) -> OpenCase:
    """Return a case of google/rappor's.

    A client sends three reports there, two of parts and one of the whole, each of h = 2, p = .25,
    q = .75. Here it sends one, whose epsilon is that of one of the three.
    """
    epsilon = RapporParams(k, 2, 1, f, 0.25, 0.75).epsilon_report
    return OpenCase(f"{shares}10", reports, epsilon, (2, 4), k, 64)


def _random_letters(n: int, length: int, rng: np.random.Generator) -> tuple[str, ...]:
    strings: dict[str, None] = {}
    while len(strings) < n:
        text = _LETTERS[rng.integers(len(_LETTERS), size=(n, length))].tobytes().decode()
        strings |= dict.fromkeys(text[at : at + length] for at in range(0, len(text), length))
    return tuple(strings)[:n]


def _dictionary(shares: FloatArray) -> Callable[[np.random.Generator], Population]:
    return lambda rng: Population(_random_letters(len(shares), 6, rng), shares)


POPULATIONS: dict[str, Callable[[np.random.Generator], Population]] = {
    **{name: lambda _rng, made=made: made() for name, made in LISTS.items()},  # type: ignore[misc]
    "random": lambda rng: Population(
        _random_letters(_RANDOM, 8, rng), family_shares("uniform", _RANDOM)
    ),
    "uniform10": _dictionary(family_shares("uniform", _DICTIONARY)),
    "geometric10": _dictionary(family_shares("geometric:0.7", _DICTIONARY)),
}
"""By name: census, surnames and domains; 200,000 strings of eight random letters, equally likely;
ten of six letters, equally likely or each .7 times the one before."""
