"""The command `hubbub-simulate paper`: experiments and headline numbers of the RAPPOR paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from hubbub.decoder.cli.options import cli_errors
from hubbub.decoder.cli.progress import progress_bar
from hubbub.decoder.formats.terminal import stdout_console
from hubbub.simulations import pages
from hubbub.simulations.documents import write_document
from hubbub.simulations.paper.experiments import Finding, experiments
from hubbub.simulations.paper.headline import Headline
from hubbub.simulations.paper.headline_formulas import formula_lines
from hubbub.simulations.paper.headline_simulations import simulated_lines

_COLUMNS = ("#", "source", "what", "stated", "ours", "within", "way", "within it?")


@click.command()
@click.option("--table", "only_table", is_flag=True, help="Only the headline numbers.")
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Of each case.")
@click.option(
    "--output",
    default="out/paper",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report.html, result.json and the figures.",
)
def paper(only_table: bool, runs: int, output: Path) -> None:
    """Repeat the experiments of the RAPPOR paper (CCS 2014), and its headline numbers.

    Each experiment's figure stands beside what the paper states; each headline number beside ours.
    Exit code 1 if one isn't reproduced within its tolerance.
    """
    with cli_errors():
        output.mkdir(parents=True, exist_ok=True)
    console = stdout_console(200)
    findings: tuple[Finding, ...] = ()
    if not only_table:
        with progress_bar("experiments") as bar:
            findings = experiments(output, runs, bar)
    lines = sorted([*formula_lines(), *simulated_lines(runs)], key=lambda line: line.number)
    for finding in findings:
        _show_finding(console, finding)
    console.print(_table(lines))
    for line in lines:
        if line.note:
            console.print(f"{line.number} {line.what}: {line.note}", markup=False)
    _write(output, findings, lines)
    console.print(f"Files in {output}/")
    if not all(line.within for line in lines):
        raise click.exceptions.Exit(1)


def _show_finding(console: Console, finding: Finding) -> None:
    console.print(f"\n[bold]{finding.title}[/bold]", highlight=False)
    for name in ("stated", "ours", "difference"):
        console.print(f"  {name}: {getattr(finding, name)}", highlight=False, markup=False)
    console.print()


def _rows(lines: Sequence[Headline]) -> list[tuple[object, ...]]:
    return [
        (
            line.number,
            line.source,
            line.what,
            line.stated,
            line.ours,
            f"{line.tolerance:.2%}",
            line.way,
            line.within,
        )
        for line in lines
    ]


def _table(lines: Sequence[Headline]) -> Table:
    table = Table(title="Headline numbers", title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in {"stated", "ours", "within"} else "left")
    for row in _rows(lines):
        table.add_row(*map(_digits, row))
    return table


def _digits(value: object) -> str:
    return f"{value:,.5g}" if isinstance(value, float) else pages.cell(value)


def _write(folder: Path, findings: Sequence[Finding], lines: Sequence[Headline]) -> None:
    document = {
        "experiments": [{**asdict(f), "figure": f.figure.name} for f in findings],
        "headline_numbers": [{**asdict(line), "within": line.within} for line in lines],
    }
    write_document(folder / "result.json", document)
    parts = []
    for finding in findings:
        parts += [
            pages.heading(finding.title),
            pages.picture(finding.figure, finding.ours),
            pages.paragraph(f"The paper: {finding.stated}"),
            pages.paragraph(f"Here: {finding.ours}"),
            pages.paragraph(f"Difference: {finding.difference}"),
        ]
    parts.append(pages.heading("Headline numbers"))
    parts.append(pages.table("Stated and reproduced", _COLUMNS, _rows(lines)))
    parts += [pages.paragraph(f"{line.what}: {line.note}") for line in lines if line.note]
    html = pages.page("The RAPPOR paper's experiments, repeated", parts)
    (folder / "report.html").write_text(html, encoding="utf-8")
