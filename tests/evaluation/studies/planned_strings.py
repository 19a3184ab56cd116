"""The planner's theory against simulation: at the predicted limit, how often is a string found?

Strings are planted at the share that the theory calls the limit, decoded, and counted if found. The
level of one test is that of the question, alpha / n, whatever the number of strings that are really
decoded: so a million candidates cost no more than fifty (docs/measured/planning.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from evaluation.drawn_counts import draw_counts
from evaluation.studies.cases import draw_records
from evaluation.studies.study import Study
from hubbub.decoder import CohortCounts, Correction, Decoding, count_records, decode
from hubbub.inference.candidates import hashed
from hubbub.inference.likelihood.decoding import decode_reports
from hubbub.inference.packed import pack
from hubbub.planning.limits import DetectionMethod, DetectionTest, detection_limit
from hubbub.planning.noise import Budget
from hubbub.planning.search import plan
from hubbub.planning.strings import PAPER as PAPER_PLAN
from hubbub.planning.strings import StringsGoal
from hubbub.protocol.params import RapporParams

_MOST_PLANTED = 10
_MOST_MASS = 0.4  # of all planted strings together
_UNLISTED, _ABSENT = 300, 30
PAPER = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
"""The RAPPOR paper's default; in its experiments m was 8 to 64."""


class Planted(NamedTuple):
    """Planted strings that were found, of how many."""

    found: int
    planted: int


@dataclass(frozen=True, slots=True)
class PlannedStrings:
    """Parameters, reports and candidates, for which the planner predicts a limit."""

    params: RapporParams
    reports: int
    candidates: float
    method: DetectionMethod = DetectionMethod.REGRESSION

    @property
    def name(self) -> str:
        """What tells it from the others."""
        size = "x".join(map(str, self.params[:3]))
        return f"{size}-{self.reports}-{self.candidates:.0f}-{self.method.value}"

    @property
    def work(self) -> float:
        """About how long a trial takes."""
        return 1e6 + self.reports * (self.method is DetectionMethod.LIKELIHOOD) * 100

    @property
    def question(self) -> DetectionTest:
        """The question, with the concentration of the strings that are really unlisted."""
        question = DetectionTest(self.candidates, method=self.method, concentration=0.0)
        for _ in range(5):  # what the unlisted hold depends on what is planted
            limit = detection_limit(self.params, self.reports, question)
            rest = 1 - _planted(limit) * limit
            question = replace(question, concentration=rest**2 / _UNLISTED)
        return question

    @property
    def limit(self) -> float:
        """The share that the theory predicts to be found with the question's power."""
        return detection_limit(self.params, self.reports, self.question)

    def run(self, number: int) -> Planted:
        """Simulate one collection."""
        rng = np.random.default_rng(number)
        limit, planted = self.limit, _planted(self.limit)
        names = [f"{number} planted {i}" for i in range(planted)]
        values = (*names, *(f"{number} unlisted {i}" for i in range(_UNLISTED)))
        rest = (1 - planted * limit) / _UNLISTED
        shares = np.concatenate([np.full(planted, limit), np.full(_UNLISTED, rest)])
        candidates = [*names, *(f"{number} absent {i}" for i in range(_ABSENT))]
        if self.method is DetectionMethod.LIKELIHOOD:
            held = rng.choice(len(shares), size=self.reports, p=shares)
            records = draw_records(values, held, self.params, rng)
            counted = self._decode(count_records(records, self.params), candidates)
            listed = hashed(candidates, self.params)
            reports = pack([records], self.params)
            decoding = decode_reports(reports, counted, listed, reason="asked for", threads=1)
        else:
            counts = draw_counts(values, shares, self.params, self.reports, rng)
            decoding = self._decode(counts, candidates)
        return Planted(int(decoding.detected[:planted].sum()), planted)

    def _decode(self, counts: CohortCounts, candidates: list[str]) -> Decoding:
        alpha = self.question.level * len(candidates)
        bonferroni = Correction.BONFERRONI
        return decode(counts, self.params, candidates, alpha=alpha, correction=bonferroni)


def _planted(limit: float) -> int:
    return max(1, min(_MOST_PLANTED, int(_MOST_MASS / limit))) if math.isfinite(limit) else 1


_GRID = (
    (PAPER, 1_000_000),
    (RapporParams(128, 2, 64, 0.5, 0.25, 0.75), 200_000),
    (RapporParams(128, 1, 64, 0.2, 0.05, 0.75), 100_000),
    (RapporParams(128, 1, 64, 0.2, 0.05, 0.75), 10_000),
    (RapporParams(1024, 1, 64, 0.2, 0.23, 0.54), 1_000_000),
    (RapporParams(32, 1, 64, 0.25, 0.2, 0.8), 100_000),
    (RapporParams(32, 2, 16, 0.25, 0.2, 0.8), 100_000),
    (RapporParams(64, 2, 16, 0.2, 0.05, 0.6), 10_000),
    (RapporParams(8, 1, 128, 0.25, 0.35, 0.65), 500_000),
    (RapporParams(8, 2, 128, 0.5, 0.25, 0.75), 1_000_000),
    (RapporParams(16, 4, 64, 0.5, 0.25, 0.75), 1_000_000),
    (RapporParams(256, 4, 16, 0.5, 0.1, 0.9), 100_000),
    (RapporParams(256, 8, 8, 0.5, 0.1, 0.9), 100_000),
)
"""Wide and narrow filters, loose and tight noise."""
_WHOLE = (
    (RapporParams(8, 2, 128, 0.5, 0.25, 0.75), 200_000),
    (RapporParams(16, 2, 64, 0.5, 0.1, 0.9), 50_000),
    (RapporParams(32, 2, 32, 0.25, 0.2, 0.8), 50_000),
)
"""Decoded by the likelihood, which needs more time."""


def cases() -> tuple[PlannedStrings, ...]:
    """Return the grid, and at last the paper's default and the plan for its two epsilons."""
    budget = Budget(PAPER.epsilon_permanent, PAPER.epsilon_report)
    found = plan(StringsGoal(DetectionTest(1e5)), budget, n_reports=1e6)
    paper = found.rival(PAPER_PLAN)
    assert paper is not None
    return (
        *(PlannedStrings(*each, candidates) for each in _GRID for candidates in (1e3, 1e6)),
        *(
            PlannedStrings(*each, candidates, DetectionMethod.LIKELIHOOD)
            for each in _WHOLE
            for candidates in (1e3, 1e6)
        ),
        *(PlannedStrings(each.params, 1_000_000, 1e5) for each in (paper, found.best)),
    )


def limit_ratio(found: float, case: PlannedStrings) -> float:
    """Return measured over predicted limit, from how many of the strings at the latter are found.

    They are found with probability Phi(z_power) if the limit is where it should be;
    the distance in standard errors, z_level + z, tells how far off it is.
    """
    question = case.question
    level = float(stats.norm.isf(question.level))
    wanted = level + float(stats.norm.ppf(question.power))
    seen = level + float(stats.norm.ppf(min(max(found, 1e-3), 1 - 1e-3)))
    return wanted / seen


def share_found(trials: Sequence[Planted]) -> float:
    """Return the share of all planted strings that were found."""
    return sum(trial.found for trial in trials) / sum(trial.planted for trial in trials)


def _ratio(case: PlannedStrings, trials: Sequence[Planted]) -> str:
    found, planted = share_found(trials), sum(trial.planted for trial in trials)
    error = float(np.sqrt(found * (1 - found) / planted))
    low, high = (limit_ratio(found + sign * error, case) for sign in (1, -1))
    return f"{limit_ratio(found, case):.3f} ± {(high - low) / 2:.3f}"


def _gain(chosen: Sequence[PlannedStrings], trials: Sequence[Sequence[Planted]]) -> tuple[str, ...]:
    """Say what the plan gains, if both it and the paper's default were asked for."""
    if len(chosen) < 2 or chosen[-2].params != PAPER:
        return ()
    paper, planned = (
        case.limit * limit_ratio(share_found(each), case)
        for case, each in zip(chosen[-2:], trials[-2:], strict=True)
    )
    gain = paper / planned
    return (f"The plan's limit is {gain:.2f} times as small as the paper's default's.",)


STUDY = Study(
    "Strings planted at the limit that the theory predicts",
    """Plant strings at the limit that the theory predicts, decode, and count those that are found.

    \\b
    found  share of the planted strings that were detected; predicted is 0.9
    ratio  of the limit that follows from it to the predicted one; to be within 0.9 and 1.1

    The last two lines are the RAPPOR paper's default and the plan for its two epsilons: the ratio
    of their limits is what the plan gains.
    """,
    cases,
    {
        "k, h, m": lambda case, _: ", ".join(map(str, case.params[:3])),
        "f, p, q": lambda case, _: ", ".join(f"{x:g}" for x in case.params[3:6]),
        "reports": lambda case, _: case.reports,
        "candidates": lambda case, _: f"{case.candidates:,.0f}",
        "method": lambda case, _: case.method.value,
        "predicted": lambda case, _: f"{case.limit:.3%}",
        "found": lambda _, trials: f"{share_found(trials):.3f}",
        "ratio": _ratio,
    },
    runs=40,
    notes=_gain,
)
