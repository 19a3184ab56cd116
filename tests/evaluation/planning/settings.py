"""The grid on which the theory is measured: wide and narrow filters, loose and tight noise."""

from __future__ import annotations

from evaluation.planning.trials import Setting
from hubbub.planning.limits import DetectionTest, Method
from hubbub.planning.noise import Budget
from hubbub.planning.search import plan
from hubbub.planning.strings import PAPER as PAPER_PLAN
from hubbub.planning.strings import StringsGoal
from hubbub.protocol.params import RapporParams

PAPER = RapporParams(128, 2, 64, 0.5, 0.5, 0.75)
"""The RAPPOR paper's default; in its experiments m was 8 to 64."""

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

GRID = tuple(
    Setting(params, reports, candidates) for params, reports in _GRID for candidates in (1e3, 1e6)
)

LIKELIHOOD = tuple(
    Setting(params, reports, candidates, Method.LIKELIHOOD)
    for params, reports in (
        (RapporParams(8, 2, 128, 0.5, 0.25, 0.75), 200_000),
        (RapporParams(16, 2, 64, 0.5, 0.1, 0.9), 50_000),
        (RapporParams(32, 2, 32, 0.25, 0.2, 0.8), 50_000),
    )
    for candidates in (1e3, 1e6)
)


def contest() -> tuple[Setting, Setting]:
    """Return the paper's default and the plan for its two epsilons, at a million reports."""
    budget = Budget(PAPER.epsilon_permanent, PAPER.epsilon_report)
    found = plan(StringsGoal(DetectionTest(1e5)), budget, n_reports=1e6)
    paper = found.rival(PAPER_PLAN)
    assert paper is not None
    return (
        Setting(paper.params, 1_000_000, 1e5),
        Setting(found.best.params, 1_000_000, 1e5),
    )
