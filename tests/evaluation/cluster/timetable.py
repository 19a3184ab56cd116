"""What was done and what was killed, and when; told on standard error as it happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.table import Table


class Timetable:
    """The phases of a run, and the processes that were killed in them."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._phases: list[tuple[str, float]] = []
        self._kills: list[tuple[float, str, str]] = []

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        begun = self._now()
        yield
        self._phases.append((what, self._now() - begun))
        self.tell(f"done: {what}")

    def killed(self, what: str, during: str) -> None:
        self._kills.append((self._now(), what, during))
        self.tell(f"killed {what} ({during})")

    def tell(self, what: str) -> None:
        print(f"{self._now():5.0f} s  {what}", file=sys.stderr)

    def tables(self) -> Iterator[Table]:
        """Yield the seconds of each phase, and what was killed when."""
        phases = Table("phase", "seconds")
        for what, seconds in (*self._phases, ("together", self._now())):
            phases.add_row(what, f"{seconds:.0f}")
        yield phases
        kills = Table("at second", "killed", "meanwhile")
        for at, what, during in self._kills:
            kills.add_row(f"{at:.0f}", what, during)
        yield kills

    def _now(self) -> float:
        return time.perf_counter() - self._begun
