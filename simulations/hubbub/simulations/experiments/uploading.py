"""Simulated reports over real HTTP: some through real clients, the rest in the fleet's batches."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp

from hubbub.client.telemetry import Telemetry
from hubbub.decoder.arrays import ByteArray, IntArray
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Batch, Report, batch_to_json

_THREADS = 16
_CONNECTIONS = 16
_BATCH = 500
_CLIENT_SECONDS = 60.0
_Progress = Callable[[int, int], None]


class UploadError(Exception):
    """The collector didn't take a report that it should have taken."""


def report_through_clients(
    registry: Registry, metric: str, values: Sequence[str], url: str, progress: _Progress
) -> None:
    """Let one real `Telemetry` client, with a secret of its own, report each value.

    Raises
    ------
    UploadError
        If a client couldn't deliver.
    """
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-clients-") as states,
        ThreadPoolExecutor(_THREADS) as pool,
    ):

        def report(client: int) -> None:
            telemetry = Telemetry(registry, url, Path(states, str(client)))
            telemetry.record(metric, values[client])
            telemetry.close(_CLIENT_SECONDS)
            if telemetry.status().delivered != 1:
                raise UploadError(f"a client could not deliver: {telemetry.status()}")

        for done, _ in enumerate(pool.map(report, range(len(values))), start=1):
            progress(done, len(values))


async def upload_fleet(
    metric: Metric, cohorts: IntArray, bits: ByteArray, url: str, progress: _Progress
) -> None:
    """Post a fleet's reports in batches, several at a time.

    Raises
    ------
    UploadError
        If the collector can't be reached, or answers a batch with anything but 201.
    """
    starts = iter(range(0, len(cohorts), _BATCH))
    done = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal done
        for start in starts:
            rows = slice(start, start + _BATCH)
            await _post(session, url, _batch(metric, cohorts[rows], bits[rows]))
            done += len(cohorts[rows])
            progress(done, len(cohorts))

    try:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(work(session))
    except ExceptionGroup as group:  # the connections fail together; one says it
        raise group.exceptions[0] from None


def _batch(metric: Metric, cohorts: IntArray, bits: ByteArray) -> Batch:
    return Batch(
        tuple(
            Report(metric.name, metric.version, int(cohort), row.tobytes())
            for cohort, row in zip(cohorts, bits, strict=True)
        )
    )


async def _post(session: aiohttp.ClientSession, url: str, batch: Batch) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(
            f"{url}/v1/reports", data=batch_to_json(batch), headers=headers
        ) as response:
            status, answer = response.status, await response.text()
    except aiohttp.ClientError as error:
        raise UploadError(f"collector: {error}") from error
    if status != 201:
        raise UploadError(f"collector: {status} {answer}")
