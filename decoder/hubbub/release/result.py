"""What was released, and what was spent, as results.

Rows are what may be published. Invariant: nothing here but rows depends on data, so all of it may
be; a ledger's result holds a digest of the data, and is the curator's alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

from hubbub.release.accounting import Composition, group
from hubbub.release.ledger import Ledger, Spend, shown
from hubbub.release.mechanisms.mechanism import Mechanism, Row
from hubbub.release.noise import CONFIDENCE, Cost
from hubbub.reporting.charts import Chart, Interval, IntervalChart, Labels
from hubbub.reporting.result import (
    ROWS,
    Block,
    Columns,
    Heading,
    Line,
    Report,
    Result,
    Section,
    Table,
    Types,
    columns_of,
    headings,
)
from hubbub.reporting.text import visible

_DRAWN = 30
_LISTED = 1_000


class Question(NamedTuple):
    """What was asked.

    Attributes
    ----------
    query, column : str
        The command, and the column ("" for whole rows).
    subject : str
        What a sentence about the answer begins with.
    keyed : bool
        Whether there is a number a key.
    of_users : str
        "half" if half of the users were counted, because the others chose the keys.
    total : bool
        Whether the first row is the number of all rows.
    """

    query: str
    column: str
    subject: str
    keyed: bool = False
    total: bool = False
    of_users: str = "all"

    @property
    def text(self) -> str:
        """How the ledger names it."""
        return f"{self.query}: {self.subject}"


class Account(NamedTuple):
    """A ledger after a release."""

    composition: Composition
    budget: Cost
    spent: Cost

    @property
    def remaining(self) -> Cost:
        """What is left; by zCDP the next release may cost less than its epsilon, or more."""
        epsilon = max(self.budget.epsilon - self.spent.epsilon, 0 * self.budget.epsilon)
        delta = max(self.budget.delta - self.spent.delta, 0 * self.budget.delta)
        return Cost(epsilon, delta)


@dataclass(frozen=True, slots=True, repr=False)
class ReleaseResult(Result):
    """A release.

    Attributes
    ----------
    question : Question
    mechanism, theorem : str
    cost : Cost
        Of all rows together.
    rows : tuple of Row
    total : Row or None
        The number of all rows, if it was released.
    account : Account
    rows_per_user : int
        Most rows of a user, which is the unit of privacy.
    limit : int
        Most rows that a terminal shows.
    """

    question: Question
    mechanism: str
    theorem: str
    cost: Cost
    rows: tuple[Row, ...]
    total: Row | None
    account: Account
    rows_per_user: int
    limit: int = 40

    @classmethod
    def of(
        cls,
        question: Question,
        mechanism: Mechanism[Any],
        rows: tuple[Row, ...],
        account: Account,
        rows_per_user: int,
    ) -> ReleaseResult:
        """Return what a mechanism released as a result."""
        total, rows = (rows[0], rows[1:]) if question.total else (None, rows)
        facts = mechanism.name, mechanism.theorem, mechanism.cost
        return cls(question, *facts, rows, total, account, rows_per_user)

    @property
    def types(self) -> Types:
        """The columns; names have no radius."""
        named = any(isinstance(row.value, str) for row in self.rows)
        value: type = str if named else float
        return {
            "key": str,
            "value": value,
            "radius": float,
            "epsilon": float,
            "delta": float,
            "mechanism": str,
        }

    def parts(self) -> Iterator[Columns]:
        """Yield the rows; epsilon and delta are of all of them together."""
        cost = {"epsilon": float(self.cost.epsilon), "delta": float(self.cost.delta)}
        rows = [
            {"key": row.key, "value": row.value, "radius": row.radius, **cost}
            | {"mechanism": self.mechanism}
            for row in self.rows
        ]
        yield columns_of(self.types, rows)

    @property
    def unit(self) -> str:
        """What adding or removing is hidden."""
        if self.rows_per_user == 1:
            return "a person, of whom one row counts"
        return f"a person, of whom at most {self.rows_per_user:,} rows count"

    @property
    def answer(self) -> str:
        """What was found, in a sentence."""
        subject = self.question.subject[0].upper() + self.question.subject[1:]
        if not self.rows and self.question.keyed:
            return f"{subject}: no key has enough people to be released."
        if not self.rows:
            return f"{subject} isn't released: a few people might change it."
        first = self.rows[0]
        if isinstance(first.value, str):
            names = ", ".join(visible(f"{row.value}") for row in self.rows)
            return f"{subject}: {names}."
        if self.question.keyed:
            of_all = ""
            if self.total is not None:
                of_all = f" of about {_number(float(self.total.value))} rows"
            numbers = "1 number" if len(self.rows) == 1 else f"{len(self.rows):,} numbers"
            least = min(self.rows, key=lambda row: row.radius)
            each = ", each" if least.radius == max(row.radius for row in self.rows) else ", most"
            return f"{subject}: {numbers}{of_all}{_give_or_take(least, each)}."
        if math.isnan(first.value):
            return f"{subject} isn't known: too few rows for so small an epsilon."
        return f"{subject} is about {_number(first.value)}{_give_or_take(first)}."

    @property
    def promise(self) -> str:
        """What was promised to people, in a sentence."""
        times = math.exp(min(float(self.cost.epsilon), 700.0))
        ratio = f"{times:,.3g}" if times < 1e4 else f"{times:.1e}"
        but = f", but with probability {float(self.cost.delta):g}" if self.cost.delta else ""
        return (
            f"Such a result is at most {ratio} times as likely with any one person's data as "
            f"without them, and the other way round{but} (differential privacy, "
            f"{shown(self.cost)})."
        )

    def document(self) -> Mapping[str, object]:
        """Return "summary" and "rows"."""
        question, account, total = self.question, self.account, self.total
        summary: dict[str, object] = {
            "query": question.query,
            "column": question.column,
            "subject": question.subject,
            "mechanism": self.mechanism,
            "theorem": self.theorem,
            "epsilon": float(self.cost.epsilon),
            "delta": float(self.cost.delta),
            "unit": self.unit,
            "rows_per_user": self.rows_per_user,
            "of_users": question.of_users,
            "confidence": CONFIDENCE,
            "noise_variance": self.rows[0].variance if self.rows else None,
            "total": None if total is None else total.value,
            "total_radius": None if total is None else total.radius,
            "total_variance": None if total is None else total.variance,
            "composition": account.composition.value,
            "budget_epsilon": float(account.budget.epsilon),
            "budget_delta": float(account.budget.delta),
            "remaining_epsilon": float(account.remaining.epsilon),
            "remaining_delta": float(account.remaining.delta),
            "answer": self.answer,
            "promise": self.promise,
            "version": version("hubbub"),
        }
        return {"summary": summary, "rows": ROWS}

    def blocks(self) -> Iterator[Block]:
        """Yield the rows, the sentences and the account."""
        if self.rows:
            yield self._table(self.limit)
            yield Line("")
        yield Line(self.answer)
        yield Line(self.promise)
        yield Line("")
        yield self._facts()

    def report(self) -> Report:
        """Return what was released, by what, and what is left."""
        tables = (self._table(_LISTED),) if self.rows else ()
        sections = (
            Section("What was released", charts=self.picture(), tables=tables),
            Section("Privacy", (self.promise,), self._facts()),
        )
        return Report(f"Released: {self.question.subject}", self.answer, sections)

    def picture(self) -> tuple[Chart, ...]:
        """Return the largest numbers by key, with their radii."""
        if not self.question.keyed:
            return ()
        shown_rows = sorted(self.rows, key=lambda row: -float(row.value))[:_DRAWN]
        intervals = [
            Interval(visible(row.key), value, value - row.radius, value + row.radius)
            for row in shown_rows
            for value in [float(row.value)]
        ]
        described = (
            f"The {len(intervals)} largest of {len(self.rows):,} released numbers; bars are where "
            f"{CONFIDENCE:.0%} of releases would have the number without noise."
        )
        labels = Labels("released", self.question.subject.capitalize(), described, "rows")
        return (IntervalChart(labels, intervals, unit="", first="key"),)

    def _table(self, most: int) -> Table:
        rows = [
            (
                visible(row.key) if row.key or self.question.keyed else self.question.subject,
                visible(row.value) if isinstance(row.value, str) else _number(float(row.value)),
                "" if math.isnan(row.radius) else f"± {_number(row.radius)}",
            )
            for row in self.rows[:most]
        ]
        heads = headings("key", "value", f"{CONFIDENCE:.0%} radius")
        left_out = f"{len(self.rows) - most:,}" if len(self.rows) > most else ""
        return Table("Released", heads, tuple(rows), left_out)

    def _facts(self) -> dict[str, str]:
        account = self.account
        facts = {
            "mechanism": self.mechanism,
            "theorem": self.theorem,
            "cost": shown(self.cost),
            "unit of privacy": self.unit,
            "remains": f"{shown(account.remaining)} of {shown(account.budget)} "
            f"({account.composition.value} composition)",
        }
        if self.total is not None:
            total = f"{_number(float(self.total.value))}{_give_or_take(self.total)}"
            facts = {"rows with a key": total} | facts
        return facts


_SPENDS: dict[str, type] = {
    "number": int,
    "time": str,
    "query": str,
    "mechanism": str,
    "epsilon": float,
    "delta": float,
    "digest": str,
}


@dataclass(frozen=True, slots=True, repr=False)
class LedgerResult(Result):
    """What was spent of a budget.

    Attributes
    ----------
    people : int
        So many together, whose protection is told.
    adopted : tuple of str
        When copies were adopted.
    """

    path: str
    account: Account
    spends: tuple[Spend, ...]
    people: int = 1
    adopted: tuple[str, ...] = ()

    @classmethod
    def of(cls, ledger: Ledger, people: int = 1) -> LedgerResult:
        """Return a ledger as a result."""
        account = Account(ledger.composition, ledger.budget, ledger.spent())
        adopted = tuple(ledger.adopted())
        return cls(str(ledger.path), account, tuple(ledger.spends()), people, adopted)

    @property
    def types(self) -> Types:
        """The columns."""
        return _SPENDS

    def parts(self) -> Iterator[Columns]:
        """Yield a row a spend."""
        rows = [
            dict(
                zip(
                    _SPENDS,
                    (
                        each.number,
                        each.at,
                        each.query,
                        each.mechanism,
                        float(each.cost.epsilon),
                        float(each.cost.delta),
                        each.digest,
                    ),
                    strict=True,
                )
            )
            for each in self.spends
        ]
        yield columns_of(_SPENDS, rows)

    def document(self) -> Mapping[str, object]:
        """Return "summary" and "rows"; fractions are texts, and exact."""
        account = self.account
        of_all = group(account.spent, self.people)
        summary = {
            "composition": account.composition.value,
            "theorem": account.composition.theorem,
            "budget_epsilon": str(account.budget.epsilon),
            "budget_delta": str(account.budget.delta),
            "spent_epsilon": str(account.spent.epsilon),
            "spent_delta": str(account.spent.delta),
            "adopted": list(self.adopted),
            "people": self.people,
            "group_epsilon": float(of_all.epsilon),
            "group_delta": float(of_all.delta),
        }
        return {"summary": summary, "rows": ROWS}

    def blocks(self) -> Iterator[Block]:
        """Yield the spends, their total and what it means for several people."""
        rows = tuple(
            (f"{each.number}", each.at, each.query, each.mechanism, shown(each.cost))
            for each in self.spends
        )
        left = (Heading(name, "left") for name in ("time", "query", "mechanism", "cost"))
        if rows:
            yield Table("Spent", (Heading("number"), *left), rows)
            yield Line("")
        account = self.account
        yield {
            "budget": shown(account.budget),
            "spent": shown(account.spent),
            "remains": shown(account.remaining),
            "composition": account.composition.theorem,
            **({"adopted as a copy": ", ".join(self.adopted)} if self.adopted else {}),
        }
        if self.people > 1:
            of_all = group(account.spent, self.people)
            yield Line("")
            yield Line(
                f"Of {self.people:,} people together (a household, say) the releases reveal at "
                f"most {shown(of_all)}: {self.people:,} epsilon, and delta "
                f"(e^({self.people:,} epsilon) - 1) / (e^epsilon - 1) (group privacy; Vadhan 2017, "
                "lemma 2.2)."
            )


def _number(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def _give_or_take(row: Row, which: str = ",") -> str:
    if math.isnan(row.radius):
        return ""
    return (
        f"{which} give or take {_number(row.radius)} ({CONFIDENCE:.0%} of releases are that close)"
    )
