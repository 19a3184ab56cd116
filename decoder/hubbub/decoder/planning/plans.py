"""Parameters beside what they achieve, and the outcome of a search."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.decoder.planning.limits import Question, detection_limit
from hubbub.decoder.planning.noise import Budget, count_variance, oue_variance
from hubbub.protocol.params import RapporParams


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters, and what they achieve.

    Attributes
    ----------
    name : str
    params : RapporParams
    reports : float
        N.
    limit : float
        Share that N reports show with the question's power; infinite if none.
    """

    name: str
    params: RapporParams
    reports: float
    limit: float

    @property
    def oue_ratio(self) -> float:
        """How much more an absent string's estimate varies than the best one-hot noise's.

        Both at the report's epsilon; without collisions (Wang et al. 2017).
        """
        return count_variance(self.params) / oue_variance(self.params.epsilon_report)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a search found.

    Attributes
    ----------
    question : Question
    budget : Budget
    best : Plan
    by_hashes : tuple of Plan
        The best of each h that can be had.
    paper : Plan or None
        The RAPPOR paper's default moved to the same epsilons; None if that can't be.
    simple : Plan or None
        The best with round numbers, if there are any within the budget.
    """

    question: Question
    budget: Budget
    best: Plan
    by_hashes: tuple[Plan, ...]
    paper: Plan | None
    simple: Plan | None


def make_plan(name: str, params: RapporParams, n_reports: float, question: Question) -> Plan:
    """Return parameters with what they achieve."""
    return Plan(name, params, n_reports, detection_limit(params, n_reports, question))
