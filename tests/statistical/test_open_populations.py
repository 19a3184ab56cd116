"""Strings that nobody listed, ours beside PEM, in populations that look unlike each other.

`python -m evaluation.studies open-populations` has all populations, with more runs and more room.
"""

import numpy as np
import pytest
from scipy import stats

from evaluation.pem import Spelling, find
from evaluation.studies.open_populations import OpenPopulation, planned
from evaluation.unlike_populations import SCRIPTS, four
from hubbub.inference import variance_of_one
from hubbub.planning import UNKNOWN_LENGTH, choose_steps

RUNS = 4
ROOM = 10_000
ALARM = 1e-6
ANY_STEPS = choose_steps(UNKNOWN_LENGTH)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("spelling", [Spelling.in_characters, Spelling.in_bits])
def test_pem_finds_four_words_of_any_script(script, spelling, rng, monkeypatch):
    """The rarest stands out by more than 10 standard errors: P(false alarm) < 1e-6."""
    monkeypatch.setattr("evaluation.pem.ROOM", 2**14)
    people = four(script)
    assert find(spelling(people), people.shares, 30_000, 6.0, rng).found == (0, 1, 2, 3)


@pytest.mark.long
@pytest.mark.parametrize("script", ["latin", "greek", "cyrillic", "arabic", "hangul", "emoji"])
def test_ours_finds_four_words_of_scripts_it_does_not_know(script):
    """The planner's steps; the rarest stands out by more than 10 errors: P(false alarm) < 1e-6."""
    case = OpenPopulation(f"four-{script}", 6.0, 30_000, room=ROOM)
    assert case.run(1).ours.right == len(four(script).values)


@pytest.mark.long
@pytest.mark.parametrize(
    ("population", "steps", "behind"),
    [
        *((population, ANY_STEPS, 0) for population in ("domains", "modules", "sockets", "places")),
        *((population, (4, 7), 4) for population in ("names", "versions")),
    ],
)
def test_strings_that_stand_out_are_found_whatever_they_look_like(population, steps, behind):
    """Beyond 12 errors of a step's reports, and of few characters behind the last step; seeded.

    Chance takes 5 of them away with a probability below 3e-7 of each of some twenty strings.
    """
    case = OpenPopulation(population, 4.0, 1_000_000, steps)
    people, params = case.people(), planned(4.0, 1_000_000, case.steps)[1].params
    reports = case.reports / (len(case.steps) + 1)
    error = np.sqrt(float(variance_of_one(np.array(1 / params.k), params)) / reports)
    common = {
        value
        for value, share in zip(people.values, people.shares.tolist(), strict=True)
        if share > 12 * error and len(value.encode()) <= case.steps[-1] + behind
    }
    assert len(common) > 5
    decoding, _ = case.decoded(people, case.steps, np.random.default_rng(31))
    assert common <= {decoding.candidates[row] for row in decoding.largest_detected().tolist()}


@pytest.mark.long
def test_ours_finds_more_words_than_pem_and_its_errors_hold():
    """English words of 100,000 clients, some 20 a run; P(false alarm) < 1e-6 of each bound.

    PEM finds some 12 and 8; a run's counts scatter by 2 or 3. Intervals are taken as .93 for what
    normal tails leave.
    """
    case = OpenPopulation("english", 4.0, 100_000, room=ROOM)
    runs = [case.run(number) for number in range(RUNS)]
    ours, known, bits = np.sum(
        [(run.ours.right, run.known.right, run.bits.right) for run in runs], axis=0
    )
    assert ours > max(known, bits)
    false = sum(run.ours.false for run in runs)
    assert false <= stats.binom.isf(ALARM, ours + false, 0.05)
    held = sum(run.ours.held for run in runs)
    assert held >= stats.binom.ppf(ALARM, ours, 0.93)
