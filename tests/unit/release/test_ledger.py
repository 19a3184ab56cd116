"""The ledger: exact, durable before noise is drawn, never overspent, whoever is killed."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from evaluation.attacks.release_ledger import SPENDER, cut_off_a_spend, started
from hubbub.release import BudgetError, Ledger, LedgerError
from hubbub.release.ledger import Composition, total
from hubbub.release.noise import Cost, gaussian_scale

TENTH = Fraction("0.1")
KILLS = int(os.environ.get("HUBBUB_KILLS", "12"))
GREEDY = """
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
        time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "budget.db"


def make(path: Path, epsilon: str = "0.3", delta: str = "0", composition: str = "basic") -> Ledger:
    parts = Fraction(epsilon), Fraction(delta), Composition(composition)
    return Ledger.create(path, *parts, "{}", "digest")


def spend(ledger: Ledger, cost: Cost) -> int:
    return ledger.spend("count", "discrete Laplace", cost, "digest").number


def test_three_tenths_are_three_times_a_tenth(path):
    with make(path) as ledger:
        assert [spend(ledger, Cost(TENTH)) for _ in range(3)] == [1, 2, 3]
        assert ledger.spent() == Cost(Fraction(3, 10))
        with pytest.raises(BudgetError, match=r"costs epsilon 0.1; epsilon 0.3 of epsilon 0.3 has"):
            spend(ledger, Cost(TENTH))
        assert len(ledger.spends()) == 3


def test_spends_survive_reopening_the_ledger(path):
    with make(path, delta="1e-6") as ledger:
        spend(ledger, Cost(TENTH, Fraction("1e-7"), Fraction(1, 300)))
        secret = ledger.secret
    with Ledger.open(path) as ledger:
        (found,) = ledger.spends()
        assert found.cost == Cost(TENTH, Fraction("1e-7"), Fraction(1, 300))
        assert (found.query, found.mechanism) == ("count", "discrete Laplace")
        assert ledger.secret == secret


def test_delta_is_a_budget_of_its_own(path):
    with make(path, delta="1e-6") as ledger:
        spend(ledger, Cost(TENTH, Fraction("9e-7")))
        with pytest.raises(BudgetError, match="delta 2e-07"):
            spend(ledger, Cost(TENTH, Fraction("2e-7")))
        with pytest.raises(BudgetError):
            spend(ledger, Cost(Fraction("0.21")))


def test_a_ledger_that_is_gone_or_another_one_releases_nothing(path):
    with make(path) as ledger:
        path.unlink()
        with pytest.raises(LedgerError, match="isn't the file any more that was opened"):
            spend(ledger, Cost(TENTH))
        make(path).close()
        with pytest.raises(LedgerError, match="isn't the file any more that was opened"):
            spend(ledger, Cost(TENTH))


def test_rows_can_be_neither_changed_nor_deleted(path):
    with make(path) as ledger:
        spend(ledger, Cost(TENTH))
    connection = sqlite3.connect(path)
    for statement in ("delete from spends", "update spends set epsilon = '0'", "delete from facts",
                      "update facts set epsilon = '9'", "delete from places",
                      "update places set file = ''",
                      "insert or replace into facts select * from facts",
                      "insert or replace into spends select * from spends"):  # fmt: skip
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("content", [None, b"", b"not a database, but long enough to be one" * 9])
def test_files_that_are_no_ledger_are_named(path, content):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"budget\.db: must be a ledger"):
        Ledger.open(path)


@pytest.mark.long
def test_killed_spenders_never_overspend_and_release_nothing_unpaid(path):
    """Three processes at once, each killed at work, again and again; HUBBUB_KILLS says how often.

    The budget outlasts them all: a thousand spends a kill.
    """
    budget = 10 * KILLS
    make(path, epsilon=str(budget)).close()
    run = [sys.executable, "-c", GREEDY, str(path), "0.05"]
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


@pytest.mark.long
def test_a_ledger_that_moves_after_every_kill_has_all_that_was_released(path):
    """Without its journal, unless it is refused then; HUBBUB_KILLS says how often."""
    make(path, epsilon=str(10 * KILLS)).close()
    rng = np.random.default_rng(2)
    released: list[int] = []
    for kill in range(KILLS):
        run = [sys.executable, "-c", GREEDY, str(path), "0"]
        with subprocess.Popen(run, stdout=subprocess.PIPE) as spender:
            assert spender.stdout is not None
            first = spender.stdout.readline()
            time.sleep(rng.uniform(0, 0.05))
            spender.kill()
            released += [int(line) for line in (first + spender.stdout.read()).split(b"\n")[:-1]]
        journal, moved = path.with_name(f"{path.name}-journal"), path.with_name(f"{kill}.db")
        path.rename(moved)
        try:
            Ledger.open(moved).close()
        except LedgerError:
            journal.rename(moved.with_name(f"{moved.name}-journal"))
        path = moved
        with Ledger.open(path) as ledger:
            assert set(released) <= {spend.number for spend in ledger.spends()}
    assert len(set(released)) == len(released) >= KILLS


def test_processes_that_spend_at_once_never_overdraw(path):
    make(path, epsilon="1").close()
    run = [sys.executable, "-c", GREEDY, str(path), "0"]
    spenders = [subprocess.Popen(run, stdout=subprocess.PIPE) for _ in range(4)]
    released = [int(n) for spender in spenders for n in spender.communicate(timeout=60)[0].split()]
    assert sorted(released) == list(range(1, 101))


def test_spends_survive_a_kill_and_a_move(path):
    make(path, epsilon="1").close()
    with started(SPENDER, path, 9) as spender:
        spender.kill()
    assert list(path.parent.iterdir()) == [path]
    folder = path.with_name("elsewhere")
    folder.mkdir()
    with Ledger.open(path.rename(folder / "other.db")) as ledger:
        assert ledger.spent().epsilon == Fraction(9, 10)
        spend(ledger, Cost(TENTH))
        with pytest.raises(BudgetError):
            spend(ledger, Cost(TENTH))


def cut_off_in_a_spend(path: Path) -> Path:
    """Make a ledger of two spends, cut another one off, and return the journal."""
    with make(path, epsilon="1") as ledger:
        spend(ledger, Cost(TENTH))
        spend(ledger, Cost(TENTH))
    return cut_off_a_spend(path)


@pytest.mark.parametrize("moved", [False, True])
def test_a_spend_that_a_kill_has_cut_off_leaves_those_before_it(path, moved):
    """Its journal is beside the file, and moves with it."""
    journal = cut_off_in_a_spend(path)
    if moved:
        journal.rename(path.with_name("other.db-journal"))
        path = path.rename(path.with_name("other.db"))
    with Ledger.open(path) as ledger:
        assert ledger.spent().epsilon == Fraction(2, 10)
        spend(ledger, Cost(TENTH))


def test_a_journal_that_was_left_behind_takes_no_spends_back(path):
    """Also where files can't be marked: moved without it, spent from, and moved to it again."""
    cut_off_in_a_spend(path)
    moved = path.rename(path.with_name("other.db"))
    with Ledger.open(moved) as ledger:
        spend(ledger, Cost(TENTH))
    moved.rename(path)
    unmark(path)
    with pytest.raises(
        LedgerError, match=r"spends = \d+: must be at least \d+: .*budget\.db-journal"
    ):
        Ledger.open(path)


def unmark(path: Path) -> None:
    """Set a file's mark, if there are such, to what it says where there are none."""
    if hasattr(os, "setxattr"):
        os.setxattr(path, "user.hubbub.spends", b"0")


PAGE = 4096


def histories(path: Path, spends: int) -> list[bytes]:
    """Return a ledger's content before each spend, and after the last one."""
    contents = []
    with make(path, epsilon="1000") as ledger:
        for _ in range(spends):
            contents.append(path.read_bytes())
            ledger.spend("a long question " * 20, "noise", Cost(TENTH), "digest")
    return [*contents, path.read_bytes()]


def changed_pages(before: bytes, after: bytes) -> list[int]:
    starts = range(0, len(after), PAGE)
    return [at for at in starts if before[at : at + PAGE] != after[at : at + PAGE]]


def with_pages(content: bytes, pages: Sequence[int], source: bytes) -> bytes:
    """Return a content with some pages of another one; what lies between is 0."""
    found = bytearray(content)
    for at in pages:
        found.extend(bytes(max(at + PAGE - len(found), 0)))
        found[at : at + PAGE] = source[at : at + PAGE]
    return bytes(found)


def held(path: Path, content: bytes) -> int | None:
    """Return how many spends a ledger with this content has, None if it is refused."""
    path.write_bytes(content)  # of the same file
    unmark(path)
    try:
        with Ledger.open(path) as ledger:
            return len(ledger.spends())
    except LedgerError:
        return None


def test_a_spend_of_which_only_some_pages_were_written_takes_no_others_back(path):
    """Whichever they are, without a journal; also where the table gets another page."""
    contents = histories(path, 60)
    accepted, grown = 0, 0
    for number, (before, after) in enumerate(pairwise(contents)):
        pages = changed_pages(before, after)
        grown += len(after) > len(before)
        for n_written in range(len(pages)):
            for written in combinations(pages, n_written):
                found = held(path, with_pages(before, written, after))
                accepted += found is not None
                assert found is None or found >= number
    assert accepted > 60
    assert grown > 1


@pytest.mark.parametrize("later", [1, 2, 3, 10])
def test_pages_of_an_earlier_spend_that_come_back_are_noticed(path, later):
    """As a journal of it brings them back, after so many other spends."""
    contents = histories(path, 60)
    for number in range(60 - later):
        before, after = contents[number : number + 2]
        found = with_pages(contents[number + 1 + later], changed_pages(before, after), before)
        assert held(path, found[: len(before)]) is None


def copy(path: Path) -> Path:
    return Path(shutil.copy(path, path.with_name("copy.db")))


def copy_with_attributes(path: Path) -> Path:
    return Path(shutil.copy2(path, path.with_name("copy.db")))


def copy_in_its_place(path: Path) -> Path:
    """The file system may give it the inode of the file that was deleted."""
    backup = copy(path)
    path.unlink()
    return Path(shutil.copy(backup, path))


@pytest.mark.parametrize("copied", [copy, copy_with_attributes, copy_in_its_place])
def test_a_copy_is_refused_until_it_is_adopted(path, copied):
    with make(path) as ledger:
        spend(ledger, Cost(TENTH))
        assert ledger.adopted() == []
    found = copied(path)
    reason = (
        r"\.db: file = inode \d+ of .*: must be inode \d+ of .*, which was spent from.* --adopt"
    )
    with pytest.raises(LedgerError, match=reason):
        Ledger.open(found)
    with Ledger.open(found, adopt=True) as ledger:
        assert len(ledger.adopted()) == 1
        spend(ledger, Cost(TENTH))
    with Ledger.open(found, adopt=True) as ledger:  # it isn't a copy any more
        assert len(ledger.adopted()) == 1
        assert ledger.spent().epsilon == Fraction(2, 10)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="files have no attributes on this system")
@pytest.mark.parametrize("adopt", [False, True])
def test_an_earlier_copy_that_was_written_over_the_ledger_is_refused(path, adopt):
    with make(path) as ledger:
        spend(ledger, Cost(TENTH))
        backup = copy(path)
        spend(ledger, Cost(TENTH))
    shutil.copy(backup, path)
    with pytest.raises(LedgerError, match=r"spends = 1: must be at least 2: an earlier copy or"):
        Ledger.open(path, adopt=adopt)


def test_a_ledger_with_two_names_is_refused_by_either(path):
    make(path).close()
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(LedgerError, match=r"\.db: hard links = 2: must be 1: .* other names"):
            Ledger.open(name)
    other.unlink()
    with Ledger.open(path) as ledger:
        spend(ledger, Cost(TENTH))
        other.hardlink_to(path)
        with pytest.raises(LedgerError, match="hard links = 2: must be 1"):
            spend(ledger, Cost(TENTH))
        other.unlink()
        assert spend(ledger, Cost(TENTH)) == 2


def test_a_symbolic_link_to_a_ledger_is_that_ledger(path):
    cut_off_in_a_spend(path)
    link = path.with_name("link.db")
    link.symlink_to(path)
    with Ledger.open(link) as ledger:
        spend(ledger, Cost(TENTH))
    with Ledger.open(path) as ledger:
        assert ledger.spent().epsilon == Fraction(3, 10)


def test_every_spend_is_in_the_file_and_on_disk_whatever_mode_others_set(path):
    with make(path) as ledger:
        assert ledger._connection.execute("pragma synchronous").fetchone() == (3,)  # extra
        for _ in range(2):
            set_wal_mode(path)
            spend(ledger, Cost(TENTH))
            assert [file.name for file in path.parent.iterdir()] == ["budget.db"]
    set_wal_mode(path)
    Ledger.open(path).close()
    connection = sqlite3.connect(path)
    assert connection.execute("pragma journal_mode").fetchone() == ("delete",)
    assert connection.execute("select count(*) from spends").fetchone() == (2,)
    set_wal_mode(path)
    connection.execute("select * from spends").fetchall()
    with pytest.raises(LedgerError, match="locked"):
        Ledger.open(path)
    connection.close()


def set_wal_mode(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("pragma journal_mode = wal").fetchone() == ("wal",)
    connection.close()


def test_many_small_releases_cost_less_by_zcdp_and_few_large_ones_more():
    small, large = [Cost(Fraction(1, 100))] * 400, [Cost(Fraction(1))] * 2
    delta = Fraction("1e-6")
    assert total(small, Composition.BASIC, delta).epsilon == 4
    assert total(small, Composition.ZCDP, delta).epsilon < Fraction(6, 5)
    assert total(large, Composition.ZCDP, delta).epsilon > 2


def test_gaussian_releases_add_up_to_one_of_the_same_rho():
    """Four times noise of scale 2s is as once s, by zCDP: the epsilon of one."""
    delta = Fraction("1e-6")
    scale, cost = gaussian_scale(1.0, Fraction(1), delta)
    assert scale == pytest.approx(4.53, abs=0.01)
    assert cost.rho is not None
    quarter = Cost(Fraction(1), delta, cost.rho / 4)
    together = total([quarter] * 4, Composition.ZCDP, 2 * delta)  # half of it is for conversion
    assert float(together.epsilon) == pytest.approx(1, rel=1e-6)
    assert together.delta == delta


def test_zcdp_bounds_what_is_spent_of_delta_apart_from_epsilon(path):
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
def test_zcdp_admits_whatever_its_rho_and_its_delta_admit_alone(rho, other_rho, delta, other_delta):
    def admitted(rho: Fraction, delta: Fraction) -> bool:
        costs = [Cost(Fraction(0), Fraction(0), rho), Cost(Fraction(0), delta)]
        found = total(costs, Composition.ZCDP, Fraction("1e-6"))
        return found.epsilon <= 2 and found.delta <= Fraction("1e-6")

    if admitted(rho, delta) and admitted(other_rho, other_delta):
        assert admitted(rho, other_delta)
