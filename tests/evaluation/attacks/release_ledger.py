"""Spend a ledger's budget more than once: processes are killed, files moved, copied and linked.

Each attack asks for releases of .1 under a budget of 1 until it is refused, from every file that it
has made of the one ledger, and counts what was answered in all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from evaluation.attacks.outcome import Outcome
from hubbub.release import BudgetError, Ledger, LedgerError
from hubbub.release.ledger import Composition, _mark, _set_mark
from hubbub.release.noise import Cost

BUDGET, PRICE = Fraction(1), Cost(Fraction(1, 10))
MOST = 30
"""Releases that an attack asks for from one file."""
SPENDER = """
import sys
from pathlib import Path
from evaluation.attacks.release_ledger import PRICE
from hubbub.release.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    ledger.spend("count", "noise", PRICE, "digest")
print("spent", flush=True)
sys.stdin.read()
"""
JOURNAL_HEAD = 28
"""Bytes that a journal begins with: without them SQLite takes none of its pages back."""


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Yield the epsilon that each way of forgetting spends got answered under a budget of 1."""
    ways = (
        killed_and_moved,
        hard_link,
        hard_link_made_meanwhile,
        copied,
        copied_with_attributes,
        restored,
        restored_in_place,
        journal_left_behind_and_found_again,
    )
    for way in ways:
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder) / "a.db"
            facts = BUDGET, Fraction(0), Composition.BASIC, "{}", "digest"
            Ledger.create(ledger, *facts).close()
            what = f"epsilon answered under a budget of 1, {way.__name__.replace('_', ' ')}"
            yield Outcome(what, float(way(ledger) * PRICE.epsilon), float(BUDGET))
    _ = quick  # they take seconds


def answered(path: Path, most: int = MOST) -> int:
    number = 0
    try:
        with Ledger.open(path) as ledger:
            for _ in range(most):
                ledger.spend("count", "noise", PRICE, "digest")
                number += 1
    except (BudgetError, LedgerError):
        pass
    return number


def killed_and_moved(ledger: Path) -> int:
    with started(SPENDER, ledger, 9) as spender:
        spender.kill()
    return 9 + answered(ledger.rename(ledger.with_name("b.db")))


def hard_link(ledger: Path) -> int:
    """Two names of one file, and a process at each."""
    other = ledger.with_name("b.db")
    other.hardlink_to(ledger)
    return beside_a_spender(ledger, other)


def hard_link_made_meanwhile(ledger: Path) -> int:
    """A second name that a ledger gets while a process spends from it."""
    with started(SPENDER, ledger, 5) as spender:
        other = ledger.with_name("b.db")
        other.hardlink_to(ledger)
        number = 5 + answered(other)
        other.unlink()
        spender.kill()
    return number + answered(ledger)


def beside_a_spender(ledger: Path, other: Path) -> int:
    """Ten releases by a process that goes on, and meanwhile those from another name."""
    with started(SPENDER, ledger, 10) as spender:
        number = answered(other)
        spender.kill()
        _, errors = spender.communicate()
    return number + (0 if b"LedgerError" in errors else 10)


def copied(ledger: Path) -> int:
    """A copy beside the original."""
    return answered(Path(shutil.copy(ledger, ledger.with_name("b.db")))) + answered(ledger)


def copied_with_attributes(ledger: Path) -> int:
    return answered(Path(shutil.copy2(ledger, ledger.with_name("b.db")))) + answered(ledger)


def restored(ledger: Path) -> int:
    """A backup in place of the original, which was deleted; file systems give it the same inode."""
    backup = shutil.copy(ledger, ledger.with_name("backup.db"))
    number = answered(ledger)
    ledger.unlink()
    return number + answered(Path(shutil.copy(backup, ledger)))


def restored_in_place(ledger: Path) -> int:
    """A backup written over the original."""
    backup = shutil.copy(ledger, ledger.with_name("backup.db"))
    number = answered(ledger)
    return number + answered(Path(shutil.copy(backup, ledger)))


def journal_left_behind_and_found_again(ledger: Path) -> int:
    """Killed in the middle of a spend, moved without its journal, spent from, and moved back."""
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        if connection.execute("pragma journal_mode").fetchone() == ("wal",):
            return 0  # there is none
    cut_off_a_spend(ledger)
    elsewhere = ledger.rename(ledger.with_name("b.db"))
    number = answered(elsewhere)
    return number + answered(elsewhere.rename(ledger))


def cut_off_a_spend(ledger: Path) -> Path:
    """Leave what a kill at the last moment of a spend, of nothing, leaves; return its journal.

    All of the spend is in the file then, and only the journal says that it isn't done: SQLite
    commits by taking the journal's head away. Here the head is put back.
    """
    journal, heads, mark = journal_of(ledger), list[bytes](), _mark(ledger)

    def keep_head(statement: str) -> None:
        if statement == "commit":
            heads.append(journal.read_bytes()[:JOURNAL_HEAD])

    with Ledger.open(ledger) as opened:
        # The head is complete before the commit, and the journal stays after it.
        opened._connection.execute("pragma synchronous = off")
        opened._connection.execute("pragma locking_mode = exclusive")
        opened._connection.set_trace_callback(keep_head)
        opened.spend("count", "noise", Cost(Fraction(0)), "digest")
        pages = journal.read_bytes()[JOURNAL_HEAD:]
    (head,) = heads
    journal.write_bytes(head + pages)
    _set_mark(ledger, mark or 0)  # which follows a commit
    return journal


def journal_of(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}-journal")


def started(program: str, ledger: Path, releases: int) -> subprocess.Popen[bytes]:
    """Start a process that spends, and wait until it says so."""
    spender = subprocess.Popen(
        [sys.executable, "-c", program, str(ledger), str(releases)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert spender.stdout is not None
    spender.stdout.readline()
    return spender


def environment() -> dict[str, str]:
    """Return the variables of a process that imports from where this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
