"""The ledger: exact, durable before noise is drawn, never overspent, whoever is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.release.accounting import Composition, group, total
from hubbub.release.errors import BudgetError, LedgerError
from hubbub.release.ledger import Ledger
from hubbub.release.noise import Cost, gaussian_scale

TENTH = Fraction("0.1")
KILLS = int(os.environ.get("HUBBUB_KILLS", "12"))
SPENDER = """
import sys
import time
from fractions import Fraction
from pathlib import Path
from hubbub.release.errors import BudgetError
from hubbub.release.ledger import Ledger
from hubbub.release.noise import Cost
with Ledger.open(Path(sys.argv[1])) as ledger:
    while True:
        try:
            spend = ledger.spend("count", "noise", Cost(Fraction(1, 100)), "digest")
        except BudgetError:
            break
        print(spend.number, flush=True)
        time.sleep(0.05)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def make(path: Path, epsilon: str = "0.3", delta: str = "0", composition: str = "basic") -> Ledger:
    parts = Fraction(epsilon), Fraction(delta), Composition(composition)
    return Ledger.create(path, *parts, "{}", "digest")


def spend(ledger: Ledger, cost: Cost) -> int:
    return ledger.spend("count", "discrete Laplace", cost, "digest").number


def test_three_tenths_are_three_times_a_tenth(path: Path) -> None:
    with make(path) as ledger:
        assert [spend(ledger, Cost(TENTH)) for _ in range(3)] == [1, 2, 3]
        assert ledger.spent() == Cost(Fraction(3, 10))
        with pytest.raises(BudgetError, match=r"costs epsilon 0.1; epsilon 0.3 of epsilon 0.3 are"):
            spend(ledger, Cost(TENTH))
        assert len(ledger.spends()) == 3


def test_what_was_spent_is_there_when_the_ledger_is_opened_again(path: Path) -> None:
    with make(path, delta="1e-6") as ledger:
        spend(ledger, Cost(TENTH, Fraction("1e-7"), Fraction(1, 300)))
        secret = ledger.secret
    with Ledger.open(path) as ledger:
        (found,) = ledger.spends()
        assert found.cost == Cost(TENTH, Fraction("1e-7"), Fraction(1, 300))
        assert (found.query, found.mechanism) == ("count", "discrete Laplace")
        assert ledger.secret == secret


def test_delta_is_a_budget_of_its_own(path: Path) -> None:
    with make(path, delta="1e-6") as ledger:
        spend(ledger, Cost(TENTH, Fraction("9e-7")))
        with pytest.raises(BudgetError, match="delta 2e-07"):
            spend(ledger, Cost(TENTH, Fraction("2e-7")))
        with pytest.raises(BudgetError):
            spend(ledger, Cost(Fraction("0.21")))


def test_a_ledger_that_is_gone_or_another_one_releases_nothing(path: Path) -> None:
    with make(path) as ledger:
        path.unlink()
        with pytest.raises(LedgerError, match="isn't the file any more that was opened"):
            spend(ledger, Cost(TENTH))
        make(path).close()
        with pytest.raises(LedgerError, match="isn't the file any more that was opened"):
            spend(ledger, Cost(TENTH))


def test_a_ledger_of_any_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with make(Path(":memory:")) as ledger:
        spend(ledger, Cost(TENTH))
    with Ledger.open(Path(":memory:")) as ledger:
        assert ledger.spent() == Cost(TENTH)


def test_nothing_costs_less_than_nothing(path: Path) -> None:
    with make(path) as ledger, pytest.raises(LedgerError, match="costs less than nothing"):
        spend(ledger, Cost(-TENTH))


def test_rows_can_be_neither_changed_nor_deleted(path: Path) -> None:
    with make(path) as ledger:
        spend(ledger, Cost(TENTH))
    connection = sqlite3.connect(path)
    for statement in ("delete from spends", "update spends set epsilon = '0'", "delete from facts",
                      "update facts set epsilon = '9'",
                      "insert or replace into facts select * from facts",
                      "insert or replace into spends select * from spends"):  # fmt: skip
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


def test_a_budget_is_set_once(path: Path) -> None:
    make(path).close()
    with pytest.raises(LedgerError, match="a budget is set once, and for good"):
        make(path, epsilon="9")
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [None, b"", b"not a database, but long enough to be one" * 9])
def test_what_is_no_ledger_is_named(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"budget\.db: must be a ledger"):
        Ledger.open(path)


def test_killed_spenders_never_overspend_and_release_nothing_unpaid(path: Path) -> None:
    """Three processes at once, each killed at work, again and again; HUBBUB_KILLS says how often.

    The budget outlasts them all: a thousand spends a kill.
    """
    budget = 10 * KILLS
    make(path, epsilon=str(budget)).close()
    run = [sys.executable, "-c", SPENDER, str(path)]
    rng = np.random.default_rng(1)
    released: list[int] = []

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(run, stdout=subprocess.PIPE)

    spenders = [started() for _ in range(3)]
    for kill in range(KILLS + 3):
        victim = spenders.pop(0)
        assert victim.stdout is not None
        first = victim.stdout.readline()  # it spends
        assert first
        time.sleep(rng.uniform(0, 0.05))
        victim.send_signal(signal.SIGKILL)
        rest, _ = victim.communicate(timeout=60)
        released += [int(line) for line in (first + rest).split(b"\n")[:-1]]
        if kill < KILLS:
            spenders.append(started())
    with Ledger.open(path) as ledger:
        numbers = [spend.number for spend in ledger.spends()]
        assert len(set(released)) == len(released)
        assert set(released) <= set(numbers)
        assert ledger.spent().epsilon == Fraction(len(numbers), 100)
        left = budget - ledger.spent().epsilon
        assert left > 0
        with pytest.raises(BudgetError):
            spend(ledger, Cost(left + Fraction(1, 10**9)))
        spend(ledger, Cost(left))
        assert ledger.spent().epsilon == budget


def test_many_small_releases_cost_less_by_zcdp_and_few_large_ones_more() -> None:
    small, large = [Cost(Fraction(1, 100))] * 400, [Cost(Fraction(1))] * 2
    delta = Fraction("1e-6")
    assert total(small, Composition.BASIC, delta).epsilon == 4
    assert total(small, Composition.ZCDP, delta).epsilon < Fraction(6, 5)
    assert total(large, Composition.ZCDP, delta).epsilon > 2


def test_gaussian_releases_add_up_to_one_of_the_same_rho() -> None:
    """Four times noise of scale 2s is as once s, by zCDP: the epsilon of one."""
    delta = Fraction("1e-6")
    scale, cost = gaussian_scale(1.0, Fraction(1), delta)
    assert scale == pytest.approx(4.53, abs=0.01)
    assert cost.rho is not None
    quarter = Cost(Fraction(1), delta, cost.rho / 4)
    together = total([quarter] * 4, Composition.ZCDP, 2 * delta)  # half of it is for conversion
    assert float(together.epsilon) == pytest.approx(1, rel=1e-6)
    assert together.delta == delta


def test_zcdp_bounds_what_is_spent_of_delta_apart_from_epsilon(path: Path) -> None:
    """Or an adaptive reader could let both bounds fail, each for its own answers."""
    with make(path, epsilon="5", delta="1e-6", composition="zcdp") as ledger:
        with pytest.raises(BudgetError):
            spend(ledger, Cost(TENTH, Fraction("5.1e-7")))
        spend(ledger, Cost(TENTH, Fraction("5e-7")))
        with pytest.raises(BudgetError):
            spend(ledger, Cost(TENTH, Fraction("1e-9")))
        spend(ledger, Cost(TENTH))


RHOS = st.fractions(Fraction(1, 1000), Fraction(1, 2))
DELTAS = st.fractions(0, Fraction("1e-6"))


@given(RHOS, RHOS, DELTAS, DELTAS)
def test_zcdp_admits_whatever_its_rho_and_its_delta_admit_alone(
    rho: Fraction, other_rho: Fraction, delta: Fraction, other_delta: Fraction
) -> None:
    def admitted(rho: Fraction, delta: Fraction) -> bool:
        costs = [Cost(Fraction(0), Fraction(0), rho), Cost(Fraction(0), delta)]
        found = total(costs, Composition.ZCDP, Fraction("1e-6"))
        return found.epsilon <= 2 and found.delta <= Fraction("1e-6")

    if admitted(rho, delta) and admitted(other_rho, other_delta):
        assert admitted(rho, other_delta)


def test_groups_are_protected_by_so_many_times_epsilon() -> None:
    assert group(Cost(TENTH), 3) == Cost(Fraction(3, 10))
    found = group(Cost(Fraction(1), Fraction("1e-6")), 2)
    assert found.epsilon == 2
    assert float(found.delta) == pytest.approx(1e-6 * (2.718281828 + 1), rel=1e-6)
