"""The suite's cases -> estimates: a figure and its error per column, one row per case."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields

from evaluation.laboratory import Figure
from evaluation.suite.bounds import CaseResult, oracle_ratios, promises_kept, variation_ratios
from hubbub.protocol import counted
from hubbub.reporting import (
    Estimates,
    Finding,
    Heading,
    Level,
    Line,
    Page,
    Section,
    Table,
    columns_from,
)

_COLUMNS: tuple[tuple[str, Callable[[CaseResult], str]], ...] = (
    ("case", lambda r: r.case),
    ("runs", lambda r: str(r.runs)),
    ("listed", lambda r: f"{r.candidates:,}"),
    ("found", lambda r: _count(r.true_positives)),
    ("oracle's", lambda r: _count(r.oracle)),
    ("if listed", lambda r: _count(r.if_listed)),
    ("coverage", lambda r: _shown(r.coverage)),
    ("of detected", lambda r: _shown(r.coverage_detected)),
    ("of unknown", lambda r: _rate(r.coverage_unknown)),
    ("of unlisted", lambda r: _rate(r.coverage_unlisted)),
    ("of common", lambda r: _shown(r.coverage_common)),
    ("of margins", lambda r: _shown(r.coverage_margins)),
    ("of conditional", lambda r: _shown(r.coverage_conditionals)),
    ("of V", lambda r: _rate(r.coverage_strength)),
    ("rejected", lambda r: _rate(r.rejected)),
    ("false share", lambda r: _shown(r.false_share)),
    ("any false", lambda r: _shown(r.any_false)),
    ("variation", lambda r: _shown(r.total_variation)),
    ("of refit", lambda r: _shown(r.refit_variation)),
    ("plain's", lambda r: _shown(r.baseline_variation)),
    ("plain's false", lambda r: _shown(r.baseline_false_share)),
    ("CPU s", lambda r: f"{r.seconds.mean:.2f}"),
    ("broken", lambda r: ", ".join(r.broken)),
)


def suite_estimates(results: Sequence[CaseResult]) -> Estimates:
    """Return what the suite measured, and whether promises were kept.

    results: At least one.
    """
    rows = [_row(result) for result in results]
    types = {name: type(value) for name, value in rows[0].items()}
    sentence, kept = suite_sentence(results), promises_kept(results)
    table = _table(results)
    return Estimates(
        columns=columns_from(types, rows),
        keys=("case",),
        findings=(Finding("promises", "", sentence, kept, Level.FACT if kept else Level.WARNING),),
        view=(table, Line(sentence)),
        page=Page(
            "How the decoder keeps its promises", sentence, [Section("Cases", tables=(table,))]
        ),
    )


def _row(result: CaseResult) -> dict[str, object]:
    """Return a case's cells; an error that rests on a single trial isn't known."""
    row: dict[str, object] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Figure):
            error = math.nan if math.isinf(value.std_error) else value.std_error
            row |= {field.name: value.mean, f"{field.name}_std_error": error}
        else:
            row[field.name] = "; ".join(value) if isinstance(value, tuple) else value
    return row


def _table(results: Sequence[CaseResult]) -> Table:
    """Return the table for people: means over runs, each with its standard error.

    Columns that no case has a figure in are left out: they would crowd the others off the screen.
    """
    columns = [column for column in _COLUMNS if any(column[1](result) for result in results)]
    return Table(
        "Means over runs ± standard errors",
        tuple(
            Heading(text, "left" if text in {"case", "broken"} else "right") for text, _ in columns
        ),
        tuple(tuple(cell(result) for _, cell in columns) for result in results),
    )


def suite_sentence(results: Sequence[CaseResult]) -> str:
    """Return what the whole suite comes to, in a sentence or two."""
    broken = [result for result in results if result.broken]
    ratios = variation_ratios(results)
    compared = (
        f"Total variation over the detected is on average {sum(ratios) / len(ratios):.2f} times "
        f"that of least squares with the two-standard-error rule (largest {max(ratios):.2f}). "
        if ratios
        else ""
    )
    of_oracle = oracle_ratios(results)
    if of_oracle:
        compared += (
            f"{sum(of_oracle) / len(of_oracle):.0%} of what the oracle finds is found on average "
            f"(least {min(of_oracle):.0%}). "
        )
    verdict = f"{len(broken)} of {counted(len(results), 'case')} broke a bound"
    if broken:
        verdict += f": {', '.join(result.case for result in broken)}"
    return f"{compared}{verdict}."


def _shown(figure: Figure) -> str:
    if math.isnan(figure.mean):
        return ""
    error = "" if math.isinf(figure.std_error) else f" ± {_short(figure.std_error)}"
    return f"{_short(figure.mean)}{error}"


def _count(figure: Figure) -> str:
    return "" if math.isnan(figure.mean) else f"{figure.mean:.1f}"


def _rate(figure: Figure) -> str:
    return "" if math.isnan(figure.mean) else f"{figure.mean:.2f}"


def _short(number: float) -> str:
    return f"{number:.3f}".removeprefix("0")
