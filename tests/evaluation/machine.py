"""The machine: what processes have computed, what they occupy, and how fast the disk is."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_WRITES = 200
"""Of which the median is taken."""
_PAGE = os.urandom(4096)
_LOOK = 0.2
"""Seconds between two looks at memory."""


def below(pid: int) -> Iterator[tuple[int, list[str]]]:
    """Yield a process and all below it, with the fields of its stat from its state on."""
    children: dict[int, list[int]] = {}
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        found[int(entry.name)] = fields
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        if process in found:
            yield process, found[process]
        waiting += children.get(process, [])


def tree_cpu_seconds(pid: int | None = None) -> float:
    """Return the CPU seconds of a process and all below it, those that ended included.

    pid: This one, if not given.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    processes = below(os.getpid() if pid is None else pid)
    return sum(sum(map(int, fields[11:15])) for _, fields in processes) / ticks


class ChildMemory(threading.Thread):
    """Looks for the largest peak of a process below this one, in KiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0

    def run(self) -> None:
        own = os.getpid()
        while True:
            for pid, _ in below(own):
                if pid != own:
                    self.peak = max(self.peak, _peak_kib(pid))
            time.sleep(_LOOK)


def _peak_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has just ended
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def fdatasync_seconds(folder: Path) -> float:
    """Return the median time of fdatasync after appending 4 KiB to a file in a folder."""
    seconds = []
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(_WRITES):
            file.write(_PAGE)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)
