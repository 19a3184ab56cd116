"""The budget of a table, and what was spent of it: one SQLite file.

A query's cost is committed, in exact fractions and durably, *before* its noise is drawn. So
whatever happens to a process (or to its machine), what was released was paid for; a spend whose
release was lost stays spent. Several processes may spend at once. Invariant: rows of spends are
never changed or deleted, which the file itself enforces.
"""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Self

from hubbub.release.accounting import Composition, total
from hubbub.release.errors import BudgetError, LedgerError
from hubbub.release.noise import Cost

_VERSION = 1
_PATIENCE = 60.0  # seconds to wait for another process
_SCHEMA = """
create table facts (
    version integer not null,
    epsilon text not null,
    delta text not null,
    composition text not null,
    declaration text not null,
    digest text not null,
    secret blob not null
);
create table spends (
    number integer primary key,
    at text not null,
    query text not null,
    mechanism text not null,
    epsilon text not null,
    delta text not null,
    rho text,
    digest text not null
);
create trigger spends_stay before delete on spends
    begin select raise(abort, 'spends are never deleted'); end;
create trigger spends_stay_as_they_are before update on spends
    begin select raise(abort, 'spends are never changed'); end;
create trigger spends_are_new before insert on spends
    when exists (select 1 from spends where number = new.number)
    begin select raise(abort, 'spends are never changed'); end;
create trigger facts_are_set_once before insert on facts when exists (select 1 from facts)
    begin select raise(abort, 'the facts are never changed'); end;
create trigger facts_stay before delete on facts
    begin select raise(abort, 'the facts are never deleted'); end;
create trigger facts_stay_as_they_are before update on facts
    begin select raise(abort, 'the facts are never changed'); end;
"""


@dataclass(frozen=True, slots=True)
class Spend:
    """What one query has spent.

    Attributes
    ----------
    number : int
        1 for the first.
    at : str
        UTC, to the second.
    query : str
        What was asked; its public arguments are in what was released.
    cost : Cost
    digest : str
        Of the data that were asked.
    """

    number: int
    at: str
    query: str
    mechanism: str
    cost: Cost
    digest: str


class Ledger:
    """An open ledger; use as a context manager.

    Attributes
    ----------
    path : Path
    epsilon, delta : Fraction
        The whole budget.
    composition : Composition
        How costs add up.
    declaration : str
        What was declared of the data, as JSON.
    digest : str
        Of the data when the ledger was made.
    secret : bytes
        By which rows and blocks are chosen; it decides nothing that is released by itself.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        row = connection.execute("select * from facts").fetchone()
        if row is None or row[0] != _VERSION:
            raise LedgerError(f"{path}: must be a ledger of version {_VERSION}")
        try:
            self.epsilon, self.delta = Fraction(row[1]), Fraction(row[2])
            self.composition = Composition(row[3])
            self.declaration, self.digest, self.secret = str(row[4]), str(row[5]), bytes(row[6])
        except (TypeError, ValueError) as error:
            raise LedgerError(f"{path}: its facts are damaged: {error}") from error
        self._file = path.stat().st_ino

    @classmethod
    def create(
        cls,
        path: Path,
        epsilon: Fraction,
        delta: Fraction,
        composition: Composition,
        declaration: str,
        digest: str,
    ) -> Ledger:
        """Make a ledger where there is no file yet.

        Raises
        ------
        LedgerError
            If there is one, or it can't be made.
        """
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise LedgerError(f"{path}: exists; a budget is set once, and for good") from None
        except OSError as error:
            raise LedgerError(f"{path}: can't be made: {error.strerror}") from error
        os.close(handle)
        try:
            connection = _connect(path)
            with _transaction(path, connection):
                for statement in _statements(_SCHEMA):
                    connection.execute(statement)
                facts = (_VERSION, str(epsilon), str(delta), composition.value, declaration)
                connection.execute(
                    "insert into facts values (?, ?, ?, ?, ?, ?, ?)",
                    (*facts, digest, os.urandom(32)),
                )
            return cls(path, connection)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open a ledger (raises LedgerError if there is none)."""
        if not path.is_file():
            raise LedgerError(f"{path}: must be a ledger; `hubbub-release init` makes one")
        try:
            return cls(path, _connect(path))
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path}: must be a ledger that can be read: {error}") from error

    def refuse_beyond(self, query: str, cost: Cost) -> None:
        """Refuse a cost for which less is left now, before any work (raises BudgetError)."""
        before = [spend.cost for spend in self.spends()]
        after = total([*before, cost], self.composition, self.delta)
        if after.epsilon > self.epsilon or after.delta > self.delta:
            spent = total(before, self.composition, self.delta)
            raise BudgetError(
                f"{query}: costs {shown(cost)}; {shown(spent)} of {shown(self.budget)} are "
                f"spent ({self.composition.value} composition)"
            )

    def spend(self, query: str, mechanism: str, cost: Cost, digest: str) -> Spend:
        """Record a cost durably; only then may its noise be drawn.

        Raises
        ------
        BudgetError
            If less is left.
        LedgerError
            If it can't be written; then nothing was spent.
        """
        if cost.epsilon < 0 or cost.delta < 0 or (cost.rho is not None and cost.rho < 0):
            raise LedgerError(f"{query}: costs less than nothing")
        self._refuse_lost()
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        rho = None if cost.rho is None else str(cost.rho)
        with _transaction(self.path, self._connection):
            self.refuse_beyond(query, cost)
            values = (now, query, mechanism, str(cost.epsilon), str(cost.delta), rho, digest)
            cursor = self._connection.execute(
                "insert into spends (at, query, mechanism, epsilon, delta, rho, digest) "
                "values (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        self._refuse_lost()
        return Spend(int(cursor.lastrowid or 0), now, query, mechanism, cost, digest)

    def _refuse_lost(self) -> None:
        """Refuse to go on where the file isn't there any more, or is another one."""
        if not self.path.exists() or self.path.stat().st_ino != self._file:
            raise LedgerError(f"{self.path}: isn't the file any more that was opened")

    def spends(self) -> list[Spend]:
        """Return all spends, the first one first."""
        try:
            rows = self._connection.execute(
                "select number, at, query, mechanism, epsilon, delta, rho, digest "
                "from spends order by number"
            ).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: can't be read: {error}") from error
        return [
            Spend(number, at, query, mechanism, _cost(epsilon, delta, rho), digest)
            for number, at, query, mechanism, epsilon, delta, rho, digest in rows
        ]

    @property
    def budget(self) -> Cost:
        """The whole budget."""
        return Cost(self.epsilon, self.delta)

    def spent(self) -> Cost:
        """Return what all spends cost together."""
        return total([spend.cost for spend in self.spends()], self.composition, self.delta)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        self.close()


def _cost(epsilon: str, delta: str, rho: str | None) -> Cost:
    return Cost(Fraction(epsilon), Fraction(delta), None if rho is None else Fraction(rho))


def shown(cost: Cost) -> str:
    """Return a cost in words."""
    delta = f" and delta {float(cost.delta):.6g}" if cost.delta else ""
    return f"epsilon {float(cost.epsilon):.6g}{delta}"


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path.absolute(), timeout=_PATIENCE, isolation_level=None)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the only right to write; commit at the end, or leave everything as it was."""
    try:
        connection.execute("begin immediate")
        try:
            yield
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: can't be written: {error}") from error


def _statements(script: str) -> Iterator[str]:
    """Yield a script's statements; `executescript` would end the transaction."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
