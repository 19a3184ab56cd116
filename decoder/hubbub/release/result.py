"""Released rows, and the budget spent, as estimates.

Rows may be published. Invariant: nothing here but rows depends on data, so all of it may
be published; a ledger's estimates hold a digest of the data, and are the curator's alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from hubbub.protocol import counted
from hubbub.release.ledger import Ledger, shown
from hubbub.release.mechanisms.counts import Mechanism, Row
from hubbub.release.noise import CONFIDENCE, Cost
from hubbub.reporting import (
    Block,
    Chart,
    Column,
    Estimates,
    Finding,
    Heading,
    IntervalChart,
    Labels,
    Level,
    Line,
    Page,
    Section,
    Table,
    as_facts,
    as_lines,
    headings,
    visible,
)

_ROWS_IN_TERMINAL = 40  # about a screen
_ROWS_IN_CHART = 30  # as many as have legible labels on a page
_ROWS_IN_REPORT = 1_000  # more belong into a file of data
_LARGEST_EXPONENT = 700.0  # e^709 is the largest double


class Query(NamedTuple):
    """A query, as it was asked."""

    command: str  # the command's name
    column: str  # the column that was asked about; empty for whole rows
    subject: str  # what a sentence about the answer begins with
    keyed: bool = False  # whether there is one number for each key
    total: bool = False  # whether the first row is the number of all rows

    @property
    def text(self) -> str:
        """How the ledger names it."""
        return f"{self.command}: {self.subject}"


def release_estimates(
    query: Query,
    mechanism: Mechanism[Any],
    rows: Sequence[Row],
    ledger: Ledger,
    rows_per_user: int,
) -> Estimates:
    """Return what a mechanism released, with its cost and its promise.

    Columns are "key", "value", "radius", "epsilon", "delta" and "mechanism", both costs being those
    of all rows together; the first row is the total if the query has one. `metadata["summary"]` has
    what else programs need.
    """
    total, rows = (rows[0], rows[1:]) if query.total else (None, rows)
    named = any(isinstance(row.value, str) for row in rows)
    n_rows, cost = len(rows), mechanism.cost
    columns = {
        "key": Column(str, [row.key for row in rows]),
        "value": Column(str if named else float, [row.value for row in rows]),
        "radius": Column(float, [row.radius for row in rows]),
        "epsilon": Column(float, [float(cost.epsilon)] * n_rows),
        "delta": Column(float, [float(cost.delta)] * n_rows),
        "mechanism": Column(str, [mechanism.name] * n_rows),
    }
    unit = "a person, of whom one row counts"
    if rows_per_user > 1:
        unit = f"a person, of whom at most {rows_per_user:,} rows count"
    answer, promise = _answer(query, rows, total), _promise(cost)
    findings = (
        Finding("answer", "", answer),
        Finding("promise", "", promise, float(cost.epsilon)),
        *_facts(mechanism, unit, ledger, total),
    )
    remaining = ledger.remaining()
    summary: dict[str, object] = {
        "query": query.command,
        "column": query.column,
        "subject": query.subject,
        "mechanism": mechanism.name,
        "theorem": mechanism.theorem,
        "epsilon": float(cost.epsilon),
        "delta": float(cost.delta),
        "unit": unit,
        "rows_per_user": rows_per_user,
        "confidence": CONFIDENCE,
        "noise_variance": rows[0].variance if rows else None,
        "total": None if total is None else total.value,
        "total_radius": None if total is None else total.radius,
        "total_variance": None if total is None else total.variance,
        "composition": ledger.composition.value,
        "budget_epsilon": float(ledger.epsilon),
        "budget_delta": float(ledger.delta),
        "remaining_epsilon": float(remaining.epsilon),
        "remaining_delta": float(remaining.delta),
        "answer": answer,
        "promise": promise,
        "version": version("hubbub"),
    }
    charts = (_chart(query, rows),) if query.keyed else ()
    released = Estimates(
        columns=columns,
        keys=("key",),
        findings=findings,
        metadata={"summary": summary},
        charts=charts,
    )
    tables = (_table(released, _ROWS_IN_REPORT),) if rows else ()
    sections = (
        Section("What was released", charts=charts, tables=tables),
        Section("Privacy", (promise,), as_facts(findings)),
    )
    page = Page(f"Released: {query.subject}", answer, sections)
    return replace(released, view=_view(released, _ROWS_IN_TERMINAL), page=page)


def with_all_rows(released: Estimates) -> Estimates:
    """Return a release of which a terminal shows all rows."""
    return replace(released, view=_view(released, len(released)))


def _answer(query: Query, rows: Sequence[Row], total: Row | None) -> str:
    """Return what was found, in a sentence."""
    subject = query.subject[0].upper() + query.subject[1:]
    if not rows and query.keyed:
        return f"{subject}: no key has enough people to be released."
    if not rows:
        return f"{subject} isn't released: a few people might change it."
    first = rows[0]
    if isinstance(first.value, str):
        names = ", ".join(visible(f"{row.value}") for row in rows)
        return f"{subject}: {names}."
    if query.keyed:
        of_all = "" if total is None else f" of about {_number(float(total.value))} rows"
        numbers = counted(len(rows), "number")
        least = min(rows, key=lambda row: row.radius)
        each = ", each" if least.radius == max(row.radius for row in rows) else ", most"
        return f"{subject}: {numbers}{of_all}{_give_or_take(least, each)}."
    if math.isnan(first.value):
        return f"{subject} isn't known: too few rows for so small an epsilon."
    return f"{subject} is about {_number(first.value)}{_give_or_take(first)}."


def _promise(cost: Cost) -> str:
    """Return what was promised to people, in a sentence."""
    times = math.exp(min(float(cost.epsilon), _LARGEST_EXPONENT))
    ratio = f"{times:,.3g}" if times < 1e4 else f"{times:.1e}"
    but = f", but with probability {float(cost.delta):g}" if cost.delta else ""
    return (
        f"Such a result is at most {ratio} times as likely with any one person's data as without "
        f"them, and the other way round{but} (differential privacy, {shown(cost)})."
    )


def _facts(
    mechanism: Mechanism[Any], unit: str, ledger: Ledger, total: Row | None
) -> Iterator[Finding]:
    """Yield the total if it was released, and what it was released by and for."""
    if total is not None:
        number = f"{_number(float(total.value))}{_give_or_take(total)}"
        yield Finding("total", "rows with a key", number, total.value)
    cost, remaining = mechanism.cost, ledger.remaining()
    remains = (
        f"{shown(remaining)} of {shown(ledger.budget)} ({ledger.composition.value} composition)"
    )
    yield Finding("mechanism", "mechanism", mechanism.name)
    yield Finding("theorem", "theorem", mechanism.theorem)
    yield Finding("cost", "cost", shown(cost), float(cost.epsilon))
    yield Finding("unit", "unit of privacy", unit)
    yield Finding("remaining", "remains", remains, float(remaining.epsilon))


def _view(released: Estimates, most: int) -> tuple[Block, ...]:
    table = (_table(released, most), Line("")) if len(released) else ()
    sentences = as_lines(released.findings, wraps=True)
    return (*table, *sentences, Line(""), as_facts(released.findings))


def _table(released: Estimates, most: int) -> Table:
    """Return the first rows of a release for people; a number without a key has its subject."""
    summary: Any = released.metadata["summary"]
    columns = (released[name] for name in ("key", "value", "radius"))
    rows = tuple(
        (
            visible(key or summary["subject"]),
            visible(value) if isinstance(value, str) else _number(float(value)),
            "" if math.isnan(radius) else f"± {_number(radius)}",
        )
        for key, value, radius in zip(*columns, strict=True)
    )
    heads = headings("key", "value", f"{CONFIDENCE:.0%} radius")
    left_out = f"{len(rows) - most:,}" if len(rows) > most else ""
    return Table("Released", heads, rows[:most], left_out)


def _chart(query: Query, rows: Sequence[Row]) -> Chart:
    """Draw the largest numbers with their radii."""
    largest = sorted(rows, key=lambda row: -float(row.value))[:_ROWS_IN_CHART]
    values, radii = (
        np.array([getattr(row, name) for row in largest], float) for name in ("value", "radius")
    )
    described = (
        f"The {len(largest)} largest of {len(rows):,} released numbers; bars are where "
        f"{CONFIDENCE:.0%} of releases would have the number without noise."
    )
    labels = Labels("released", query.subject.capitalize(), described, "rows")
    names, ends = [visible(row.key) for row in largest], (values - radii, values + radii)
    return IntervalChart(labels, names, values, *ends, unit="", first="key")


def ledger_estimates(ledger: Ledger) -> Estimates:
    """Return one row for each spend of a ledger, and what is left.

    `metadata["summary"]` has the budget and what was spent as exact fractions.
    """
    spends, spent = tuple(ledger.spends()), ledger.spent()
    adopted = tuple(ledger.adopted())
    findings = tuple(_ledger_findings(ledger, adopted))
    summary = {
        "composition": ledger.composition.value,
        "theorem": ledger.composition.theorem,
        "budget_epsilon": str(ledger.epsilon),
        "budget_delta": str(ledger.delta),
        "spent_epsilon": str(spent.epsilon),
        "spent_delta": str(spent.delta),
        "adopted": list(adopted),
    }
    rows = tuple(
        (f"{each.number}", each.at, each.query, each.mechanism, shown(each.cost)) for each in spends
    )
    texts = (Heading(name, "left") for name in ("time", "query", "mechanism", "cost"))
    table = Table("Spent", (Heading("number"), *texts), rows)
    return Estimates(
        columns={
            "number": Column(int, [each.number for each in spends]),
            "time": Column(str, [each.at for each in spends]),
            "query": Column(str, [each.query for each in spends]),
            "mechanism": Column(str, [each.mechanism for each in spends]),
            "epsilon": Column(float, [float(each.cost.epsilon) for each in spends]),
            "delta": Column(float, [float(each.cost.delta) for each in spends]),
            "digest": Column(str, [each.digest for each in spends]),
        },
        keys=("number",),
        findings=findings,
        metadata={"summary": summary},
        view=(*((table, Line("")) if spends else ()), as_facts(findings)),
    )


def _ledger_findings(ledger: Ledger, adopted: Sequence[str]) -> Iterator[Finding]:
    """Yield the balance, and whether this is an adopted copy."""
    budget, spent, remaining = ledger.budget, ledger.spent(), ledger.remaining()
    yield Finding("budget", "budget", shown(budget), float(budget.epsilon))
    yield Finding("spent", "spent", shown(spent), float(spent.epsilon))
    yield Finding("remaining", "remains", shown(remaining), float(remaining.epsilon))
    yield Finding("composition", "composition", ledger.composition.theorem)
    if adopted:
        times = ", ".join(adopted)
        yield Finding("adopted", "adopted as a copy", times, list(adopted), Level.WARNING)


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
