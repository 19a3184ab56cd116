"""The budget of a table, and what was spent of it: one SQLite file.

A query's cost is committed, in exact fractions and durably, *before* its noise is drawn. So
whatever happens to a process (or to its machine), what was released was paid for; a spend whose
release was lost stays spent. Several processes may spend at once. Invariants: rows of spends are
never changed or deleted, which the file itself enforces; and all of them are in this file, never in
a separate journal, so that a file that is moved takes them along. A file that isn't the one spent
from, as far as that can be seen, or that has fewer spends than it had, is refused.

What several releases of one table cost together.

Basic composition adds epsilons and deltas, exactly. Zero-concentrated differential privacy adds
rhos, which grow with epsilon squared: of many small releases that is far less, of a few large ones
more. A ledger uses one of the two for good: choosing by what was spent would let deltas of both
count, because which one applies could depend on answers.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Self

from hubbub.release.errors import BudgetError, LedgerError
from hubbub.release.noise import Cost, gaussian_epsilon


class Composition(StrEnum):
    """How costs add up."""

    BASIC = "basic"
    ZCDP = "zcdp"

    @property
    def theorem(self) -> str:
        """Source of the bound."""
        if self is Composition.BASIC:
            return (
                "basic composition (Dwork, McSherry, Nissim, Smith 2006): epsilons, deltas add up"
            )
        return (
            "zCDP composition (Bun, Steinke 2016): rhos add up, epsilon^2/2 of a pure release; to "
            "epsilon at half of the delta (Canonne, Kamath, Steinke 2020), the other half is for "
            "single releases"
        )


def total(costs: Iterable[Cost], composition: Composition, delta: Fraction) -> Cost:
    """Return what releases cost together.

    `costs`: one of each release. `composition`: by sums, or by zCDP. `delta`: the whole budget's:
    with zCDP half of it is for conversion, half for single releases.

    Notes
    -----
    A release of (epsilon, delta) is delta-approximate epsilon^2/2-zCDP (Bun, Steinke 2016, section
    8), Gaussian noise rho-zCDP without any delta. Rhos and deltas are bounded apart from each
    other: were a delta that single releases leave free to be converted at, whoever asks could
    decide by answers which of the two fails, and both could (the bounds of adaptive composition are
    on each: Whitehouse, Ramdas, Rogers, Wu 2023).
    """
    every = list(costs)
    if composition is Composition.BASIC or not every:
        epsilon = sum((cost.epsilon for cost in every), Fraction(0))
        return Cost(epsilon, sum((cost.delta for cost in every), Fraction(0)))
    rho = sum((_rho(cost) for cost in every), Fraction(0))
    own = sum((cost.delta for cost in every if cost.rho is None), Fraction(0))
    converted_at = delta / 2
    scale = math.sqrt(float(1 / (2 * rho)))  # of Gaussian noise with this rho
    scale = math.nextafter(scale, 0.0)
    return Cost(gaussian_epsilon(scale, 1.0, converted_at), own + converted_at, rho)


def _rho(cost: Cost) -> Fraction:
    return cost.epsilon**2 / 2 if cost.rho is None else cost.rho


_VERSION = 2  # of the file's tables; others are refused
_PATIENCE = 60.0  # seconds to wait for another process
_MARK = "user.hubbub.spends"
"""An attribute of the file, where there are such: how many spends it held. What is written over the
file doesn't change it, and most copies don't have it."""
_TABLES = {
    "facts": "version integer not null, epsilon text not null, delta text not null, "
    "composition text not null, declaration text not null, digest text not null, "
    "secret blob not null",
    "spends": "number integer primary key, at text not null, query text not null, "
    "mechanism text not null, epsilon text not null, delta text not null, rho text, "
    "digest text not null",
    "even": "spends integer not null",
    "odd": "spends integer not null",
    "places": "at text not null, file text not null",
}
_KEPT = ("facts", "spends", "places")  # whose rows stay as they are
_NEW = {"facts": "from facts", "spends": "from spends where number = new.number"}
"""Where there is such a row, no other takes its place."""


def _schema() -> Iterator[str]:
    for table, columns in _TABLES.items():
        yield f"create table {table} ({columns})"
    for table in ("even", "odd"):
        yield f"insert into {table} values (0)"  # noqa: S608 - our own names
    for table in _KEPT:
        refusal = f"begin select raise(abort, '{table} are never changed'); end"
        for verb in ("delete", "update"):
            yield f"create trigger {table}_{verb} before {verb} on {table} {refusal}"
        if table in _NEW:
            there = f"when exists (select 1 {_NEW[table]})"
            yield f"create trigger {table}_insert before insert on {table} {there} {refusal}"


@dataclass(frozen=True, slots=True)
class Spend:
    """The cost of one query."""

    number: int  # 1 for the first
    at: str  # UTC, to the second
    query: str  # what was asked; its public arguments are in what was released
    mechanism: str
    cost: Cost
    digest: str  # of the data that were asked


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
        row = connection.execute(
            "select facts.*, (select file from places order by rowid desc limit 1) from facts"
        ).fetchone()
        if row is None or row[0] != _VERSION:
            raise LedgerError(f"{path}: must be a ledger of version {_VERSION}")
        try:
            self.epsilon, self.delta = Fraction(row[1]), Fraction(row[2])
            self.composition = Composition(row[3])
            self.declaration, self.digest, self.secret = str(row[4]), str(row[5]), bytes(row[6])
        except (TypeError, ValueError) as error:
            raise LedgerError(f"{path}: its facts are damaged: {error}") from error
        self._file = str(row[7])

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
        """Make a ledger where there is no file yet; raises `LedgerError` if it can't be made."""
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise LedgerError(f"{path}: exists; a budget is set once and for all") from None
        except OSError as error:
            raise LedgerError(f"{path}: can't be made: {error.strerror}") from error
        os.close(handle)
        try:
            with _connected(path) as connection:
                with _transaction(path, connection):
                    for statement in _schema():
                        connection.execute(statement)
                    facts = (_VERSION, str(epsilon), str(delta), composition.value, declaration)
                    connection.execute(
                        "insert into facts values (?, ?, ?, ?, ?, ?, ?)",
                        (*facts, digest, os.urandom(32)),
                    )
                    _record_place(path, connection, spends=0)
                return cls(path, connection)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path, *, adopt: bool = False) -> Ledger:
        """Open a ledger.

        Parameters
        ----------
        path : Path
            The ledger's file.
        adopt : bool
            States that a file that isn't the one that was spent from, but a copy, is the only one
            that will be from now on, and has all of its spends. The file keeps a record of it.

        Raises
        ------
        LedgerError
            If there is none, or it isn't the file that was spent from, or has lost spends.
        """
        if not path.is_file():
            raise LedgerError(f"{path}: must be a ledger; `hubbub-release init` makes one")
        try:
            _refuse_links(path)  # first: at another name of the file its journal isn't seen
            with _connected(path) as connection:
                ledger = cls(path, connection)
                ledger._refuse_lost_spends()
                if (found := _file(path)) == ledger._file:
                    return ledger
                if not adopt:
                    raise LedgerError(
                        f"{path}: file = {found}: must be {ledger._file}, which was spent from: "
                        "this is another file, a copy perhaps, and may lack spends. Spend from "
                        "that file; if it is gone for good and this one has all spends, "
                        f"`hubbub-release ledger {path} --adopt` says so"
                    )
                with _transaction(path, connection):
                    _record_place(path, connection, len(ledger.spends()))
                return cls(path, connection)
        except (OSError, sqlite3.DatabaseError) as error:
            raise LedgerError(
                f"{path}: must be a ledger that can be read: {error}. If it was moved after "
                f"a process was killed, move its journal, too, to {path}-journal"
            ) from error

    def refuse_beyond(self, query: str, cost: Cost) -> None:
        """Refuse a cost for which less is left now, before any work (raises BudgetError)."""
        before = [spend.cost for spend in self.spends()]
        after = total([*before, cost], self.composition, self.delta)
        if after.epsilon > self.epsilon or after.delta > self.delta:
            spent = total(before, self.composition, self.delta)
            raise BudgetError(
                f"{query}: costs {shown(cost)}; {shown(spent)} of {shown(self.budget)} has "
                f"been spent ({self.composition.value} composition)"
            )

    def spend(self, query: str, mechanism: str, cost: Cost, digest: str) -> Spend:
        """Record a cost durably; only then may its noise be drawn.

        Raises
        ------
        BudgetError
            If less is left.
        LedgerError
            If it can't be written, or the file isn't the one that was opened, or has lost spends.
            Then nothing may be released, even if the file turns out to hold the spend.
        """
        if cost.epsilon < 0 or cost.delta < 0 or (cost.rho is not None and cost.rho < 0):
            raise LedgerError(f"{query}: costs less than nothing")
        now = _now()
        rho = None if cost.rho is None else str(cost.rho)
        with _transaction(self.path, self._connection):
            self._refuse_replaced()
            self._refuse_lost_spends()
            self.refuse_beyond(query, cost)
            values = (now, query, mechanism, str(cost.epsilon), str(cost.delta), rho, digest)
            cursor = self._connection.execute(
                "insert into spends (at, query, mechanism, epsilon, delta, rho, digest) "
                "values (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            number = int(cursor.lastrowid or 0)
            # Two tables in turn: see `_refuse_lost_spends`.
            table = "odd" if number % 2 else "even"
            self._connection.execute(f"update {table} set spends = ?", (number,))  # noqa: S608
        self._refuse_replaced()
        _set_mark(self.path, number)
        return Spend(number, now, query, mechanism, cost, digest)

    def _refuse_replaced(self) -> None:
        """Refuse to go on where the file is gone, another one, or has got another name."""
        try:
            _refuse_links(self.path)
            found = _file(self.path)
        except OSError as error:
            found = f"{error.strerror}"
        if found != self._file:
            raise LedgerError(
                f"{self.path}: isn't the file any more that was opened: file = {found}: must be "
                f"{self._file}"
            )

    def _refuse_lost_spends(self) -> None:
        """Refuse a file that held more spends than it holds.

        Notes
        -----
        Each spend also writes its number into one of two tables, in turn, which lie on pages of
        their own. A process that is killed in the middle leaves a journal, next to the file,
        of the pages that its spend changed. If the file is moved without it, spent from, and moved
        back, SQLite takes the old pages for the true ones. But the number of the very next spend
        isn't among them. The mark shows the same of a whole file that was written over.
        """
        marked = _mark(self.path)  # first, for others may be spending
        held, *written = self._connection.execute(
            "select count(*), (select spends from even), (select spends from odd) from spends"
        ).fetchone()
        expected = max(*written, marked or 0)
        if held < expected:
            raise LedgerError(
                f"{self.path}: spends = {held}: must be at least {expected}: an earlier copy or "
                "another journal was written over it, or its journal was left behind when it was "
                f"moved. Bring back the later file, or that journal as {self.path}-journal; if "
                "they are lost, only a new ledger can go on, with what was left of the budget"
            )

    def adopted(self) -> list[str]:
        """Return when copies were adopted: UTC, to the second."""
        rows = self._connection.execute("select at from places order by rowid").fetchall()
        return [str(at) for (at,) in rows[1:]]

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

    def remaining(self) -> Cost:
        """Return what is left; by zCDP the next release may cost less than its epsilon, or more."""
        spent, none = self.spent(), Fraction(0)
        left = max(self.epsilon - spent.epsilon, none), max(self.delta - spent.delta, none)
        return Cost(*left)

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


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refuse_links(path: Path) -> None:
    links = path.stat().st_nlink
    if links != 1:
        raise LedgerError(
            f"{path}: hard links = {links}: must be 1: a process that is killed at one name of a "
            "file leaves a journal that isn't seen at another. Remove the other names"
        )


def _file(path: Path) -> str:
    """Return an identity that a file doesn't share with its copies.

    File systems are named by f_fsid, which for most of them stays when they are mounted again, as
    the number of a device doesn't.
    """
    marked = "unmarked" if _mark(path) is None else "marked"
    return f"inode {path.stat().st_ino} of file system {os.statvfs(path).f_fsid:x}, {marked}"


def _mark(path: Path) -> int | None:
    try:
        return int(os.getxattr(path, _MARK))
    except (AttributeError, OSError, ValueError):  # not on this system, or this file
        return None


def _set_mark(path: Path, spends: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        os.setxattr(path, _MARK, b"%d" % spends)


def _record_place(path: Path, connection: sqlite3.Connection, spends: int) -> None:
    _set_mark(path, spends)
    connection.execute("insert into places values (?, ?)", (_now(), _file(path)))


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection, which is closed if anything is raised."""
    connection = sqlite3.connect(path.absolute(), timeout=_PATIENCE, isolation_level=None)
    try:
        connection.execute("pragma synchronous = extra")
        _keep_spends_in_the_file(path, connection)
        yield connection
    except BaseException:
        connection.close()
        raise


def _keep_spends_in_the_file(path: Path, connection: sqlite3.Connection) -> None:
    connection.execute("pragma schema_version")  # read, or SQLite doesn't see what others changed
    (mode,) = connection.execute("pragma journal_mode = delete").fetchone()
    if mode != "delete":
        raise LedgerError(
            f"{path}: journal_mode = {mode}: must be delete; close the program that has changed it"
        )


@contextmanager
def _transaction(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the only right to write; commit at the end, or leave everything as it was."""
    try:
        _keep_spends_in_the_file(path, connection)
        connection.execute("begin immediate")
        try:
            _keep_spends_in_the_file(path, connection)  # no process can change it any more
            yield
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: can't be written: {error}") from error
