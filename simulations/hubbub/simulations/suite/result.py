"""The suite's results as a table for a terminal, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from rich.table import Table

from hubbub.reporting.formats.data_files import json_text
from hubbub.reporting.formats.files import atomic_write
from hubbub.simulations.laboratory import Figure
from hubbub.simulations.suite.bounds import CaseResult, oracle_ratios, variation_ratios

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


def suite_table(results: Sequence[CaseResult]) -> Table:
    """Return the table: means over runs, each with its standard error.

    Columns that no case has a figure in are left out: they would crowd the others off the screen.
    """
    table = Table(title="Means over runs ± standard errors", title_justify="left")
    columns = [column for column in _COLUMNS if any(column[1](result) for result in results)]
    for heading, _ in columns:
        left = heading in {"case", "broken"}
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "broken")
    for result in results:
        table.add_row(*(cell(result) for _, cell in columns))
    return table


def write_suite(path: Path, results: Sequence[CaseResult]) -> None:
    """Write the results in the format that the file's ending names (`FORMATS`)."""
    text = FORMATS[path.suffix](results)
    atomic_write(path, lambda file: file.writelines([text.encode("utf-8")]))


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
    verdict = (
        f"{len(broken)} of {len(results)} cases break a bound: "
        + ", ".join(result.case for result in broken)
        if broken
        else f"All {len(results)} cases keep their bounds"
    )
    return f"{compared}{verdict}."


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def _markdown(results: Sequence[CaseResult]) -> str:
    headings = [heading for heading, _ in _COLUMNS]
    table = markdown(headings, ([cell(result) for _, cell in _COLUMNS] for result in results))
    return f"{table}\n\n{suite_sentence(results)}\n"


def _csv(results: Sequence[CaseResult]) -> str:
    rows: list[dict[str, object]] = []
    for result in results:
        row: dict[str, object] = {}
        for field in fields(result):
            value = getattr(result, field.name)
            if isinstance(value, Figure):
                row |= {field.name: value.mean, f"{field.name}_std_error": value.std_error}
            else:
                row[field.name] = "; ".join(value) if isinstance(value, tuple) else value
        rows.append(row)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


FORMATS: dict[str, Callable[[Sequence[CaseResult]], str]] = {
    ".csv": _csv,
    ".json": lambda results: json_text([asdict(each) for each in results], indent=1) + "\n",
    ".md": _markdown,
}
"""Texts of all results by the ending of the file."""
