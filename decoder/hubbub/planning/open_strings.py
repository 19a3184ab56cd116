"""Strings that nobody lists as a goal: steps, cells, cohorts and noise, and what they find.

Each of G steps has a G-th of the reports, and a string must pass all of them; its prefixes are at
least as common as itself, so the last step's test decides. That is the limit of listed strings with
N / G reports of one hash, among as many candidates as the decoder's weights amount to. Invariant:
the epsilons are those of one step, since a client answers one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hubbub.inference.errors import PlanError
from hubbub.inference.open_strings.search import LONGEST_END, ROOM_A_STEP
from hubbub.planning.limits import (
    Question,
    detection_limit,
    detection_power,
    fewest_cohorts,
    reports_needed,
    string_errors,
)
from hubbub.planning.noise import Budget
from hubbub.planning.search import Candidates, Comparison, Curve, Plan, fitted_curve
from hubbub.planning.wording import entry_text, share_text
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import MOST_COHORTS, RapporParams
from hubbub.reporting.result import Types

EFFECTIVE_CANDIDATES = 3_000.0
"""A list on which every string had the same weight would be so long; docs/planning.md measures."""

TYPICAL_LENGTH = 8
"""Bytes: first names, words that are typed."""

_STEPS = (4, 7, 10, 14)  # docs/planning.md: fewer are better in theory, but can't be bridged
_SHORT_STEP = 2
_STRINGS = 1e5  # over which Zipf's law is taken: about as many as names in the census
_NEAR_BITS = 1.05  # docs/planning.md: fewer bits make the search quicker, for 5% of the limit
_LISTED = 3 * ROOM_A_STEP  # prefixes that a step looks at, of three steps as names have
_FEWEST_BITS = 64  # the narrowest filter that docs/planning.md measures
_COHORTS = (32, 64, 128, 256, 512, 1024)
_MANY_COHORTS = 256  # with which bits are chosen: what docs/planning.md measures most
_FEWEST_REPORTS_PER_COHORT = 100  # as for listed strings


@dataclass(frozen=True, slots=True)
class OpenGoal:
    """The rarest string that reports show without a list.

    Attributes
    ----------
    steps : tuple of int
        Lengths of the prefixes, in bytes; after them comes the whole string.
    question : Question
        What the last step's test answers (`open_question`).
    """

    steps: tuple[int, ...]
    question: Question

    @property
    def n_steps(self) -> int:
        """G, the last step included."""
        return len(self.steps) + 1

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the smallest share that N reports of all steps together show."""
        return detection_limit(params, n_reports / self.n_steps, self.question)

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of an absent string's share at the last step."""
        return string_errors(params, n_reports / self.n_steps, 0.0, self.question).absent

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which N reports show a share."""
        return detection_power(params, n_reports / self.n_steps, share, self.question)

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return at how many reports of all steps together a share is the limit."""
        return self.n_steps * reports_needed(params, share, self.question)

    def if_listed(self, params: RapporParams, n_reports: float) -> float:
        """Return the limit if a hundred thousand strings were listed and reported whole."""
        return detection_limit(params, n_reports, replace(self.question, candidates=_STRINGS))

    def figures(self, params: RapporParams, n_reports: float) -> Mapping[str, float]:
        """Return the share that a list would show."""
        return {"share_if_listed": self.if_listed(params, n_reports)}

    def candidates(self, budget: Budget, n_reports: float, most_bits: int) -> Sequence[Candidates]:
        """Return powers of two of bits, and cohorts that tell prefixes apart.

        Only where many prefixes can be told apart does the search find anything.
        """
        if most_bits < _FEWEST_BITS:
            raise PlanError(
                f"max-bits = {most_bits}: must be at least {_FEWEST_BITS} for open strings"
            )
        cohorts = _cohorts_that_tell(n_reports / self.n_steps)
        bits = [2**power for power in range(6, int(math.log2(most_bits)) + 1)]
        many = max((m for m in cohorts if m <= _MANY_COHORTS), default=min(cohorts))
        first = (bits[0], many)
        rate = _rate(budget)
        return [Candidates(1, bits, lambda _: cohorts, first, rate, True, _NEAR_BITS)]

    def rivals(
        self, best: Plan, others: Sequence[Plan], budget: Budget, most_bits: int  # noqa: ARG002
    ) -> tuple[Plan, ...]:  # fmt: skip
        """Return none: there is one number of hashes."""
        return ()

    def curves(self, found: Comparison) -> Mapping[str, Curve]:
        """Return the limit without a list and with one."""
        return {
            "detectable_share": fitted_curve("unlisted", self.limit, found.best, _rate),
            "share_if_listed": fitted_curve("if listed", self.if_listed, found.best, _rate),
        }

    @property
    def columns(self) -> Types:
        """The steps, and what a list would show."""
        return {"steps": str, "share_if_listed": float}

    def row(self, plan: Plan) -> Mapping[str, object]:  # noqa: ARG002
        """Return the steps."""
        return {"steps": " ".join(map(str, self.steps))}

    def shown(self, plan: Plan) -> Mapping[str, str]:
        """Return what a list would show."""
        return {"if listed": share_text(plan.figures["share_if_listed"])}

    def asked(self, found: Comparison) -> Mapping[str, object]:  # noqa: ARG002
        """Return error rate, power, and what else sets bits."""
        return {
            "effective_candidates": self.question.candidates,
            "alpha": self.question.alpha,
            "power": self.question.power,
            "concentration": self.question.concentration,
        }

    def title(self, reports: str) -> str:
        """Return what the table is about."""
        steps = ", ".join(map(str, self.steps))
        return f"Smallest share that {reports} reports show unlisted; steps {steps}, m of each step"

    def about_limit(self, plan: Plan) -> Iterator[str]:
        """Yield which share is found, and which would be if the string were listed."""
        question = self.question
        if plan.limit == math.inf:
            yield f"No share is found with probability {question.power:g}."
            return
        listed = share_text(plan.figures["share_if_listed"])
        yield (
            f"A string held by {plan.limit:.3%} is found with probability {question.power:g}, "
            "if it looks like others that are held,"
        )
        yield (
            f"though nobody listed it (alpha {question.alpha:g}); {listed} if 100,000 strings were "
            "listed and all clients reported theirs whole."
        )

    def remarks(self, found: Comparison) -> Iterator[str]:
        """Yield what a report shows of its client, and what can't be found."""
        m, in_step = found.subject.params.m, found.subject.reports / self.n_steps
        cohorts = self.n_steps * m
        yield (
            f"Each of {self.n_steps} steps has {in_step:,.0f} reports, {in_step / m:,.0f} in each "
            "cohort. A client answers one step."
        )
        yield (
            f"Its cohort is one of {cohorts:,}, {math.log2(cohorts):.1f} bits of a pseudonym that "
            "each of its reports shows: no more than needed."
        )
        yield (
            f"Strings of more than {self.steps[-1] + LONGEST_END} bytes can't be found; ends "
            f"beyond {self.steps[-1]} bytes are guessed, so rare or odd ones are missed."
        )

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return the parameters with the cohorts of all steps, of hashed bits."""
        return params._replace(m=self.n_steps * params.m), None

    def entry(self, params: RapporParams, name: str) -> str:
        """Return the entry of an open string metric."""
        steps = f"steps = {list(self.steps)}"
        return entry_text(params, name, "open-string", ("k", "m"), before=[steps])


def open_question(
    alpha: float = 0.05, power: float = 0.9, concentration: float | None = None
) -> Question:
    """Return the question that the last step's test answers.

    Parameters
    ----------
    alpha, power, concentration
        As `Question` has them.

    Raises
    ------
    PlanError
        If a number is out of range.
    """
    return Question(
        EFFECTIVE_CANDIDATES, alpha, power, concentration=concentration, strings=_STRINGS
    )


def choose_steps(length: int) -> tuple[int, ...]:
    """Return steps for strings of a typical length in bytes: 4, 7, 10 and 14, as far as it goes.

    Raises
    ------
    PlanError
        If it isn't at least 1.
    """
    if length < 1:
        raise PlanError(f"longest = {length}: must be at least 1 byte")
    return tuple(step for step in _STEPS if step < length) or (_SHORT_STEP,)


def open_params(metric: Metric) -> tuple[tuple[int, ...], RapporParams]:
    """Return the steps of an open string metric, and the parameters of one.

    Raises
    ------
    PlanError
        If it is of another type.
    """
    if not isinstance(metric.type, OpenStringType):
        raise PlanError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: must be 'open-string' to be "
            "planned as open"
        )
    return metric.type.steps, metric.type.step_params(metric.params)


def check_cohorts(steps: tuple[int, ...], m: int) -> None:
    """Refuse more cohorts per step than fit a report (raises PlanError)."""
    most = MOST_COHORTS // (len(steps) + 1)
    if m > most:
        raise PlanError(
            f"m = {m}: must be at most {most}, the cohorts of each of {len(steps) + 1} steps"
        )


def _cohorts_that_tell(n_reports: float) -> list[int]:
    """Return numbers of cohorts with which a step can tell apart what it looks at.

    Each has a hundred reports or more, if any number has.
    """
    fewest = fewest_cohorts(_FEWEST_BITS, 1, 0.05 / _LISTED)
    enough = [m for m in _COHORTS if m >= fewest]
    full = [m for m in enough if n_reports / m >= _FEWEST_REPORTS_PER_COHORT]
    return full or enough[:1]


def _rate(budget: Budget) -> float | None:
    """Return q* of one-time reports: 1/2, whose variance is least (Wang et al. 2017)."""
    return 0.5 if budget.permanent == math.inf else None
