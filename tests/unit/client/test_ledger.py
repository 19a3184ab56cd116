"""What answers cost, and whether there is room for another."""

import math

import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params, make_registry
from hubbub.client import Registry
from hubbub.client.ledger import Account, AnswerKey, LedgerRow, Verdict

HOMEPAGE = make_metric()
REPORT, PERMANENT = HOMEPAGE.epsilon_report, HOMEPAGE.epsilon_permanent
NEW, AGAIN, STALE = (Verdict.NEW, ""), (Verdict.AGAIN, ""), (Verdict.STALE, "")


def key(number: int, metric: str = "homepage", version: int = 1) -> AnswerKey:
    return AnswerKey(metric, version, number.to_bytes(16, "little"))


def enter(ledger: Account, *answers: AnswerKey) -> None:
    """Report answers that there is room for."""
    for answer in answers:
        answered = bool(ledger.count(answer.metric, answer.version))
        assert ledger.judge(answer, answered=answered)[0] in {Verdict.NEW, Verdict.AGAIN}
        ledger.add(answer, answered=answered)


def filled(registry: Registry, *answers: AnswerKey) -> Account:
    ledger = Account(registry)
    enter(ledger, *answers)
    return ledger


def bought(
    answer: AnswerKey, price: float, *, reports: int = 1, report: float = 1.0, changed: bool = False
) -> LedgerRow:
    return LedgerRow(answer, reports, report, price, changed)


def test_reports_of_one_value_cost_at_most_its_permanent_epsilon():
    ledger = Account(make_registry())
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
def test_spent_epsilon_bounds_what_linked_reports_reveal(n):
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


def test_rows_carry_the_account_to_the_next_start():
    registry = make_registry(make_metric(max_values=2), lifetime_epsilon=100.0)
    answers = [key(1), key(1), key(2)]
    ledger = filled(registry, *answers)
    rows = [ledger.row(answer) for answer in set(answers)]
    again = Account(registry, rows, restores=2, revealing=ledger.revealing)
    assert again.spending() == ledger.spending()._replace(restores=2)
    assert again.judge(key(3), answered=True) == STALE


def test_prices_stay_as_they_were_when_answers_were_bought():
    """Another f under the same version makes the metric unusable, and the past no cheaper."""
    rows = [filled(make_registry(), key(1)).row(key(1))]
    cheap = make_registry(make_metric(params=make_params(f=0.95)))
    ledger = Account(cheap, rows, unusable={"homepage"})
    assert ledger.spending().committed == pytest.approx(PERMANENT)
    assert ledger.spending().epsilon == pytest.approx(REPORT)
