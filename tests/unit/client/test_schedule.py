"""When periods begin, and which metric of a group a client answers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import APPLICATION, make_metric, make_params, make_secret
from hubbub.client.schedule import chosen, phase
from hubbub.protocol.metrics import SECONDS_A_DAY
from hubbub.protocol.registry import Group

CLIENTS = 4000
ONCE = make_metric("crash", mode="once", params=make_params(f=0.0), period_days=5)


def group(*metrics, choice="life"):
    return Group("mood", metrics, choice)


def test_each_day_begins_the_periods_of_an_equal_share_of_clients():
    """Chi-squared of 4 degrees of freedom; P(> 41) < 3e-8, and the clients are fixed."""
    phases = Counter(phase(ONCE, make_secret(client)) for client in range(CLIENTS))
    assert set(phases) == set(range(5))
    expected = CLIENTS / 5
    assert sum((n - expected) ** 2 / expected for n in phases.values()) < 41


def test_versions_share_a_phase_and_metrics_do_not():
    secrets = [make_secret(client) for client in range(40)]
    phases = [phase(ONCE, secret) for secret in secrets]
    assert [phase(ONCE._replace(version=2), secret) for secret in secrets] == phases
    assert [phase(ONCE._replace(name="page"), secret) for secret in secrets] != phases


def test_metrics_of_a_group_share_a_phase():
    one, other = (make_metric(name, mode="once", params=make_params(f=0.0), period_days=30)
                  for name in ("a", "b"))  # fmt: skip
    for client in range(20):
        secret = make_secret(client)
        phases = {phase(metric._replace(group="mood"), secret) for metric in (one, other)}
        assert len(phases) == 1


def test_periods_of_a_permanent_response_are_those_of_the_calendar():
    monthly = make_metric(period_days=30)
    assert {phase(monthly, make_secret(client)) for client in range(20)} == {0}


@given(days=st.integers(0, 40_000), shift=st.integers(0, 4))
def test_a_phase_moves_the_days_on_which_periods_begin(days, shift):
    now = days * SECONDS_A_DAY + 3600
    begins = ONCE.period(now, shift) > ONCE.period(now - SECONDS_A_DAY, shift)
    assert begins == ((days + shift) % 5 == 0)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_each_metric_of_a_group_is_chosen_by_an_equal_share_of_clients(size):
    """Chi-squared of 1, 2 and 6 degrees of freedom; P(> 45) < 5e-8, and the clients are fixed."""
    names = group(*(f"m{i}" for i in range(size)))
    found = Counter(chosen(names, APPLICATION, make_secret(c)) for c in range(CLIENTS))
    expected = CLIENTS / size
    assert sum((found[name] - expected) ** 2 / expected for name in names.metrics) < 45


def test_a_metric_that_joins_a_group_moves_only_the_clients_that_choose_it():
    before, after = group("a", "b"), group("b", "c", "a")
    moved = Counter()
    for client in range(300):
        secret = make_secret(client)
        old, new = (chosen(each, APPLICATION, secret) for each in (before, after))
        assert new in {old, "c"}
        moved[old, new] += 1
    assert moved["a", "c"] > 0
    assert moved["b", "c"] > 0


def test_a_choice_for_periods_is_made_anew_in_each_and_one_for_life_is_not():
    lasting, changing = group("a", "b"), group("a", "b", choice="period")
    secret = make_secret()
    assert len({chosen(lasting, APPLICATION, secret, period) for period in range(64)}) == 1
    assert len({chosen(changing, APPLICATION, secret, period) for period in range(64)}) == 2
