"""The paper's experiments and numbers beside ours, as a result: a table, a page, a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from evaluation.paper.experiments import PaperFinding
from evaluation.paper.headline import Headline
from hubbub.reporting import Block, Heading, Line, Page, Section, Table
from hubbub.simulations import SimulationResult, cell, simulation_result

_HEADINGS = (
    Heading("#", "left"),
    Heading("source", "left"),
    Heading("what", "left"),
    Heading("stated"),
    Heading("ours"),
    Heading("within"),
    Heading("way", "left"),
    Heading("within it?", "left"),
)


def paper_result(findings: Sequence[PaperFinding], lines: Sequence[Headline]) -> SimulationResult:
    """Show what was repeated.

    findings: Of the experiments; none if only the numbers were asked for.
    lines: The numbers.
    """
    names = ("title", "stated", "ours", "difference", "figure")
    facts = {
        "experiments": [{name: getattr(each, name) for name in names} for each in findings],
        "headline_numbers": [{**asdict(line), "within": line.within} for line in lines],
    }
    pictures = {finding.figure: finding.charts for finding in findings}
    return simulation_result(
        facts, tuple(_blocks(findings, lines)), _page(findings, lines), pictures
    )


def _blocks(findings: Sequence[PaperFinding], lines: Sequence[Headline]) -> Iterator[Block]:
    """Yield each finding, the numbers, and where they differ why."""
    for finding in findings:
        yield Line(f"\n{finding.title}")
        for name in ("stated", "ours", "difference"):
            yield Line(f"  {name}: {getattr(finding, name)}")
        yield Line("")
    yield _table(lines, "Headline numbers", 5)
    for line in lines:
        if line.note:
            yield Line(f"{line.number} {line.what}: {line.note}")


def _page(findings: Sequence[PaperFinding], lines: Sequence[Headline]) -> Page:
    sections = [
        Section(
            finding.title,
            (
                f"The paper: {finding.stated}",
                f"Here: {finding.ours}",
                f"Difference: {finding.difference}",
            ),
            charts=finding.charts,
        )
        for finding in findings
    ]
    notes = tuple(f"{line.what}: {line.note}" for line in lines if line.note)
    table = _table(lines, "Stated and reproduced", 4)
    within = sum(line.within for line in lines)
    return Page(
        "The RAPPOR paper's experiments, repeated",
        f"{within} of {len(lines)} published numbers are reproduced within their tolerance.",
        [*sections, Section("Headline numbers", notes, tables=(table,))],
    )


def _table(lines: Sequence[Headline], title: str, digits: int) -> Table:
    rows = tuple(
        (
            str(line.number),
            line.source,
            line.what,
            f"{line.stated:,.{digits}g}",
            f"{line.ours:,.{digits}g}",
            f"{line.tolerance:.2%}",
            line.way,
            cell(line.within),
        )
        for line in lines
    )
    return Table(title, _HEADINGS, rows)
