"""Real clients that answer once, as a process that may be killed and started again.

Each has a folder of its own, in which it keeps its secret and what it hasn't delivered. A process
that is started again lets all of them answer once more, of which those that have answered make
nothing.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from hubbub.client import Telemetry
from hubbub.protocol import Registry

_THREADS = 8
_FLUSH_SECONDS = 5.0
_PATIENCE = 900.0


class Task(NamedTuple):
    """What the clients have to do."""

    registry: str
    metric: str
    url: str  # of the collector
    folder: str  # of their folders
    clients: int


def main() -> None:
    """Let every client answer and deliver; the task comes as JSON."""
    task = Task(**json.loads(sys.argv[1]))
    registry = Registry.load(task.registry)
    deadline = time.monotonic() + _PATIENCE

    def answer(client: int) -> None:
        folder = Path(task.folder, str(client))
        waiting = True
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"client {client} could not deliver")
            telemetry = Telemetry(registry, task.url, folder)
            telemetry.record(task.metric, f"value {client % 2}")
            waiting = not telemetry.flush(_FLUSH_SECONDS)
            telemetry.close()

    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(answer, range(task.clients)):
            pass


if __name__ == "__main__":
    main()
