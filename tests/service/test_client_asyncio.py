"""Telemetry in an event loop: never gets in the loop's way, survives cancellation."""

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from factories import make_registry
from http_servers import scripted_server
from hubbub.client import AsyncTelemetry
from service.apps import SLACK, App, Gate, records_on_disk


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make an ordinary test of a coroutine function, after which no task may be left."""

    async def watched(*args: Any, **kwargs: Any) -> None:
        await test(*args, **kwargs)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(watched(*args, **kwargs))

    return run


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def record(telemetry: AsyncTelemetry, count: int) -> None:
    for _ in range(count):
        telemetry.record("homepage", "x")


@in_loop
async def test_leaving_delivers_what_waits(tmp_path):
    with scripted_server() as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 3)
        telemetry.record("homepage", "x")
        assert telemetry.status().dropped == {"closed": 1}
    assert len(server.reports) == 3


@in_loop
async def test_loop_runs_on_while_a_flush_waits_for_a_server_that_hangs(tmp_path):
    lags: list[float] = []
    gate = Gate()

    with scripted_server(gate) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path, batch_size=5) as telemetry:
            flush = asyncio.create_task(telemetry.flush(60))
            ends = time.monotonic() + 2.0
            while (started := time.monotonic()) < ends:
                record(telemetry, 1)
                await asyncio.sleep(0.01)
                lags.append(time.monotonic() - started - 0.01)
            assert len(server.received) == 1
            gate.opened.set()
            assert await flush
    assert max(lags) < 5  # the server would hang for ever
    assert len(server.reports) == len(lags)


@in_loop
async def test_cancelled_app_leaves_nothing_behind_but_its_reports(tmp_path):
    gate = Gate()

    async def visitor(recorded: asyncio.Event):
        async with AsyncTelemetry(make_registry(), server.url, tmp_path, batch_size=3) as telemetry:
            record(telemetry, 3)
            await until(lambda: server.received)
            record(telemetry, 4)
            recorded.set()
            await asyncio.sleep(3600)

    with scripted_server(gate) as server:
        recorded = asyncio.Event()
        task = asyncio.create_task(visitor(recorded))
        await recorded.wait()
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - started < 2 + SLACK
        assert len(records_on_disk(tmp_path)) == 7
        gate.opened.set()


def test_cancelled_farewell_still_brings_everything_to_the_disk(tmp_path):
    gate = Gate()

    async def visitor(leaving: asyncio.Event):
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 3)
            leaving.set()

    async def main():
        leaving = asyncio.Event()
        task = asyncio.create_task(visitor(leaving))
        await leaving.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with scripted_server(gate) as server:
        asyncio.run(main())
        assert len(records_on_disk(tmp_path)) == 3
        gate.opened.set()


@in_loop
async def test_cancelled_flush_stops_nothing(tmp_path):
    gate = Gate()

    with scripted_server(gate) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 3)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(telemetry.flush(), 0.3)
            gate.opened.set()
            assert await telemetry.flush(30)
    assert len(server.reports) == 3


def test_any_loop_flushes_and_closes_what_another_recorded(tmp_path):
    async def first() -> None:
        await telemetry.__aenter__()
        record(telemetry, 2)

    async def second() -> None:
        assert await telemetry.flush(30)
        await telemetry.close()

    with scripted_server() as server:
        telemetry = AsyncTelemetry(make_registry(), server.url, tmp_path)
        asyncio.run(first())
        record(telemetry, 1)
        asyncio.run(second())
    assert len(server.reports) == 3
    assert telemetry.status().disabled == "closed"


def test_loop_that_runs_on_while_python_ends_stores_what_it_records_and_can_leave(tmp_path):
    """In a thread that outlives the main one, after which no worker thread takes any work."""
    script = """
import asyncio
from hubbub.client import AsyncTelemetry

async def main():
    async with AsyncTelemetry(sys.argv[1], sys.argv[2], sys.argv[3]) as telemetry:
        record(telemetry, 1)
        threading.main_thread().join()
        await asyncio.sleep(0.2)
        record(telemetry, 2)
        await asyncio.sleep(1.5)  # stored meanwhile
        print(telemetry.status().disabled)
    print(await telemetry.forget() != "")

threading.Thread(target=asyncio.run, args=(main(),)).start()
"""
    with scripted_server() as server:
        assert App(tmp_path, server.url).run(script).output == ["None", "True"]
    assert len(server.reports) == 3
