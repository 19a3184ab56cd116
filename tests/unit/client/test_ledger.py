"""What a client has spent, and when it must refuse."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_metric, make_params, make_registry
from hubbub.client import Registry
from hubbub.client.ledger import (
    ALREADY_REPORTED,
    OVER_BUDGET,
    TOO_MANY_VALUES,
    Ledger,
    Price,
    Row,
    Spend,
)

HOMEPAGE = make_metric()
REPORT, PERMANENT = HOMEPAGE.epsilon_report, HOMEPAGE.epsilon_permanent


def spend(value: int, metric: str = "homepage", version: int = 1) -> Spend:
    return Spend(metric, version, value.to_bytes(16, "little"))


def filled(registry: Registry, *spends: Spend) -> Ledger:
    ledger = Ledger(registry)
    for entry in spends:
        assert ledger.refusal(entry) is None
        ledger.add(entry)
    return ledger


def test_reports_of_one_value_cost_at_most_its_permanent_epsilon() -> None:
    ledger = Ledger(make_registry())
    costs = []
    for _ in range(5):
        ledger.add(spend(1))
        costs.append(ledger.spending().epsilon)
    expected = [REPORT, 2 * REPORT, PERMANENT, PERMANENT, PERMANENT]
    assert costs == pytest.approx(expected)


def test_values_metrics_and_versions_add_up() -> None:
    registry = make_registry(make_metric(), make_metric("search", params=make_params(f=0.75)))
    ledger = filled(registry, spend(1), spend(2), spend(1, "search"))
    spending = ledger.spending()
    assert spending.epsilon == pytest.approx(2 * REPORT + registry["search"].epsilon_report)
    assert [(m.metric, m.distinct_values, m.reports) for m in spending.metrics] == [
        ("homepage", 2, 2),
        ("search", 1, 1),
    ]


@given(reports=st.lists(st.integers(0, 5), max_size=60))
def test_spending_is_the_sum_over_values(reports: list[int]) -> None:
    ledger = filled(make_registry(make_metric(max_values=10)), *map(spend, reports))
    counts = [reports.count(value) for value in set(reports)]
    expected = math.fsum(min(n * REPORT, PERMANENT) for n in counts)
    assert ledger.spending().epsilon == pytest.approx(expected)


@given(n=st.integers(0, 50))
def test_price_bounds_what_linked_reports_reveal(n: int) -> None:
    """The exact loss of n reports that share a permanent response, against the ledger's price.

    All n reports of a bit show 1: P = a q^n + (1 - a) p^n with a = 1 - f/2 or f/2. The worst case
    has h such bits one way and h the other (all 0); see docs/statistics.md.
    """
    params = HOMEPAGE.params
    stay, turn = 1 - params.flip, params.flip

    def log_odds(one: float, zero: float) -> float:
        return math.log((stay * one**n + turn * zero**n) / (turn * one**n + stay * zero**n))

    loss = params.h * (
        abs(log_odds(params.q, params.p)) + abs(log_odds(1 - params.q, 1 - params.p))
    )
    assert loss <= Price(REPORT, PERMANENT).of(n) + 1e-9


def test_distinct_values_are_capped_and_known_ones_go_on() -> None:
    ledger = filled(make_registry(make_metric(max_values=2)), spend(1), spend(2))
    assert ledger.refusal(spend(3)) == TOO_MANY_VALUES
    assert ledger.refusal(spend(1)) is None


def test_lifetime_budget_holds_over_all_metrics() -> None:
    registry = make_registry(
        make_metric(), make_metric("search"), lifetime_epsilon=PERMANENT + 1.5 * REPORT
    )
    ledger = filled(registry, *[spend(1)] * 10, spend(2, "search"))
    assert ledger.refusal(spend(3)) == OVER_BUDGET
    assert ledger.refusal(spend(2, "search")) == OVER_BUDGET
    assert ledger.refusal(spend(1)) is None  # its permanent response is paid for


def test_one_time_metric_is_reported_once() -> None:
    metric = make_metric(params=make_params(p=0.0, q=1.0), one_time=True)
    ledger = filled(make_registry(metric), spend(1))
    assert ledger.refusal(spend(1)) == ALREADY_REPORTED
    assert ledger.refusal(spend(2)) == ALREADY_REPORTED


def test_a_new_version_of_a_one_time_metric_may_be_reported() -> None:
    def metric(version: int) -> Registry:
        params = make_params(p=0.0, q=1.0)
        return make_registry(make_metric(version=version, params=params, one_time=True))

    first = filled(metric(1), spend(1))
    second = Ledger(metric(2), [first.row(spend(1))])
    assert second.refusal(spend(1, version=2)) is None
    second.add(spend(1, version=2))
    assert [m.version for m in second.spending().metrics] == [1, 2]


def test_rows_carry_the_account_to_the_next_start() -> None:
    registry = make_registry(make_metric(max_values=2))
    spends = [spend(1), spend(1), spend(2)]
    ledger = filled(registry, *spends)
    again = Ledger(registry, [ledger.row(s) for s in set(spends)], resets=3)
    assert again.spending().metrics == ledger.spending().metrics
    assert again.spending().resets == 3
    assert again.refusal(spend(3)) == TOO_MANY_VALUES


def test_what_an_old_version_cost_is_still_owed() -> None:
    old = Row(spend(1, "gone", 4), 3, Price(1.0, 10.0))
    budget = 3.0 + REPORT
    ledger = Ledger(make_registry(lifetime_epsilon=budget), [old])
    assert ledger.spending().epsilon == 3.0
    ledger.add(spend(1))
    assert ledger.refusal(spend(1)) == OVER_BUDGET


def test_order_of_reports_does_not_matter() -> None:
    spends = [spend(1), spend(1), spend(2), spend(3)]
    totals = {
        round(filled(make_registry(), *order).spending().epsilon, 9)
        for order in itertools.permutations(spends)
    }
    assert len(totals) == 1
