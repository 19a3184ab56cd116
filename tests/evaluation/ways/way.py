"""A job that can be done in several ways, and what each of them takes.

Each way is a process of its own. CPU seconds are those of all its processes, the start of Python
and of an engine included; *work* leaves out what comes before the work itself. Memory is the peak
of that process, and of its largest child.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.machine import ChildMemory, tree_cpu_seconds
from evaluation.measured_table import MeasuredTable


class Done(NamedTuple):
    """What came of a job, and a digest of it by which ways are compared."""

    found: int
    digest: str


@dataclass(frozen=True, slots=True)
class Job:
    """Work on what is written first."""

    title: str  # what is done
    unit: str  # unit, found: Of what there is so much; what is counted or found of it
    found: str
    size: int  # how much, unless asked for another
    ways: tuple[str, ...]
    write: Callable[[Path, int], None]  # writes so much of it into a folder
    # does the work in a way, on a folder, and calls when it begins
    do: Callable[[str, Path, Callable[[], None]], Done]

    def measure(self, way: str, folder: Path) -> dict[str, Any]:
        """Do it in this process, and return what it took."""
        children, begun, marks = ChildMemory(), time.monotonic(), [0.0]
        children.start()
        done = self.do(way, folder, lambda: marks.append(tree_cpu_seconds()))
        cpu = tree_cpu_seconds()
        return {
            "cpu": cpu,
            "work": cpu - marks[-1],
            "seconds": time.monotonic() - begun,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "child": children.peak / 1024,
            **done._asdict(),
        }

    def table(self, name: str, size: int, ways: Sequence[str]) -> MeasuredTable:
        """Write, do it in each way, and compare with the first."""
        rows: list[tuple[str, ...]] = []
        with tempfile.TemporaryDirectory() as folder:
            self.write(Path(folder), size)
            first = None
            for way in ways:
                took = _in_process(name, way, folder)
                first = first or took
                rows.append(
                    (
                        way,
                        *(f"{took[key]:.1f}" for key in ("cpu", "work")),
                        f"{size / took['cpu'] / 1e6:.2f}",
                        f"{took['cpu'] / first['cpu']:.2f}",
                        *(f"{took['seconds']:.1f}", f"{took['memory']:.0f}"),
                        *(f"{took['child']:.0f}", f"{took['found']:,}"),
                        "equal" if took["digest"] == first["digest"] else "NOT EQUAL",
                    )
                )
        headings = ("way", "CPU s", "work", "M/CPU-s", "ratio", "seconds", "MB", "child MB",
                    self.found, "results")  # fmt: skip
        return MeasuredTable(f"{self.title}: {size:,} {self.unit}", headings, tuple(rows))


def _in_process(name: str, way: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "evaluation.ways", name, "--measure", way, folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
