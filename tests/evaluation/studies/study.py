"""A study: cases that are run again and again, and the table that their scores come to.

`python -m evaluation.studies NAME` runs one and prints its table, with the date and the machine.
What is measured is the cases' affair, and how a table is made is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import click

from evaluation.laboratory import Case, Figure, Progress, no_progress, run_trials
from evaluation.measured_table import ENDINGS, MeasuredTable
from hubbub.inference import cores
from hubbub.reporting import progress_bar

CaseT = TypeVar("CaseT", bound=Case[Any])
Columns = Mapping[str, Callable[[Any, Sequence[Any]], object]]
"""By heading, what a cell shows of a case and the scores of its trials."""


@dataclass(frozen=True, slots=True)
class Study:
    """Cases, and the columns of their table."""

    title: str
    explained: str  # what it measures and what its columns are; `--help` shows it
    cases: Callable[[], Sequence[Case[Any]]]  # makes the cases, in the order of the rows
    columns: Columns
    runs: int = 1  # trials of each case, unless asked for others
    # makes sentences below the table, of the cases and of their scores
    notes: Callable[[Sequence[Any], Sequence[Sequence[Any]]], tuple[str, ...]] = lambda _c, _s: ()

    def table(
        self,
        cases: Sequence[Case[Any]],
        runs: int,
        workers: int = 1,
        progress: Progress = no_progress,
    ) -> MeasuredTable:
        """Run cases, and return their rows."""
        scores = run_trials(cases, runs, workers, progress)
        rows = tuple(
            tuple(shown(cell(case, each)) for cell in self.columns.values())
            for case, each in zip(cases, scores, strict=True)
        )
        return MeasuredTable(self.title, tuple(self.columns), rows, self.notes(cases, scores))

    def command(self, name: str) -> click.Command:
        """Return the command that runs it."""

        @click.command(name, help=self.explained, short_help=self.title)
        @click.option("--runs", default=self.runs, show_default=True, type=click.IntRange(1))
        @click.option("--workers", type=click.IntRange(1), help="Processes; else one a core.")
        @click.option("--first", default=0, type=click.IntRange(0), help="Begin with this case.")
        @click.option("--every", default=1, type=click.IntRange(1), help="Take fewer cases.")
        @click.option("--case", "patterns", multiple=True, help="Only cases of such names.")
        @OUTPUT
        def run(
            runs: int,
            workers: int | None,
            first: int,
            every: int,
            patterns: tuple[str, ...],
            output: tuple[Path, ...],
        ) -> None:
            cases = chosen(self.cases()[first::every], patterns)
            with progress_bar(name) as bar:
                table = self.table(cases, runs, workers or cores(), bar)
            show(table, output)

        return run


OUTPUT = click.option(
    "--output", multiple=True, type=click.Path(dir_okay=False, path_type=Path),
    help=f"File for the table as well: {', '.join(ENDINGS)}; may be repeated.",
)  # fmt: skip


def show(table: MeasuredTable, output: Sequence[Path] = ()) -> None:
    """Print a table, and write it into files."""
    click.echo(table.text())
    for path in output:
        table.write(path)


def chosen(cases: Sequence[CaseT], patterns: Sequence[str]) -> list[CaseT]:
    """Return the cases whose names match any pattern, such as `*null*`; all if there is none."""
    found = [
        case
        for case in cases
        if not patterns or any(fnmatchcase(case.name, pattern) for pattern in patterns)
    ]
    if not found:
        names = ", ".join(case.name for case in cases)
        raise click.UsageError(f"no such case; there are {names}")
    return found


def means(*names: str, of: Callable[[Any], Any] = lambda score: score) -> Columns:
    """Return columns of the means of scores' attributes, which are nan where there is nothing.

    names: Attributes; headings are the same in plain words.
    of: Takes from a score what has the attributes.
    """

    def column(name: str) -> Callable[[Any, Sequence[Any]], object]:
        return lambda _case, scores: mean([getattr(of(score), name) for score in scores])

    return {name.replace("_", " "): column(name) for name in names}


def mean(values: Sequence[float]) -> Figure | str:
    """Return the mean of those that aren't nan; nothing if these are few.

    Where hardly a trial has a value, it has one for a reason, such as a share that came out near 0,
    and the mean would be of such trials.
    """
    known = sum(not math.isnan(value) for value in values)
    return Figure.of(values) if known >= max(min(2, len(values)), len(values) // 10) else ""


def shown(value: object) -> str:
    """Return a cell's text: numbers with three significant digits, nothing for nan."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
