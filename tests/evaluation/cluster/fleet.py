"""Simulated clients that report over HTTP, as a process that may be killed and started again.

Clients come in parts. Those of a part, their reports and their batches' ids follow from its number,
so that a process that is started again sends what its predecessor sent, and collectors recognise
it. Invariant: a part's journal is written when all of its batches were acknowledged, and says what
was in them.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp
import numpy as np

from hubbub.inference import IntArray, count_records
from hubbub.protocol import (
    COUNT_BYTES,
    FORMAT,
    ID_BYTES,
    MEDIA_TYPE,
    CohortCounts,
    Metric,
    Registry,
    record_width,
    section_head,
)
from hubbub.simulations import SimulatedClients, as_records, census_first_names

_BATCH = 1000
_CONNECTIONS = 8
_PAUSE = 0.2
_SECONDS = aiohttp.ClientTimeout(total=30)
_ACKNOWLEDGED = (200, 201)
_LATER = (429, 503)


class Task(NamedTuple):
    """What a fleet has to do."""

    registry: str  # registry, metric: The file, and the metric of it that is reported
    metric: str
    urls: list[str]  # of the collectors; each takes a share, and all when others are gone
    parts: list[int]
    clients: int  # of a part
    seed: int
    journals: str  # the folder for one file per part


class Journal(NamedTuple):
    """What a part's clients sent."""

    counts: CohortCounts
    holders: IntArray  # shape (v,): how many of them hold each of the population's values
    repeated: int  # batches that a collector had already


def journal_paths(folder: Path) -> list[Path]:
    return list(folder.glob("part-*.npz"))


def being_sent(folder: Path, parts: Sequence[int]) -> list[int]:
    """Return the parts of which something was acknowledged, but not all."""
    return [
        part
        for part in parts
        if _begun_path(folder, part).exists() and not _journal_path(folder, part).exists()
    ]


def _journal_path(folder: str | Path, part: int) -> Path:
    return Path(folder, f"part-{part}.npz")


def _begun_path(folder: str | Path, part: int) -> Path:
    return Path(folder, f"part-{part}.begun")


def read_journal(path: Path) -> Journal:
    with np.load(path) as found:
        counts = CohortCounts(found["reports"], found["bits"])
        return Journal(counts, found["holders"], int(found["repeated"]))


def main() -> None:
    """Send all parts that have no journal yet; the task comes as JSON."""
    task = Task(**json.loads(sys.argv[1]))
    metric = Registry.load(task.registry)[task.metric]
    population = census_first_names()
    clients = SimulatedClients(population.values, metric.params, np.random.default_rng())
    for part in task.parts:
        path = _journal_path(task.journals, part)
        if path.exists():
            continue
        rng = np.random.Generator(np.random.SFC64([task.seed, part]))
        held = rng.choice(len(population.values), size=task.clients, p=population.shares)
        records = as_records(*clients.with_rng(rng).report(held))
        bodies = _bodies(records, metric, f"{task.seed} {part}")
        repeated = asyncio.run(_post(task.urls, bodies, _begun_path(task.journals, part)))
        counts = count_records(records, metric.params)
        holders = np.bincount(held, minlength=len(population.values))
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            np.savez(
                file,
                reports=counts.reports,
                bits=counts.bits,
                holders=holders,
                repeated=repeated,
            )
        unfinished.replace(path)


def _bodies(records: bytes, metric: Metric, label: str) -> Iterator[bytes]:
    """Yield batches in the compact form."""
    width = record_width(metric.params.k)
    head = section_head(metric.name, metric.version, width)
    for number, start in enumerate(range(0, len(records), _BATCH * width)):
        piece = records[start : start + _BATCH * width]
        rows = sorted(piece[at : at + width] for at in range(0, len(piece), width))
        batch_id = hashlib.sha256(f"{label} {number}".encode()).digest()[:ID_BYTES]
        count = len(rows).to_bytes(COUNT_BYTES, "little")
        sections = (1).to_bytes(2, "little")
        yield b"".join([bytes([FORMAT]), batch_id, sections, head, count, *rows])


async def _post(urls: Sequence[str], bodies: Iterator[bytes], begun: Path) -> int:
    """Post until every batch is acknowledged; return how many of them were known already.

    A file tells from the first acknowledgement on that sending has begun.
    """
    targets = itertools.cycle([f"{url}/v1/reports" for url in urls])
    repeated = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal repeated
        for body in bodies:
            status = 0
            while status not in _ACKNOWLEDGED:
                status = await _post_once(session, next(targets), body)
            begun.touch()
            repeated += status == 200

    headers = {"Content-Type": MEDIA_TYPE}
    async with (
        aiohttp.ClientSession(timeout=_SECONDS, headers=headers) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(_CONNECTIONS):
            tasks.create_task(work(session))
    return repeated


async def _post_once(session: aiohttp.ClientSession, url: str, body: bytes) -> int:
    """Return the status; after a pause, if nobody answers or all are busy."""
    try:
        async with session.post(url, data=body) as response:
            text = await response.text()
            if response.status in _ACKNOWLEDGED:
                return response.status
            if response.status not in _LATER:
                raise RuntimeError(f"collector: {response.status} {text}")
    except (aiohttp.ClientError, TimeoutError):
        pass
    await asyncio.sleep(_PAUSE)
    return 0


if __name__ == "__main__":
    main()
