"""A table of figures with the date and the machine that they were measured on.

A document that quotes a table quotes its last line, date and machine, as well: a figure of time
means nothing without the machine, and any figure may change with a version.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
ENDINGS = (".csv", ".json", ".md")


def cpu_model() -> str:
    """Return what the processor calls itself, as far as the system tells."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def machine() -> dict[str, str | int]:
    """Return the processor, its cores, and the versions of what computes on it."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
        "hubbub": version("hubbub"),
    }


def _today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """Rows of figures, and when and on what they were measured."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()  # sentences below the rows
    date: str = field(default_factory=_today)  # today, in UTC, if not given
    # this one, if not given; see `machine`
    machine: dict[str, str | int] = field(default_factory=machine)

    @property
    def origin(self) -> str:
        """The date and the machine, in a line."""
        of = self.machine
        return (
            f"{self.date}; {of['cpu']}, {of['cores']} cores; Python {of['python']}, "
            f"hubbub {of['hubbub']}"
        )

    def text(self) -> str:
        """Return it as a terminal shows it: Markdown whose columns are in line."""
        widths = [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        first, *others = [
            [cell.rjust(width) if column else cell.ljust(width)
             for column, (cell, width) in enumerate(zip(row, widths, strict=True))]
            for row in (self.headings, *self.rows)
        ]  # fmt: skip
        return self._with_words(markdown(first, others))

    def markdown(self) -> str:
        return self._with_words(markdown(self.headings, self.rows))

    def json(self) -> str:
        document = asdict(self)
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    def csv(self) -> str:
        """Return headings and rows alone, as docs/measured/data keeps them."""
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows((self.headings, *self.rows))
        return lines.getvalue()

    def write(self, path: Path) -> None:
        """Write it in the format that the file's ending names (`ENDINGS`)."""
        forms = {".csv": self.csv, ".json": self.json}
        text = forms[path.suffix]() if path.suffix in forms else self.markdown() + "\n"
        path.write_text(text, encoding="utf-8")

    def _with_words(self, table: str) -> str:
        return "\n\n".join([self.title, table, *self.notes, self.origin])


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
