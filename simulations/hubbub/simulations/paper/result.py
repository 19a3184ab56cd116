"""The paper's experiments and numbers beside ours, as a result: a table, a page, a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hubbub.reporting.formats.picture import write_picture
from hubbub.reporting.result import Block, Heading, Line, Report, Result, Section, Table
from hubbub.simulations.experiments.result import cell, write_page
from hubbub.simulations.paper.experiments import Finding
from hubbub.simulations.paper.headline import Headline

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


@dataclass(frozen=True, slots=True)
class PaperResult(Result):
    """What was repeated.

    Attributes
    ----------
    findings : tuple of Finding
        Of the experiments; none if only the numbers were asked for.
    """

    findings: tuple[Finding, ...]
    lines: tuple[Headline, ...]

    def document(self) -> Mapping[str, object]:
        """Return "experiments" and "headline_numbers"."""
        names = ("title", "stated", "ours", "difference", "figure")
        return {
            "experiments": [
                {name: getattr(finding, name) for name in names} for finding in self.findings
            ],
            "headline_numbers": [{**asdict(line), "within": line.within} for line in self.lines],
        }

    def blocks(self) -> Iterator[Block]:
        """Yield each finding, the numbers, and where they differ why."""
        for finding in self.findings:
            yield Line(f"\n{finding.title}")
            for name in ("stated", "ours", "difference"):
                yield Line(f"  {name}: {getattr(finding, name)}")
            yield Line("")
        yield self._table("Headline numbers", 5)
        for line in self.lines:
            if line.note:
                yield Line(f"{line.number} {line.what}: {line.note}")

    def write(self, folder: Path) -> None:
        """Write result.json, report.html and the charts as PNG into a folder that exists."""
        write_page(self, folder)
        for finding in self.findings:
            write_picture(folder / finding.figure, finding.charts)

    def report(self) -> Report:
        """Return the page."""
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
            for finding in self.findings
        ]
        notes = tuple(f"{line.what}: {line.note}" for line in self.lines if line.note)
        table = self._table("Stated and reproduced", 4)
        within = sum(line.within for line in self.lines)
        return Report(
            "The RAPPOR paper's experiments, repeated",
            f"{within} of {len(self.lines)} published numbers are reproduced within their "
            "tolerance.",
            [*sections, Section("Headline numbers", notes, tables=(table,))],
        )

    def _table(self, title: str, digits: int) -> Table:
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
            for line in self.lines
        )
        return Table(title, _HEADINGS, rows)
