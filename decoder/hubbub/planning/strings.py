"""Strings as a goal: of a list, or found prefix by prefix without one.

Without a list each of G steps has a G-th of the reports, and a string must pass all of them; its
prefixes are at least as common as itself, so the last step's test decides (of long strings: more
reports test shorter ones). That is the limit of listed strings with N / G reports, among as many
candidates as the decoder's weights amount to. Invariant: the epsilons are those of one step, since
a client answers one.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

from scipy import special

from hubbub.inference import LONGEST_END, ROOM_A_STEP, PlanError
from hubbub.planning.goals import Goal, Plan, SearchSpace, entry_text, wrong_type
from hubbub.planning.limits import DetectionTest, fewest_cohorts
from hubbub.planning.noise import Budget
from hubbub.protocol import LONGEST_STEP, MOST_COHORTS, Metric, OpenStringType, RapporParams
from hubbub.reporting import Finding, Level

_MOST_COHORTS = 1024  # 16 times as many lower the limit by under 1%; by 5% at (8, 6), 1e9 reports
_REPORTS_PER_COHORT = 100  # fewer are outside of what docs/understand/planning.md measures
# How many times z^2 a plan's positions, h m, are at least. With 2 the promised .90 was .84 and .85,
# with 2.5 or more .89 to .92 (docs/measured/planning.md, Promised and found).
_NEAR_NORMAL = 2.5
# Steps of a third to a half: the limit is flat in m, and `NEAR_BEST` takes the first that will do.
_COHORTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_FIRST_BITS, _FIRST_COHORTS = 256, 64  # q* sought there is within 1% of the best; at 64, 16 not


@dataclass(frozen=True, slots=True)
class StringsGoal(Goal):
    """The rarest string of a list that reports show."""

    def space(self, budget: Budget, n_reports: float, most_bits: int) -> SearchSpace:  # noqa: ARG002
        """Return all multiples of 8 bits and some numbers of cohorts."""
        k = min(_FIRST_BITS, most_bits)
        return SearchSpace(
            range(8, most_bits + 1, 8),
            lambda bits: sorted({self._cohorts(m, bits, n_reports) for m in _COHORTS}),
            (k, self._cohorts(_FIRST_COHORTS, k, n_reports)),
        )

    def _cohorts(self, wanted: int, k: int, n_reports: float) -> int:
        most = min(int(n_reports / _REPORTS_PER_COHORT), _MOST_COHORTS)
        fewest = fewest_cohorts(k, 1, self.test.level)
        needed = _NEAR_NORMAL * special.ndtri(self.test.level) ** 2
        near_normal = next((m for m in _COHORTS if m >= needed), _MOST_COHORTS)
        return min(max(fewest, min(max(wanted, near_normal), most)), _MOST_COHORTS)

    def asked(self) -> Mapping[str, object]:
        """Return candidates, error rate and power."""
        return {"candidates": self.test.candidates, **super(StringsGoal, self).asked()}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        return f"Smallest share that {reports} reports show"

    def about_limit(self, plan: Plan) -> str:
        """Return which share is detected, among how many strings."""
        test = self.test
        string = f"A string held by {plan.limit:.3%} is" if plan.limit < math.inf else "No share is"
        return (
            f"{string} detected among {test.candidates:,.0f} candidates with probability "
            f"{test.power:g} (alpha {test.alpha:g}, Bonferroni)."
        )

    def remarks(self, plan: Plan) -> Iterator[Finding]:
        """Yield whether there are too few cohorts, and sizes."""
        params, level = plan.params, self.test.level
        if params.m < (fewest := fewest_cohorts(params.k, params.h, level)):
            text = (
                f"m = {params.m}: with fewer than {fewest} cohorts, no test at this level works as "
                "the theory assumes; it finds less than stated here."
            )
            yield Finding("few_cohorts", "", text, fewest, Level.WARNING)
        in_each = plan.reports / params.m
        text = f"Each cohort has {in_each:,.0f} reports."
        yield Finding("reports_per_cohort", "", text, in_each)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of a string metric."""
        return entry_text(params, name, "string", schedule=self.schedule)


def string_params(metric: Metric) -> RapporParams:
    """Return the parameters of a metric whose values are hashed and looked for in a list."""
    if isinstance(metric.type, OpenStringType):
        raise wrong_type(metric, "its strings stand in no list; plan it as open")
    if metric.type.width is not None:
        reason = "must be a type whose values are looked for among candidates, such as 'string'"
        raise wrong_type(metric, reason)
    return metric.params


EFFECTIVE_CANDIDATES = 3_000.0
"""A list on which every string had the same weight would be so long; docs/understand/planning.md
measures."""

UNKNOWN_LENGTH = 16
"""Bytes that hardly any string exceeds, by default: words of two bytes per letter."""

# For strings of which nothing is known: all beginnings of the first step can be looked at, whatever
# they are written in, and what is found there is learned from before more is added at once.
_ANY_STEPS = (2, 4, 7, 10, 14, 18, 22)
# Bits that each step adds to strings of letters that are equally likely: 4, 3, 3, 4, 4 and 4 of the
# alphabet (docs/understand/planning.md: fewer steps are better in theory, but can't be bridged).
_STEP_BITS = (19, 15, 15, 19, 19, 19)
# In German, of one byte and two, steps of whole characters find as much as those for any strings;
# in a mixture of scripts with one byte and three they find a third.
_MOST_UNLIKE = 2
_SHORT_STEP = 2  # bytes, where even the first step would be as long as all strings
_STRINGS = 1e5  # over which Zipf's law is taken: about as many as names in the census
# Fewer bits make the search quicker, for 3% of the limit (docs/understand/planning.md).
_NEAR_BITS = 1.03
_LISTED = 3 * ROOM_A_STEP  # prefixes that a step looks at, of three steps as names have
_FEWEST_BITS = 64  # the narrowest filter that docs/understand/planning.md measures
_OPEN_COHORTS = (32, 64, 128, 256, 512, 1024)  # doubled: the limit is flat around the best
_MANY_COHORTS = 256  # with which bits are chosen: what docs/understand/planning.md measures most
_FEWEST_REPORTS_PER_COHORT = 100  # as for listed strings


class Letters(NamedTuple):
    """The alphabet that strings are written in."""

    bits: float  # information of a character: log2 of their number, if all are equally common
    width: int  # bytes of a character, at most or in general

    @classmethod
    def of_alphabet(cls, alphabet: str) -> Self | None:
        """Return those of an alphabet if its characters have as many bytes as each other."""
        characters = set(alphabet)
        widths = [len(each.encode()) for each in characters]
        if max(widths) > _MOST_UNLIKE * min(widths):
            return None
        return cls(math.log2(len(characters)), max(widths))


PLAIN = Letters.of_alphabet(string.ascii_lowercase)


@dataclass(frozen=True, slots=True)
class OpenGoal(Goal):
    """The rarest string that reports show without a list (`test` is `open_test`)."""

    steps: tuple[int, ...]  # lengths of the prefixes, in bytes; after them comes the whole string

    @property
    def groups(self) -> int:
        """G, the last step included."""
        return len(self.steps) + 1

    def space(self, budget: Budget, n_reports: float, most_bits: int) -> SearchSpace:
        """Return powers of two of bits, and cohorts with which prefixes differ."""
        if most_bits < _FEWEST_BITS:
            raise PlanError(
                f"max-bits = {most_bits}: must be at least {_FEWEST_BITS} for open strings"
            )
        # Cohorts that separate prefixes, with a hundred reports each if possible.
        fewest = fewest_cohorts(_FEWEST_BITS, 1, 0.05 / _LISTED)
        enough = [m for m in _OPEN_COHORTS if m >= fewest]
        fullest = n_reports / self.groups / _FEWEST_REPORTS_PER_COHORT
        cohorts = [m for m in enough if m <= fullest] or enough[:1]
        bits = [2**power for power in range(6, int(math.log2(most_bits)) + 1)]
        many = max((m for m in cohorts if m <= _MANY_COHORTS), default=min(cohorts))
        first = (bits[0], many)
        rate = 0.5 if budget.permanent == math.inf else None
        return SearchSpace(bits, lambda _: cohorts, first, rate, _NEAR_BITS)

    def asked(self) -> Mapping[str, object]:
        """Return the steps, error rate and power."""
        return {"steps": list(self.steps), **super(OpenGoal, self).asked()}

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        steps = ", ".join(map(str, self.steps))
        return f"Smallest share that {reports} reports show unlisted; steps {steps}, m of each step"

    def about_limit(self, plan: Plan) -> str:
        """Return which share is found."""
        share = "No share" if plan.limit == math.inf else f"A string held by {plan.limit:.3%}"
        return (
            f"{share} is found with probability {self.test.power:g} (alpha {self.test.alpha:g}), "
            "if it looks like others that are held."
        )

    def remarks(self, plan: Plan) -> Iterator[Finding]:
        """Yield what a report shows of its client, and what can't be found."""
        in_step, m = plan.reports / self.groups, plan.params.m
        text = (
            f"Each of {self.groups} steps has {in_step:,.0f} reports, {in_step / m:,.0f} in each "
            "cohort. A client answers one step; its reports show its cohort, one of "
            f"{self.groups * m:,}."
        )
        yield Finding("reports_per_step", "", text, in_step)
        longest = self.steps[-1] + LONGEST_END
        text = (
            f"Strings of more than {longest} bytes can't be found; endings beyond "
            f"{self.steps[-1]} bytes are guessed, so rare or odd ones are missed."
        )
        yield Finding("longest_string", "", text, longest)

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of an open string metric."""
        steps = f"steps = {list(self.steps)}"
        return entry_text(params, name, "open-string", ("k", "m"), self.schedule, before=[steps])


def open_test(alpha: float = 0.05, power: float = 0.9) -> DetectionTest:
    """Return the test that the last step's test answers."""
    return DetectionTest(EFFECTIVE_CANDIDATES, alpha, power, strings=_STRINGS)


def choose_steps(longest: int, letters: Letters | None = None) -> tuple[int, ...]:
    """Return steps for strings that are hardly ever longer than so many bytes.

    All are below that, but for one that must be: 4, 7, 10, 14, 18 and 22 of `PLAIN` letters.
    """
    if longest < 1:
        raise PlanError(f"longest = {longest}: must be at least 1 byte")
    steps: Iterable[int] = _ANY_STEPS
    if letters:
        added = [max(1, int(bits / max(letters.bits, 1.0))) for bits in _STEP_BITS]
        steps = (letters.width * characters for characters in accumulate(added))
    return tuple(step for step in steps if step < min(longest, LONGEST_STEP)) or (_SHORT_STEP,)


def open_params(metric: Metric) -> tuple[tuple[int, ...], RapporParams]:
    """Return the steps of an open string metric, and the parameters of one."""
    if not isinstance(metric.type, OpenStringType):
        raise wrong_type(metric, "must be 'open-string' to be planned as open")
    return metric.type.steps, metric.type.step_params(metric.params)


def check_cohorts(steps: tuple[int, ...], m: int) -> None:
    """Refuse more cohorts per step than fit a report (raises PlanError)."""
    most = MOST_COHORTS // (len(steps) + 1)
    if m > most:
        raise PlanError(
            f"m = {m}: must be at most {most}, the cohorts of each of {len(steps) + 1} steps"
        )
