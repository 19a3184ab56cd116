"""The machine's own figures: how long it takes to make bytes durable."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

_WRITES = 200
_PAGE = os.urandom(4096)


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
