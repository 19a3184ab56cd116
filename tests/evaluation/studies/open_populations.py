"""Strings that nobody listed, in populations that look unlike each other, beside PEM.

Ours gets the steps, bits and noise that the planner proposes to who knows nothing of the strings,
those for their alphabet and length, and, where other public strings are like them, those for that
corpus, from which it learns. PEM is told how long strings are, and the alphabet or nothing. Counts
are drawn by their exact distribution (docs/understand/open-strings.md).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, TypedDict, Unpack

import numpy as np

from evaluation.drawn_counts import draw_counts
from evaluation.laboratory import seed_of
from evaluation.pem import Spelling, find, length_of_most
from evaluation.studies.study import Columns, Study
from evaluation.unlike_populations import CORPORA, HELD_OUT, SCRIPTS, TUNED, four
from hubbub.inference import Decoding, decode_open_strings
from hubbub.planning import (
    UNKNOWN_LENGTH,
    Budget,
    Letters,
    OpenGoal,
    Plan,
    choose_steps,
    open_test,
    plan,
)
from hubbub.protocol import OpenStringType
from hubbub.simulations import Population

_FOUR = {f"four-{script}": partial(four, script) for script in SCRIPTS}
POPULATIONS: dict[str, Callable[[], Population]] = {**TUNED, **HELD_OUT, **_FOUR}


class Found(NamedTuple):
    """What a search found: how many right and false strings, and what it took."""

    right: int
    false: int
    held: int  # how many of the right ones' intervals hold the truth, if there are intervals
    seconds: float  # of CPU


class Compared(NamedTuple):
    """What searches of the same population found; with a corpus, if there is one."""

    ours: Found
    told: Found
    taught: Found | None
    known: Found
    bits: Found


class Hints(TypedDict, total=False):
    """What a search is told of the strings."""

    alphabet: str
    corpus: Sequence[str]


@dataclass(frozen=True, slots=True)
class OpenPopulation:
    """A population, how many report once, and at which epsilon; and how ours searches it."""

    population: str
    epsilon: float
    reports: int
    steps: tuple[int, ...] = choose_steps(UNKNOWN_LENGTH)
    room: int | None = None

    @property
    def name(self) -> str:
        return f"{self.population}-{self.epsilon:g}-{self.reports}"

    @property
    def work(self) -> float:
        return float(self.reports)

    def people(self) -> Population:
        return _people(self.population)

    def run(self, number: int) -> Compared:
        people = self.people()
        seeds = seed_of(self.name, number).spawn(5)
        ours, known, bits, told, taught = map(np.random.default_rng, seeds)
        return Compared(
            self._ours(people, self.steps, ours),
            self._ours(people, told_steps(people), told, alphabet="".join(people.values)),
            self._taught(people, taught),
            self._pem(people, Spelling.in_characters(people), known),
            self._pem(people, Spelling.in_bits(people), bits),
        )

    def decoded(
        self,
        people: Population,
        steps: tuple[int, ...],
        rng: np.random.Generator,
        **hints: Unpack[Hints],
    ) -> tuple[Decoding, float]:
        """Return what we find in counts that are drawn, and the seconds of CPU that it takes."""
        goal, chosen = planned(self.epsilon, self.reports, steps)
        metric_type = OpenStringType(goal.steps, chosen.params.m)
        params = chosen.params._replace(m=goal.groups * chosen.params.m)
        counts = draw_counts(people.values, people.shares, params, self.reports, rng, metric_type)
        begun = time.process_time()
        found = decode_open_strings(counts, params, metric_type, room=self.room, **hints)
        return found.decoding, time.process_time() - begun

    def _ours(
        self,
        people: Population,
        steps: tuple[int, ...],
        rng: np.random.Generator,
        **hints: Unpack[Hints],
    ) -> Found:
        decoding, seconds = self.decoded(people, steps, rng, **hints)
        truth = dict(zip(people.values, people.shares.tolist(), strict=True))
        rows = decoding.largest_detected().tolist()
        right = [row for row in rows if decoding.candidates[row] in truth]
        held = sum(
            decoding.low[row] <= truth[decoding.candidates[row]] <= decoding.high[row]
            for row in right
        )
        return Found(len(right), len(rows) - len(right), held, seconds)

    def _taught(self, people: Population, rng: np.random.Generator) -> Found | None:
        corpus = _corpus(self.population)
        if not corpus:
            return None
        return self._ours(people, _corpus_steps(corpus), rng, corpus=corpus)

    def _pem(self, people: Population, spelling: Spelling, rng: np.random.Generator) -> Found:
        begun = time.process_time()
        result = find(spelling, people.shares, self.reports, self.epsilon, rng)
        seconds = time.process_time() - begun
        return Found(len(result.found), result.n_false, 0, seconds)


@cache
def _people(population: str) -> Population:
    return POPULATIONS[population]()


@cache
def _corpus(population: str) -> Sequence[str]:
    return CORPORA[population]() if population in CORPORA else ()


def told_steps(people: Population) -> tuple[int, ...]:
    """Return the planner's steps for what PEM is told: the alphabet, and how long strings are."""
    longest = length_of_most([len(value.encode()) for value in people.values], people.shares)
    return choose_steps(longest, Letters.of_alphabet("".join(people.values)))


def _corpus_steps(corpus: Sequence[str]) -> tuple[int, ...]:
    """Return the planner's steps for a length that a twentieth exceeds, and letters' entropy."""
    counts = Counter("".join(corpus))
    chances = np.array(list(counts.values())) / counts.total()
    width = sum(count * len(letter.encode()) for letter, count in counts.items()) / counts.total()
    lengths = sorted(len(text.encode()) for text in corpus)
    longest = lengths[min(int(0.95 * len(lengths)), len(lengths) - 1)]
    return choose_steps(longest, Letters(float(-chances @ np.log2(chances)), round(width)))


@cache
def planned(epsilon: float, reports: int, steps: tuple[int, ...]) -> tuple[OpenGoal, Plan]:
    goal = OpenGoal(open_test(), steps)
    return goal, plan(goal, Budget(math.inf, epsilon), n_reports=reports).best


def cases() -> tuple[OpenPopulation, ...]:
    """Return all populations at two epsilons and three sizes, identifiers, and four words."""
    return (
        *(
            OpenPopulation(population, epsilon, reports)
            for population in (*TUNED, *HELD_OUT)
            for epsilon in (2.0, 4.0)
            for reports in (10**5, 10**6, 10**7)
        ),
        OpenPopulation("identifiers", 4.0, 400_000),
        *(OpenPopulation(population, 6.0, 30_000) for population in _FOUR),
    )


def _each(of: str) -> Columns:
    """Return columns of right and false strings of a run, and of CPU seconds."""

    def means(runs: Sequence[Compared], *names: str) -> str:
        found = [each for run in runs if (each := getattr(run, of))]
        return "/".join(
            f"{np.mean([getattr(each, name) for each in found]):.1f}" for name in names if found
        )

    return {
        of: lambda _, runs: means(runs, "right", "false"),
        f"{of}, CPU s": lambda _, runs: means(runs, "seconds"),
    }


def share(runs: Sequence[Compared], part: str) -> float:
    """Return the share of our right strings that `held`, or of all that are `false`."""
    total = sum(run.ours.right + run.ours.false * (part == "false") for run in runs)
    return sum(getattr(run.ours, part) for run in runs) / total if total else math.nan


STUDY = Study(
    "Open strings: what is found in populations that look unlike each other, and by PEM",
    """Search populations for strings without a list, and with PEM (arXiv 1708.06674).

    \b
    ours           right and false strings of a run, by the planner's choice for any strings
    told           the same, by its choice for their alphabet and length
    taught         the same, by its choice for public strings like them, if there are any
    known, bits    the same of PEM, told the alphabet or spelling in bits
    false          share of all our strings that nobody holds
    coverage       share of our right strings whose interval holds the truth
    """,
    cases,
    {
        "population": lambda case, _: case.population,
        "epsilon": lambda case, _: f"{case.epsilon:g}",
        "reports": lambda case, _: case.reports,
        **_each("ours"),
        "false": lambda _, runs: share(runs, "false"),
        "coverage": lambda _, runs: share(runs, "held"),
        **_each("told"),
        **_each("taught"),
        **_each("known"),
        **_each("bits"),
    },
    runs=5,
)
