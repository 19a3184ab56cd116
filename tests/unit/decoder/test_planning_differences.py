import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from evaluation.studies.arms import CategoryArms, NumberArms, StringArms
from evaluation.studies.categories import PAPER
from factories import make_params
from hubbub.decoder.cli import main
from hubbub.inference import cell_chances, cell_weights
from hubbub.planning import PlannedComparison, widest_variance, window_within
from parameters import examples

ARMS = (
    CategoryArms(20, PAPER),
    NumberArms(2.0),
    StringArms(make_params(128, 2, 16, f=0.0, p=0.25, q=0.75)),
)


def plan(*arguments):
    return CliRunner().invoke(
        main, ["plan", "compare", "--metrics", "docs/examples/metrics.toml", *arguments]
    )


@examples(20)
@given(
    st.sampled_from(ARMS), st.floats(0.01, 0.5), st.floats(3e4, 1e7), st.booleans(),
)  # fmt: skip
def test_as_many_reports_are_needed_as_find_a_difference(arms, share, reports, sequential):
    goal = PlannedComparison(arms.metric, share, sequential=sequential)
    least = goal.difference(reports)
    assert goal.chance(reports, least) == pytest.approx(0.8, abs=1e-3)
    assert goal.reports_needed(least) == pytest.approx(reports, rel=1e-2)
    once = PlannedComparison(arms.metric, share)
    assert once.reports_needed(least) <= reports * 1.01


def test_no_population_of_numbers_varies_more_than_the_widest():
    """Whatever two numbers clients have, and however many have each."""
    window = window_within(2.0, 32)
    widest = widest_variance(window)
    at = np.linspace(0, 1, 101)
    of_window = window.cells, window.width, window.chance
    squares = np.asarray(cell_chances(*of_window) @ cell_weights(*of_window) ** 2)
    of_each = np.interp(at, np.linspace(0, 1, len(squares)), squares)
    for share in at:
        mean = share * at[:, None] + (1 - share) * at
        variance = share * of_each[:, None] + (1 - share) * of_each - mean**2
        assert variance.max() <= widest * (1 + 1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("theme", "--difference", "0.01"), ["from 543,"]),
        (("theme", "--reports", "1e5", "--sequential"), ["from 100,000 reports", "every day"]),
        (("theme", "--reports", "1e5", "--difference", "0.01"), ["of 1.000% is found"]),
    ],
)  # fmt: skip
def test_a_comparison_is_planned(arguments, expected):
    result = plan(*arguments)
    assert result.exit_code == 0, result.output
    assert all(text in result.output for text in expected), result.output
