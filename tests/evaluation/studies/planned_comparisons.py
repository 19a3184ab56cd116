"""Planned comparisons: how often is a difference found that a plan says is found so often?

Each request is planned by `plan compare` and collected with just the difference that is its limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evaluation.laboratory import Case, seed_of
from evaluation.studies.arms import Arms, CategoryArms, NumberArms, StringArms, draw_arms
from evaluation.studies.categories import LOOSE, PAPER
from evaluation.studies.comparisons import WIDE
from evaluation.studies.study import Study, mean
from hubbub.planning import PlannedComparison


@dataclass(frozen=True)
class PlannedArms:
    """A question to the planner, and what it says."""

    arms: Arms  # what is compared
    reports: int  # in each group
    sequential: bool = False  # whether by always-valid q-values, at the last look
    rows: int | None = None  # of strings: about how many of them are detected

    @property
    def name(self) -> str:
        looks = "every day" if self.sequential else "one look"
        return f"{self.arms.name}, {self.arms.share:.3g}, {looks}"

    @property
    def work(self) -> float:
        return 100.0 if isinstance(self.arms, StringArms) else 1.0

    @cached_property
    def goal(self) -> PlannedComparison:
        """What the planner is asked."""
        return PlannedComparison(
            self.arms.metric,
            self.arms.share,
            rows=self.rows,
            candidates=300,
            sequential=self.sequential,
        )

    @cached_property
    def difference(self) -> float:
        """What the planner says is found."""
        return self.goal.difference(self.reports)

    def run(self, number: int) -> float:
        rng = np.random.default_rng(seed_of(f"{self}", number))
        sizes = self.reports, self.reports
        groups = draw_arms(self.arms, self.difference, sizes, rng, number)
        found = self.arms.compare(groups, number, sequential=self.sequential)
        return float(self.arms.target in np.array(found.names)[found.differs])


CASES: tuple[Case[float], ...] = (
    *(
        PlannedArms(CategoryArms(size, params, share), reports, sequential)
        for size, params, share, reports in (
            (20, PAPER, 0.1, 30_000),
            (20, PAPER, 0.5, 300_000),
            (6, LOOSE, 0.02, 3_000_000),
        )
        for sequential in (False, True)
    ),
    *(
        PlannedArms(NumberArms(2.0), reports, sequential)
        for reports in (10_000, 100_000)
        for sequential in (False, True)
    ),
    *(
        PlannedArms(StringArms(WIDE, share), reports, sequential, rows)
        for share, reports, rows in ((0.05, 100_000, 73), (0.2, 30_000, 29))
        for sequential in (False, True)
    ),
)

STUDY = Study(
    "Planned comparisons: differences that are found",
    """Two groups with the difference that a plan says is found with probability .8, and how often
    it is.""",
    lambda: CASES,
    {
        "compared, the control's share, looks": lambda case, _: case.name,
        "reports in each": lambda case, _: case.reports,
        "planned difference": lambda case, _: f"{case.difference:.3%}",
        "planned": lambda case, _: f"{case.goal.power:.3f}",
        "found": lambda _, trials: mean(trials),
    },
    runs=1_000,
)
