"""When a case breaks its bounds: only beyond what chance allows."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from evaluation.suite.bounds import CaseResult, StringsTrial, judge_strings, promises_kept
from hubbub.simulations import Score

GOOD = Score(
    detected=50,
    true_positives=49,
    false_positives=1,
    false_negatives=20,
    total_variation=0.05,
    total_variation_all=0.1,
    interval_coverage=0.95,
    interval_coverage_detected=0.95,
)
NOBODY = replace(GOOD, detected=0, true_positives=0, false_positives=0,
                 interval_coverage_detected=math.nan)  # fmt: skip


def make_trials(*scores: Score, baseline: Score = GOOD, oracle: int = 50) -> list[StringsTrial]:
    return [StringsTrial(1_000, score, baseline, oracle, True, None, 0.1) for score in scores]


def judge(trials: Sequence[StringsTrial], *, is_null: bool = False) -> CaseResult:
    return judge_strings("a case", trials, is_null=is_null)


def broken(*scores: Score, baseline: Score = GOOD, is_null: bool = False) -> tuple[str, ...]:
    return judge(make_trials(*scores, baseline=baseline), is_null=is_null).broken


WORSE = {"total_variation": 0.06, "total_variation_all": 0.12}


@pytest.mark.parametrize(
    ("changed", "runs", "expected"),
    [
        ({}, 10, ()),
        ({"interval_coverage": 0.8}, 10, ("coverage",)),
        ({"interval_coverage": 0.995}, 10, ("coverage",)),
        ({"interval_coverage": 0.8}, 1, ("coverage",)),  # as if names were independent
        ({"interval_coverage": 0.92}, 1, ()),
        # Of 50 names in each of 2 runs: two standard errors below .92 at most.
        ({"interval_coverage_detected": 0.9}, 2, ()),
        ({"interval_coverage_detected": 0.8}, 30, ("coverage of detected",)),
        ({"true_positives": 35, "false_positives": 15}, 10, ("false share",)),
        (WORSE, 5, ("total variation",)),
        (WORSE | {"total_variation": 0.0524}, 5, ()),
        (WORSE | {"total_variation_all": 0.104}, 5, ()),
    ],
)
def test_runs_that_are_worse_than_promised_are_broken(changed, runs, expected):
    assert broken(*[replace(GOOD, **changed)] * runs) == expected


def test_coverage_of_detected_counts_names_not_runs():
    """One run of 1 name missed and nine of 100 held: 900 of 901."""
    one = replace(GOOD, detected=1, interval_coverage_detected=0.0)
    others = [replace(GOOD, detected=100, interval_coverage_detected=1.0)] * 9
    result = judge(make_trials(one, *others))
    assert result.coverage_detected.mean == pytest.approx(900 / 901)


def test_null_case_may_have_a_false_name_now_and_then_but_not_always():
    one = replace(NOBODY, detected=1, false_positives=1, interval_coverage_detected=0.0)
    assert broken(*[NOBODY] * 9, one, is_null=True) == ()
    assert broken(*[NOBODY] * 5, *[one] * 5, is_null=True) == ("names under the null",)


def test_promises_are_kept_if_no_case_breaks_one_and_variation_is_lower_on_average():
    good, worse = (
        judge(make_trials(score, score, baseline=GOOD))
        for score in (replace(GOOD, total_variation=0.02), replace(GOOD, total_variation=0.0524))
    )
    assert promises_kept([good, worse])
    assert not promises_kept([worse, worse])
    broken_case = judge(make_trials(*[replace(GOOD, interval_coverage=0.5)] * 9))
    assert not promises_kept([good, broken_case])


def test_interval_of_the_unknown_mass_that_often_misses_is_broken():
    trials = [replace(trial, unknown_covered=False) for trial in make_trials(*[GOOD] * 5)]
    result = judge(trials)
    assert result.broken == ("unknown mass",)
    assert (result.coverage_unknown.mean, result.coverage_unknown.runs) == (0, 5)


def test_promises_are_broken_if_the_oracle_finds_far_more():
    found = judge(make_trials(*[GOOD] * 5))
    missed = judge(make_trials(*[GOOD] * 5, oracle=100))
    assert promises_kept([found, found])
    assert not promises_kept([found, missed])
