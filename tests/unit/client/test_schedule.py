"""When periods begin, and which metric of a group a client answers."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from factories import APPLICATION, make_metric, make_params, make_secret
from hubbub.client.schedule import chosen, first_day, period_at
from hubbub.protocol import SECONDS_A_DAY, Group, most_answers

CLIENTS = 4000
ONCE = make_metric("crash", mode="once", params=make_params(f=0.0), period_days=5)


def group(*metrics, choice="life"):
    return Group("mood", metrics, choice)


def days_of(metric, number, periods=range(4000, 4004)):
    """Return on which days of the calendar's periods a client's begin."""
    secret = make_secret(number)
    return tuple(first_day(metric, secret, n) - n * metric.period_days for n in periods)


def test_each_day_begins_the_periods_of_an_equal_share_of_clients():
    """Chi-squared of 4 degrees of freedom; P(> 41) < 3e-8, and the clients are fixed."""
    days = Counter(days_of(ONCE, client)[0] for client in range(CLIENTS))
    assert set(days) == set(range(5))
    expected = CLIENTS / 5
    assert sum((n - expected) ** 2 / expected for n in days.values()) < 41


def test_two_periods_begin_on_independent_days():
    """Chi-squared of 24 degrees of freedom; P(> 87) < 4e-9, and the clients are fixed."""
    pairs = Counter(days_of(ONCE, client)[:2] for client in range(CLIENTS))
    expected = CLIENTS / 25
    assert sum((pairs[d, e] - expected) ** 2 / expected for d in range(5) for e in range(5)) < 87


@given(day=st.integers(-100, 40_000), client=st.integers(0, 30))
def test_a_period_lasts_until_the_next_begins(day, client):
    secret = make_secret(client)
    number, first, end = period_at(ONCE, secret, day * SECONDS_A_DAY + 3600)
    assert first == first_day(ONCE, secret, number) <= day
    assert day < first_day(ONCE, secret, number + 1) == end


@pytest.mark.parametrize("size", [2, 3, 7])
def test_each_metric_of_a_group_is_chosen_by_an_equal_share_of_clients(size):
    """Chi-squared of 1, 2 and 6 degrees of freedom; P(> 45) < 5e-8, and the clients are fixed."""
    names = group(*(f"m{i}" for i in range(size)))
    found = Counter(chosen(names, APPLICATION, make_secret(c)) for c in range(CLIENTS))
    expected = CLIENTS / size
    assert sum((found[name] - expected) ** 2 / expected for name in names.metrics) < 45


def test_a_metric_that_joins_a_group_moves_only_the_clients_that_choose_it():
    before, after = group("a", "b"), group("b", "c", "a")
    moved: Counter[tuple[str, str]] = Counter()
    for client in range(300):
        secret = make_secret(client)
        old, new = (chosen(each, APPLICATION, secret) for each in (before, after))
        assert new in {old, "c"}
        moved[old, new] += 1
    assert moved["a", "c"] > 0
    assert moved["b", "c"] > 0


def test_a_choice_for_periods_is_made_again_in_each_and_one_for_life_is_not():
    lasting, changing = group("a", "b"), group("a", "b", choice="period")
    secret = make_secret()
    assert len({chosen(lasting, APPLICATION, secret, period) for period in range(64)}) == 1
    assert len({chosen(changing, APPLICATION, secret, period) for period in range(64)}) == 2


@given(client=st.integers(0, 60), start=st.integers(20_000, 20_040), days=st.integers(1, 40))
def test_no_more_periods_are_answered_in_some_days_than_is_stated(client, start, days):
    secret = make_secret(client)
    periods = {
        period_at(ONCE, secret, day * SECONDS_A_DAY)[0] for day in range(start, start + days)
    }
    assert len(periods) <= most_answers(days, ONCE.period_days, "once")


def test_three_periods_may_be_answered_in_three_days():
    assert [most_answers(days, 30, "once") for days in (1, 2, 3, 32, 33)] == [1, 2, 3, 3, 4]
    assert [most_answers(days, 30, "longitudinal") for days in (1, 2, 31, 32)] == [1, 2, 2, 3]
