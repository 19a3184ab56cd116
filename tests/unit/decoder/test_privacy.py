"""Privacy figures: equal to the client's ledger, to exact laws, and composed as theorems say."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from factories import make_metric, make_params, make_registry
from hubbub.client.errors import UnknownMetricError
from hubbub.client.kinds import BooleanKind, EnumKind, OrdinalKind, StringKind
from hubbub.client.ledger import Ledger, Spend
from hubbub.client.metrics import Metric
from hubbub.client.params import RapporParams
from hubbub.decoder.errors import PlanError
from hubbub.decoder.privacy.figures import (
    Situation,
    days_epsilon,
    linked_epsilon,
    metric_figures,
    registry_figures,
    spent,
)

KINDS = (StringKind(), BooleanKind(), EnumKind(("light", "dark")), OrdinalKind((1.0, 5.0)))
ONE_TIME = make_metric("once", params=RapporParams(8, 1, 1, 0.0, 0.25, 0.75), one_time=True)


def metrics() -> st.SearchStrategy[Metric]:
    """Metrics of all types that clients report for life."""
    params = st.builds(
        RapporParams,
        k=st.just(32),
        h=st.integers(1, 4),
        m=st.just(4),
        f=st.floats(0.05, 0.9),
        p=st.floats(0.0, 0.4),
        q=st.floats(0.5, 1.0),
    ).filter(lambda params: (params.p, params.q) != (0.0, 1.0))
    return st.builds(lambda params, kind: make_metric(params=params, kind=kind), params,
                     st.sampled_from(KINDS))  # fmt: skip


def by_key(metric: Metric, situation: Situation) -> dict[str, float]:
    return {figure.key: figure.value for figure in metric_figures(metric, situation)}


@settings(deadline=None, max_examples=50)
@given(metrics(), st.integers(1, 60), st.integers(1, 5))
def test_figures_are_not_below_what_the_clients_ledger_counts(
    metric: Metric, days: int, values: int
) -> None:
    """Reports are spread over the values in turn, which spends the most."""
    ledger = Ledger(make_registry(metric))
    for day in range(days):
        ledger.add(Spend(metric.name, metric.version, bytes([day % values])))
    counted = ledger.spending().epsilon
    assert spent(metric, Situation(days=days, values=values)) >= counted * (1 - 1e-12)


@settings(deadline=None, max_examples=50)
@given(metrics(), st.integers(1, 60))
def test_a_single_value_costs_what_the_ledger_says(metric: Metric, days: int) -> None:
    ledger = Ledger(make_registry(metric))
    for _ in range(days):
        ledger.add(Spend(metric.name, metric.version, b"v"))
    assert days_epsilon(metric, days) == pytest.approx(ledger.spending().epsilon, rel=1e-9)


def loss_by_enumeration(params: RapporParams, reports: int, *, boolean: bool) -> float:
    """Return the largest log likelihood ratio over all numbers of ones in n reports of a bit."""
    ratios = []
    for ones in range(reports + 1):
        of_one = stats.binom.pmf(ones, reports, params.q)
        of_zero = stats.binom.pmf(ones, reports, params.p)
        true = (1 - params.flip) * of_one + params.flip * of_zero
        false = params.flip * of_one + (1 - params.flip) * of_zero
        ratios.append(math.log(true / false))
    if boolean:
        return max(map(abs, ratios))
    return params.h * max(a - b for a, b in itertools.product(ratios, repeat=2))


@settings(deadline=None, max_examples=50)
@given(metrics(), st.integers(1, 8))
def test_linked_reports_lose_what_the_enumeration_says(metric: Metric, reports: int) -> None:
    boolean = isinstance(metric.kind, BooleanKind)
    exact = loss_by_enumeration(metric.params, reports, boolean=boolean)
    found = linked_epsilon(metric, reports)
    assert found == pytest.approx(exact, rel=1e-6)
    assert found <= days_epsilon(metric, reports)


@settings(deadline=None, max_examples=30)
@given(metrics())
def test_one_linked_report_loses_epsilon_report(metric: Metric) -> None:
    assert linked_epsilon(metric, 1) == pytest.approx(metric.epsilon_report, rel=1e-9)


def test_one_time_metrics_are_paid_once_though_nothing_bounds_a_second_report() -> None:
    figures = by_key(ONE_TIME, Situation(days=1000, values=50))
    assert figures["epsilon_permanent"] == math.inf
    assert figures["epsilon_days"] == ONE_TIME.epsilon_report
    assert figures["epsilon_values"] == ONE_TIME.epsilon_report
    assert math.isnan(figures["reports_known_0.5"])


def test_a_client_reports_no_more_values_than_the_registry_allows() -> None:
    metric = make_metric(max_values=2)
    few, many = (spent(metric, Situation(days=10_000, values=v)) for v in (2, 50))
    assert few == many


@given(st.integers(1, 20))
def test_a_household_loses_so_many_times_as_much(household: int) -> None:
    metric = make_metric()
    one = by_key(metric, Situation(household=1))["epsilon_household"]
    all_of_them = by_key(metric, Situation(household=household))["epsilon_household"]
    assert all_of_them == pytest.approx(household * one)


def test_metrics_of_a_registry_add_up() -> None:
    registry = make_registry(make_metric("a"), make_metric("b", kind=BooleanKind()), ONE_TIME)
    situation = Situation(days=30, values=2)
    total, household = registry_figures(registry, situation)
    alone = sum(spent(metric, situation) for metric in registry.values())
    assert total.value == pytest.approx(alone)
    assert total.value >= alone
    assert "sequential composition" in total.theorem
    assert household.value == total.value


def test_metrics_that_exclude_each_other_cost_as_the_dearest() -> None:
    registry = make_registry(make_metric("a"), make_metric("b", params=make_params(f=0.2)))
    total = registry_figures(registry, Situation(), [("a", "b")])[0]
    assert total.value == pytest.approx(spent(registry["b"], Situation()))
    assert "parallel composition" in total.theorem


def test_no_client_spends_more_than_the_registrys_budget() -> None:
    registry = make_registry(make_metric("a"), make_metric("b"), lifetime_epsilon=5.0)
    total = registry_figures(registry, Situation(days=10_000, values=9))[0]
    assert total.value == 5.0
    assert "ledger" in total.theorem


def test_every_figure_names_its_theorem() -> None:
    figures = metric_figures(make_metric(), Situation(reports=1000))
    assert all(figure.theorem for figure in figures)
    assert len({figure.key for figure in figures}) == len(figures)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"days": 0}, "days = 0: must be at least 1"),
        ({"values": -1}, "values = -1"),
        ({"household": 0}, "household = 0"),
        ({"reports": 0}, "reports = 0"),
        ({"delta": 0.0}, "delta = 0.0"),
        ({"delta": math.nan}, "delta = nan"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(change: dict[str, float], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        Situation(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "error", "reason"),
    [
        ([("a",)], PlanError, "exclusive = a: must be two metrics or more"),
        ([("a", "a")], PlanError, "must be two metrics or more"),
        ([("a", "b"), ("b", "c")], PlanError, "metric 'b' stands in it twice"),
        ([("a", "nobody")], UnknownMetricError, "metric 'nobody': must be one of: a, b, c"),
    ],
)
def test_groups_that_are_none_are_refused(
    groups: list[tuple[str, ...]], error: type[Exception], reason: str
) -> None:
    registry = make_registry(*(make_metric(name) for name in "abc"))
    with pytest.raises(error, match=reason):
        registry_figures(registry, Situation(), groups)
