"""What answers cost, and whether there is room for another."""

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
    PERIODS_USED_UP,
    AnswerKey,
    ClientLedger,
    LedgerRow,
    Verdict,
)
from hubbub.protocol.metric_types.enums import BooleanType

HOMEPAGE = make_metric()
REPORT, PERMANENT = HOMEPAGE.epsilon_report, HOMEPAGE.epsilon_permanent
NEW, AGAIN, STALE = (Verdict.NEW, ""), (Verdict.AGAIN, ""), (Verdict.STALE, "")


def key(number: int, metric: str = "homepage", version: int = 1) -> AnswerKey:
    return AnswerKey(metric, version, number.to_bytes(16, "little"))


def enter(ledger: ClientLedger, *answers: AnswerKey) -> None:
    """Report answers that there is room for."""
    for answer in answers:
        answered = bool(ledger.count(answer.metric, answer.version))
        assert ledger.judge(answer, answered=answered)[0] in {Verdict.NEW, Verdict.AGAIN}
        ledger.add(answer, answered=answered)


def filled(registry: Registry, *answers: AnswerKey) -> ClientLedger:
    ledger = ClientLedger(registry)
    enter(ledger, *answers)
    return ledger


def bought(
    answer: AnswerKey, price: float, *, reports: int = 1, report: float = 1.0, changed: bool = False
) -> LedgerRow:
    return LedgerRow(answer, reports, report, price, changed)


def test_reports_of_one_value_cost_at_most_its_permanent_epsilon():
    ledger = ClientLedger(make_registry())
    spent, committed = [], []
    for _ in range(5):
        enter(ledger, key(1))
        spent.append(ledger.spending().epsilon)
        committed.append(ledger.spending().committed)
    assert spent == pytest.approx([make_metric().epsilon_after(n) for n in range(1, 6)])
    assert spent[0] == pytest.approx(REPORT)
    assert spent == sorted(spent)
    assert spent[-1] < PERMANENT
    assert committed == pytest.approx([PERMANENT] * 5)


def test_values_metrics_and_versions_add_up():
    registry = make_registry(make_metric(), make_metric("search", params=make_params(f=0.75)))
    ledger = filled(registry, key(1), key(2), key(1, "search"))
    spending, search = ledger.spending(), registry["search"]
    assert spending.epsilon == pytest.approx(2 * REPORT + search.epsilon_report)
    assert spending.committed == pytest.approx(2 * PERMANENT + search.epsilon_permanent)
    assert [(m.metric, m.version, m.answers, m.reports) for m in spending.metrics] == [
        ("homepage", 1, 2, 2),
        ("search", 1, 1, 1),
    ]


@given(reports=st.lists(st.integers(0, 5), max_size=60))
def test_sums_are_over_values(reports):
    spending = filled(make_registry(make_metric(max_values=10)), *map(key, reports)).spending()
    counts = [reports.count(value) for value in set(reports)]
    expected = math.fsum(map(HOMEPAGE.epsilon_after, counts))
    assert spending.epsilon == pytest.approx(expected)
    assert spending.committed == pytest.approx(len(counts) * PERMANENT)


@given(n=st.integers(0, 50))
def test_what_is_spent_bounds_what_linked_reports_reveal(n):
    """The exact loss of n reports that share a permanent response, against the ledger.

    All n reports of a bit show 1: P = a q^n + (1 - a) p^n with a = 1 - f/2 or f/2. The worst case
    has h such bits one way and h the other (all 0); see docs/understand/proofs.md.
    """
    params = HOMEPAGE.params
    stay, turn = 1 - params.f / 2, params.f / 2

    def log_odds(one: float, zero: float) -> float:
        return math.log((stay * one**n + turn * zero**n) / (turn * one**n + stay * zero**n))

    loss = params.h * (
        abs(log_odds(params.q, params.p)) + abs(log_odds(1 - params.q, 1 - params.p))
    )
    assert loss <= bought(key(1), PERMANENT, reports=n, report=REPORT).spent(HOMEPAGE) + 1e-9


def test_distinct_values_are_capped_and_known_ones_go_on():
    ledger = filled(make_registry(make_metric(max_values=2)), key(1), key(2))
    assert ledger.judge(key(3), answered=True) == STALE
    assert ledger.judge(key(1), answered=True) == AGAIN


def test_periods_are_capped():
    metric = make_metric(period_days=1, max_periods=2)
    ledger = filled(make_registry(metric), key(1), key(2))
    assert ledger.judge(key(3), answered=True) == (Verdict.REFUSED, PERIODS_USED_UP)
    assert ledger.judge(key(2), answered=True) == AGAIN


def test_lifetime_budget_holds_over_all_metrics():
    registry = make_registry(make_metric(), make_metric("search"), lifetime_epsilon=2.5 * PERMANENT)
    ledger = filled(registry, *[key(1)] * 10, key(2, "search"))
    assert ledger.judge(key(3), answered=True) == STALE
    assert ledger.judge(key(3, "search"), answered=True) == STALE
    assert ledger.judge(key(1), answered=True) == AGAIN  # it is paid for


def test_changes_never_use_what_another_metrics_first_value_needs():
    registry = make_registry(make_metric(), make_metric("search"), lifetime_epsilon=3 * PERMANENT)
    ledger = filled(registry, key(1), key(2))
    assert ledger.judge(key(3), answered=True) == STALE
    assert ledger.judge(key(1, "search"), answered=False) == NEW


def test_changes_never_use_what_periods_need():
    mood = make_metric("mood", period_days=1, max_periods=3)
    registry = make_registry(make_metric(), mood, lifetime_epsilon=4.9 * PERMANENT)
    ledger = filled(registry, key(1))
    assert ledger.judge(key(2), answered=True) == STALE
    enter(ledger, *(key(i, "mood") for i in range(3)))


def test_a_first_value_without_room_is_refused():
    registry = make_registry(make_metric(), make_metric("search"), lifetime_epsilon=1.5 * PERMANENT)
    ledger = filled(registry, key(1))
    assert ledger.judge(key(1, "search"), answered=False) == (Verdict.REFUSED, OVER_BUDGET)
    assert ledger.judge(key(2), answered=True) == STALE


@pytest.mark.parametrize(("share", "verdict"), [(1 - 1e-10, Verdict.NEW), (1 - 1e-8, STALE[0])])
def test_a_budget_is_met_to_one_part_in_a_billion(share, verdict):
    ledger = filled(make_registry(lifetime_epsilon=2 * PERMANENT * share), key(1))
    assert ledger.judge(key(2), answered=True)[0] is verdict


def test_one_time_metric_is_reported_once():
    metric = make_metric(params=make_params(p=0.0, q=1.0), one_time=True)
    ledger = filled(make_registry(metric), key(1))
    assert ledger.judge(key(1), answered=True) == (Verdict.REFUSED, ALREADY_REPORTED)
    assert ledger.judge(key(2), answered=True) == (Verdict.REFUSED, ALREADY_REPORTED)
    assert ledger.spending().committed == metric.epsilon_report


def test_a_new_version_of_a_one_time_metric_may_be_reported():
    def registry(version: int) -> Registry:
        params = make_params(p=0.0, q=1.0)
        return make_registry(make_metric(version=version, params=params, one_time=True))

    first = filled(registry(1), key(1))
    second = ClientLedger(registry(2), [first.row(key(1))])
    enter(second, key(1, version=2))
    assert [m.version for m in second.spending().metrics] == [1, 2]


def test_rows_carry_the_account_to_the_next_start():
    registry = make_registry(make_metric(max_values=2), lifetime_epsilon=100.0)
    answers = [key(1), key(1), key(2)]
    ledger = filled(registry, *answers)
    rows = [ledger.row(answer) for answer in set(answers)]
    again = ClientLedger(registry, rows, resets=3, restores=2, revealing=ledger.revealing)
    assert again.spending() == ledger.spending()._replace(resets=3, restores=2)
    assert again.judge(key(3), answered=True) == STALE


def test_what_old_versions_cost_is_still_owed():
    old = bought(key(1, "gone", 4), 3.0, reports=2)
    ledger = ClientLedger(make_registry(lifetime_epsilon=3.0 + PERMANENT * 1.5), [old])
    # Two reports of a version that isn't registered count as all that could ever be made.
    assert (ledger.spending().epsilon, ledger.spending().committed) == (3.0, 3.0)
    enter(ledger, key(1))
    assert ledger.judge(key(2), answered=True) == STALE


def test_the_first_answer_of_an_old_version_is_reserved_and_its_changes_are_not():
    first = bought(key(1, "gone", 4), PERMANENT)
    change = bought(key(2, "gone", 4), PERMANENT, changed=True)
    registry = make_registry(lifetime_epsilon=4 * PERMANENT)
    ledger = ClientLedger(registry, [first, change])
    enter(ledger, key(1), key(2))
    assert ledger.judge(key(3), answered=True) == STALE


def test_what_old_versions_cost_never_uses_what_a_first_value_needs():
    registry = make_registry(make_metric(), make_metric("search"), lifetime_epsilon=3 * PERMANENT)
    ledger = ClientLedger(registry, [bought(key(1, "gone", 4), PERMANENT)])
    enter(ledger, key(1))
    assert ledger.judge(key(2), answered=True) == STALE
    assert ledger.judge(key(1, "search"), answered=False) == NEW


def test_prices_stay_as_they_were_when_answers_were_bought():
    """Another f under the same version makes the metric unusable, and the past no cheaper."""
    rows = [filled(make_registry(), key(1)).row(key(1))]
    cheap = make_registry(make_metric(params=make_params(f=0.95)))
    ledger = ClientLedger(cheap, rows, unusable={"homepage"})
    assert ledger.spending().committed == pytest.approx(PERMANENT)
    assert ledger.spending().epsilon == pytest.approx(REPORT)


def test_an_unusable_metric_keeps_back_what_it_cost_and_no_more():
    registry = make_registry(
        make_metric("mood", period_days=1, max_periods=10),
        make_metric("dark", metric_type=BooleanType()),
        lifetime_epsilon=1.5 * PERMANENT,
    )
    ledger = ClientLedger(registry, [bought(key(1, "mood"), PERMANENT)], unusable={"mood"})
    enter(ledger, key(1, "dark"), key(2, "dark"))
    assert ledger.spending().committed == pytest.approx(
        PERMANENT + 2 * registry["dark"].epsilon_permanent
    )


def test_order_of_reports_does_not_matter():
    answers = [key(1), key(1), key(2), key(3)]
    totals = {
        round(filled(make_registry(), *order).spending().epsilon, 9)
        for order in itertools.permutations(answers)
    }
    assert len(totals) == 1
