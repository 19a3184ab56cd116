"""Two collectors with two workers each, beside one with one worker.

All share one PostgreSQL server, each service with a database of its own, and take batches in turns:
at a rate that a single worker can take, at that rate for each worker, and as many as they can over
as many connections in all, and over as many for each worker.
Workers commit what has arrived since their last transaction, so that more of them make smaller
transactions of the same load; what that costs the collectors, and the server, is what is printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from evaluation.loadtest.harness import (
    CONNECTIONS,
    Load,
    Service,
    in_turns,
    new_stores,
    parser,
    serving,
    show,
)

_SERVER = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}
_OPTIONS = ["--upkeep-seconds", "3600", "--log-level", "warning"]
_WORKERS = 4
"""Of the larger service."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parser("workers", __doc__, "postgresql")
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--rate", type=float, default=400.0, help="requests a second, part load")
    given = options.parse_args(arguments)
    part, full = Load(given.seconds, given.rate), Load(given.seconds)
    of_each = Load(given.seconds, _WORKERS * given.rate)
    full_each = Load(given.seconds, None, _WORKERS * CONNECTIONS)
    loads = {
        f"{given.rate:,.0f} requests/s": (part, part),
        f"{given.rate:,.0f} requests/s a worker": (part, of_each),
        f"full, {CONNECTIONS} connections": (full, full),
        f"full, {CONNECTIONS} connections a worker": (full, full_each),
    }
    rows = []
    with ExitStack() as stack:
        stores = stack.enter_context(new_stores(given.store, 2, _SERVER))
        alone, together = (
            stack.enter_context(serving(store, [*_OPTIONS, "--workers", workers], collectors))
            for store, workers, collectors in zip(stores, ("1", "2"), (1, 2), strict=True)
        )
        for name, (of_alone, of_together) in loads.items():
            sides = ((alone, of_alone), (together, of_together))
            compared = asyncio.run(in_turns(given.turns, sides, _measure))
            rows += [(name, *each.cells()) for each in compared]
    show(given.store, ("load", "", "one worker", "two collectors x 2", "ratio"), rows)
    return 0


async def _measure(side: tuple[Service, Load]) -> Mapping[tuple[str, str], float]:
    service, load = side
    cost = await service.take(load)
    return {("rate", "requests/s"): cost.rate, ("processors, a request", "µs"): cost.cpu}
