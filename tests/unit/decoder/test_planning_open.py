"""Plans for strings that nobody lists: their steps, cells and cohorts."""

import math

import pytest
from hypothesis import given, strategies as st

from hubbub.inference import PlanError
from hubbub.planning import (
    PLAIN,
    Budget,
    Letters,
    OpenGoal,
    Plan,
    choose_steps,
    detection_limit,
    fewest_cohorts,
    make_plan,
    open_test,
    plan,
)
from hubbub.protocol import RapporParams
from parameters import examples

ONE_TIME = Budget(math.inf, 4.0)
GOAL = OpenGoal(open_test(), (4, 7))


def planned(budget: Budget = ONE_TIME, n_reports: float = 1e6) -> Plan:
    return plan(GOAL, budget, n_reports=n_reports).best


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_one_time_plans_are_optimal_unary_encoding(epsilon):
    best = planned(Budget(math.inf, epsilon), 1e8)
    assert best.params.h == 1
    assert best.params.q == 0.5
    assert best.params.p == pytest.approx(1 / (math.exp(epsilon) + 1), rel=0.01)


@pytest.mark.parametrize("n_reports", [3e3, 1e5, 1e6, 1e8])
@pytest.mark.parametrize("budget", [ONE_TIME, Budget(6.0, 3.0)], ids=str)
def test_cells_are_a_power_of_two_and_cohorts_distinguish_candidates(budget, n_reports):
    """A step looks at 300,000 prefixes and more."""
    params = planned(budget, n_reports).params
    assert math.log2(params.k).is_integer()
    assert params.m >= fewest_cohorts(params.k, 1, 0.05 / 3e5)
    assert n_reports / 3 / params.m >= 100 or params.m == 32


@examples(20)
@given(st.floats(4, 8), st.floats(1.1, 5.0), st.integers(1, 7))
def test_a_step_has_its_part_of_the_reports_and_the_epsilon_of_all(log_reports, epsilon, prefixes):
    """So more steps show less in theory, exactly as fewer reports do."""
    params = RapporParams(256, 1, 64, 0.0, 1 / (math.exp(epsilon) + 1), 0.5)
    goal, n = OpenGoal(open_test(), tuple(range(2, 2 + prefixes))), 10**log_reports
    made = make_plan(goal, "", params, n)
    assert made.limit == detection_limit(params, n / (prefixes + 1), goal.test)
    if made.limit < 1:
        assert goal.reports_needed(params, made.limit) == pytest.approx(n, rel=1e-3)


@pytest.mark.parametrize(
    ("length", "steps"),
    [(1, (2,)), (4, (2,)), (5, (4,)), (8, (4, 7)), (12, (4, 7, 10)), (40, (4, 7, 10, 14, 18, 22))],
)
def test_steps_follow_from_how_long_strings_are(length, steps):
    """Of plain letters; where none are known the first step is one that leaves nothing out."""
    assert choose_steps(length, PLAIN) == steps
    of_any = choose_steps(length)
    assert of_any[0] == 2
    assert len(of_any) == 1 or of_any[-1] < length


@pytest.mark.parametrize(
    ("alphabet", "steps"),
    [
        ("0123456789abcdef", (4, 7, 10, 14, 18, 22)),
        ("0123456789", (5, 9, 13, 18, 23, 28)),
        ("абвгдеёжзийклмнопрстуфхцчшщъыьэюя", (6, 10, 14, 20, 26, 32)),
        ("".join(map(chr, range(0x4E00, 0x5E00))), (3, 6, 9, 12, 15, 18)),
        ("a", (19, 34)),
    ],
)
def test_steps_end_between_characters_and_add_what_can_be_looked_at(alphabet, steps):
    assert choose_steps(40, Letters.of_alphabet(alphabet)) == steps


def test_an_alphabet_of_unlike_characters_says_nothing_about_steps():
    assert Letters.of_alphabet("abcdefgh\u5317\u4eac") is None
    assert Letters.of_alphabet("abcdef\u00e4\u00df") == Letters(3.0, 2)


def test_no_length_is_refused():
    with pytest.raises(PlanError, match="longest = 0: must be at least 1 byte"):
        choose_steps(0)
