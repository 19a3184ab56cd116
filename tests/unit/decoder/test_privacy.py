"""Privacy figures: equal to the client's account, to exact laws, and composed as theorems say."""

import itertools
import math

import pytest
from hypothesis import assume, given, strategies as st
from scipy import stats

from factories import make_metric, make_params, make_registry
from hubbub.client.ledger import Account, AnswerKey, Verdict
from hubbub.planning import (
    LifetimeBudget,
    PlanAssumptions,
    PrivacyFigure,
    any_history_epsilon,
    constant_epsilon,
    group_figures,
    metric_figures,
    most_periods,
    registry_figures,
    same_times_epsilon,
)
from hubbub.protocol import (
    BooleanType,
    EnumType,
    Field,
    Group,
    JointType,
    Metric,
    OrdinalType,
    RapporParams,
    Registry,
    StringType,
)
from parameters import examples

PAIR = (Field("theme", EnumType(("light", "dark"))), Field("restored", BooleanType()))
KINDS = (
    StringType(),
    BooleanType(),
    EnumType(("light", "dark")),
    OrdinalType((1.0, 5.0)),
    JointType(PAIR),
    JointType((*PAIR, Field("page", StringType()))),
)
ONE_TIME = make_metric("once", params=RapporParams(8, 1, 1, 0.0, 0.25, 0.75), one_time=True)


def metrics() -> st.SearchStrategy[Metric]:
    """Metrics of all types that clients report for life."""
    flips = st.tuples(st.floats(0.02, 0.45), st.floats(0.02, 0.45))
    params = st.builds(
        lambda h, flips, p, q: RapporParams(32, h, 4, sum(flips), p, q, *flips),
        h=st.integers(1, 4),
        flips=flips | st.floats(0.02, 0.45).map(lambda flip: (flip, flip)),
        # 0 and 1, or so far from them that SciPy's binomial doesn't overflow.
        p=st.just(0.0) | st.floats(1e-9, 0.4),
        q=st.just(1.0) | st.floats(0.5, 1 - 1e-9),
    ).filter(lambda params: (params.p, params.q) != (0.0, 1.0))
    return st.builds(
        lambda params, metric_type: make_metric(params=params, metric_type=metric_type),
        params,
        st.sampled_from(KINDS),
    )


def with_periods(metric: Metric, days: int, most: int = 10_000) -> Metric:
    return metric._replace(memory="period", period_days=days, max_periods=most)


def account(metric: Metric, answers: list[int]) -> float:
    """Return what the client's account counts for one report of each of these answers."""
    ledger = Account(make_registry(metric))
    for n, answer in enumerate(answers):
        key = AnswerKey(metric.name, metric.version, answer.to_bytes(8, "little"))
        ledger.add(key, answered=n > 0)
    return ledger.spending().epsilon


def by_key(metric: Metric, assumptions: PlanAssumptions) -> dict[str, float]:
    return {figure.key: figure.value for figure in metric_figures(metric, assumptions)}


@examples(50)
@given(metrics(), st.integers(1, 60), st.integers(1, 5))
def test_figures_are_not_below_what_the_clients_account_counts(metric, days, values):
    """Reports are spread over the values in turn, which spends the most."""
    counted = account(metric, [day % values for day in range(days)])
    assert same_times_epsilon(metric, days, values) >= counted * (1 - 1e-12)


@examples(50)
@given(metrics(), st.integers(1, 60))
def test_a_single_value_costs_what_the_account_says(metric, days):
    assert constant_epsilon(metric, days) == pytest.approx(account(metric, [0] * days), rel=1e-9)


@examples(50)
@given(metrics(), st.integers(1, 60), st.integers(1, 12), st.integers(1, 8))
def test_periods_cost_what_the_account_says_of_the_worst_borders(metric, days, length, most):
    periodic = with_periods(metric, length, most)
    by_start = [
        [n for day in range(days) if (n := (start + day) // length) < most]
        for start in range(length)
    ]
    counted = max(account(periodic, answers) for answers in by_start)
    assert constant_epsilon(periodic, days) == pytest.approx(counted, rel=1e-9)
    assert constant_epsilon(periodic, days) >= counted * (1 - 1e-12)
    assert most_periods(periodic, days) == max(len(set(answers)) for answers in by_start)


def test_periods_bound_any_history_and_values_only_where_changes_are_not_heard():
    periodic = with_periods(make_metric(), 7)
    assert any_history_epsilon(periodic, 30, 100) == constant_epsilon(periodic, 30)
    assert same_times_epsilon(periodic, 30, values=9) == constant_epsilon(periodic, 30)
    assert any_history_epsilon(ONE_TIME, 30, 1) == ONE_TIME.epsilon_report
    first_value = any_history_epsilon(make_metric(), 30, 1)
    assert first_value == pytest.approx(make_metric().epsilon_permanent)
    assert any_history_epsilon(make_metric(), 30, 2) == math.inf


@examples(30)
@given(metrics(), st.integers(1, 40), st.integers(1, 12))
def test_linked_reports_of_periods_lose_what_each_period_loses(metric, days, length):
    boolean = isinstance(metric.type, BooleanType)

    def exact(start: int) -> float:
        numbers = [(start + day) // length for day in range(days)]
        sizes = [numbers.count(n) for n in sorted(set(numbers))]
        return sum(loss_by_enumeration(metric.params, n, boolean=boolean) for n in sizes)

    worst = max(exact(start) for start in range(length))
    found = constant_epsilon(with_periods(metric, length), days)
    assert found == pytest.approx(worst, rel=1e-6)


def loss_by_enumeration(params: RapporParams, reports: int, *, boolean: bool) -> float:
    """Return the largest log likelihood ratio over all numbers of ones in n reports of a bit."""
    ratios = []
    for ones in range(reports + 1):
        of_one = stats.binom.pmf(ones, reports, params.q)
        of_zero = stats.binom.pmf(ones, reports, params.p)
        true = (1 - params.f1) * of_one + params.f1 * of_zero
        false = params.f0 * of_one + (1 - params.f0) * of_zero
        ratios.append(math.log(true / false))
    if boolean:
        return max(map(abs, ratios))
    return params.h * max(a - b for a, b in itertools.product(ratios, repeat=2))


@examples(50)
@given(metrics(), st.integers(1, 8))
def test_linked_reports_lose_what_the_enumeration_says(metric, reports):
    boolean = isinstance(metric.type, BooleanType)
    exact = loss_by_enumeration(metric.params, reports, boolean=boolean)
    found = constant_epsilon(metric, reports)
    assert found == pytest.approx(exact, rel=1e-6)


def test_a_client_reports_no_more_values_than_the_registry_allows():
    metric = make_metric(max_values=2)
    few, many = (by_key(metric, PlanAssumptions(days=10_000, values=v)) for v in (2, 50))
    assert few["epsilon_values"] == many["epsilon_values"]


@pytest.mark.parametrize(
    ("metric", "theorem"),
    [
        (make_metric(), "not bounded: anyone who links reports can see a change"),
        (
            make_metric(max_values=1),
            "only a client's first value of each version is reported (max_values = 1)",
        ),
        (make_metric(period_days=7), "the sum over periods of what their reports reveal"),
        (ONE_TIME, "one report of each version of the metric"),
    ],
    ids=["values", "one value", "periods", "one-time"],
)
def test_bounds_over_histories_come_with_their_reason(metric, theorem):
    figures = metric_figures(metric, PlanAssumptions(days=30))
    found = {figure.key: figure for figure in figures}
    assert theorem in found["epsilon_any_history"].theorem


def changed_answers(registry: Registry, name: str) -> int:
    """Return how many changed answers of a metric the client's account admits."""
    ledger, metric = Account(registry), registry[name]
    for n in range(1000):
        key = AnswerKey(name, metric.version, n.to_bytes(8, "little"))
        verdict, _ = ledger.judge(key, answered=n > 0)
        if verdict is not Verdict.NEW:
            assert verdict is Verdict.STALE
            return n - 1
        ledger.add(key, answered=n > 0)
    raise AssertionError("the account admits changes for ever")


@examples(50)
@given(st.floats(0.1, 200.0), st.integers(1, 12), st.integers(1, 30))
def test_the_budget_is_divided_as_the_clients_account_divides_it(lifetime, max_values, max_periods):
    registry = make_registry(
        make_metric("a", max_values=max_values),
        make_metric("b", period_days=7, max_periods=max_periods),
        ONE_TIME,
        lifetime_epsilon=lifetime,
    )
    assume(lifetime > registry["a"].price)  # or not even the first value is admitted
    most_values = LifetimeBudget.of(registry).most_values(registry["a"])
    assert most_values == 1 + changed_answers(registry, "a")


def test_a_budget_without_room_for_a_change_bounds_any_history():
    metric = make_metric("a")
    registry = make_registry(metric, lifetime_epsilon=1.5 * metric.price)
    figures = metric_figures(registry["a"], PlanAssumptions(), LifetimeBudget.of(registry))
    found = {figure.key: figure for figure in figures}["epsilon_any_history"]
    assert found.value == metric.epsilon_permanent
    assert "lifetime_epsilon has no room for a change" in found.theorem


def together(registry: Registry, assumptions: PlanAssumptions) -> dict[str, PrivacyFigure]:
    return {figure.key: figure for figure in registry_figures(registry, assumptions)}


def test_metrics_of_a_registry_add_up():
    registry = make_registry(
        make_metric("a"), make_metric("b", metric_type=BooleanType()), ONE_TIME
    )
    assumptions = PlanAssumptions(days=30, values=2)
    found = together(registry, assumptions)
    total = found["epsilon_registry"]
    alone = sum(by_key(metric, assumptions)["epsilon_values"] for metric in registry.values())
    assert total.value == pytest.approx(alone)
    assert total.value >= alone
    assert "sequential composition" in total.theorem


def test_metrics_of_a_registry_have_a_sum_for_any_history_only_if_each_has_a_bound():
    bounded = (make_metric("a", period_days=7), make_metric("b", max_values=1), ONE_TIME)
    assumptions = PlanAssumptions(days=30)
    found = together(make_registry(*bounded), assumptions)
    alone = sum(by_key(metric, assumptions)["epsilon_any_history"] for metric in bounded)
    assert found["epsilon_registry_any_history"].value == pytest.approx(alone)
    endless = together(make_registry(*bounded, make_metric("c")), assumptions)
    assert endless["epsilon_registry_any_history"].value == math.inf
    assert endless["epsilon_registry_any_history"].theorem.startswith(
        "c: not bounded: anyone who links"
    )
    assert math.isfinite(endless["epsilon_registry"].value)


@pytest.mark.parametrize("sense", ["", "_any_history"])
def test_no_client_spends_more_than_the_registrys_budget(sense):
    periods = [make_metric(name, period_days=7) for name in "ab"]
    registry = make_registry(*periods, lifetime_epsilon=5.0)
    total = together(registry, PlanAssumptions(days=10_000, values=9))[f"epsilon_registry{sense}"]
    assert total.value == 5.0
    assert "account" in total.theorem


def test_the_division_of_the_budget_is_among_the_figures():
    metrics = make_metric("a"), make_metric("b", period_days=7, max_periods=3)
    found = together(make_registry(*metrics, lifetime_epsilon=40.0), PlanAssumptions())
    reserve = 4 * make_metric().epsilon_permanent
    assert found["lifetime_reserve"].value == pytest.approx(reserve)
    assert found["lifetime_changes"].value == pytest.approx(40.0 - reserve)
    few = together(make_registry(*metrics, lifetime_epsilon=10.0), PlanAssumptions())
    assert few["lifetime_changes"].value == 0
    assert "lifetime_reserve" not in together(make_registry(*metrics), PlanAssumptions())


def test_after_shuffling_days_are_one_message_and_no_history_that_changes_has_a_figure():
    assumptions = PlanAssumptions(days=30, reports=10_000)
    metric = make_metric(params=make_params(h=1))
    found = by_key(metric, assumptions)
    assert found["central_epsilon"] < found["central_epsilon_days"] < found["epsilon_days"]
    assert found["central_epsilon_days_any_history"] == math.inf
    for bounded in (metric._replace(max_values=1), with_periods(metric, 7), ONE_TIME):
        figures = by_key(bounded, assumptions)
        assert figures["central_epsilon_days_any_history"] == figures["central_epsilon_days"]
    once = by_key(ONE_TIME, assumptions)
    assert once["central_epsilon_days"] == once["central_epsilon"]


def test_reports_of_a_permanent_response_are_linked_and_one_time_reports_cannot_be():
    page = make_metric(params=RapporParams(k=424, h=1, m=96, f=0.2, p=0.0683, q=0.5534))
    for metric in (page, with_periods(page, 30)):
        found = by_key(metric, PlanAssumptions())
        assert 100_000 < found["linked_clients"] < found["linked_clients_known"]
    once = by_key(ONE_TIME, PlanAssumptions(reports=1_000))
    assert all(math.isnan(value) for key, value in once.items() if key.startswith("link"))


def test_a_metric_that_is_asked_once_a_period_has_one_price_each_for_any_values():
    params = RapporParams(k=64, h=1, m=8, f=0.0, p=0.02, q=0.5)
    once = make_metric(params=params, mode="once", period_days=30, max_periods=24)
    found = by_key(once, PlanAssumptions(days=365, values=9, reports=10_000))
    price = once.epsilon_report
    assert found["epsilon_answer"] == price
    assert found["epsilon_year"] == found["epsilon_any_history"] == pytest.approx(15 * price)
    assert found["epsilon_values"] == found["epsilon_days"] == pytest.approx(15 * price)
    assert found["epsilon_life"] == pytest.approx(24 * price)
    assert found["value_ratio"] == pytest.approx(math.cosh(price / 2) ** 2)
    assert found["linked_share"] == pytest.approx(found["value_ratio"] / 10_000)
    assert found["central_epsilon_days_any_history"] < 15 * found["central_epsilon"] * 1.2


def test_a_group_costs_what_its_dearest_metric_does():
    cheap, dear = (
        make_metric(name, params=make_params(f=f)) for name, f in (("a", 0.5), ("b", 0.2))
    )
    periods = [
        metric._replace(memory="period", period_days=7, max_periods=9) for metric in (cheap, dear)
    ]
    group = Group("either", ("a", "b"), "life")
    alone = Registry("com.example.browser", {metric.name: metric for metric in periods})
    grouped = Registry("com.example.browser", dict(alone), groups=[group])
    assumptions = PlanAssumptions(days=30)
    found = {figure.key: figure.value for figure in group_figures(grouped, assumptions)["either"]}
    assert found["epsilon_group"] == by_key(periods[1], assumptions)["epsilon_any_history"]
    total = together(grouped, assumptions)["epsilon_registry_any_history"]
    assert total.value == pytest.approx(found["epsilon_group"])
    assert "parallel composition" in total.theorem
    without = together(alone, assumptions)["epsilon_registry_any_history"].value
    assert found["epsilon_ungrouped"] == pytest.approx(without)
    assert found["share_of_clients"] == 0.5
