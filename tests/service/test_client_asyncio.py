"""Telemetry in an event loop: delivers, never gets in the loop's way, survives cancellation."""

import asyncio
import functools
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest

from factories import make_registry
from http_servers import Answer, Received, scripted_server
from hubbub.client import AsyncTelemetry
from service.apps import NOWHERE, SLACK, App, Gate, contents_by_id, records_on_disk


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
async def test_loop_runs_on_while_the_server_hangs(tmp_path):
    """A report's journey takes fractions of a millisecond of the loop's time, not a second."""
    lags: list[float] = []
    gate = Gate()

    with scripted_server(gate) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path, batch_size=5) as telemetry:
            ends = time.monotonic() + 2.0
            while (started := time.monotonic()) < ends:
                record(telemetry, 1)
                await asyncio.sleep(0.01)
                lags.append(time.monotonic() - started - 0.01)
            assert len(server.received) == 1
            gate.opened.set()
            assert await telemetry.flush(60)  # the end alone has two seconds
    assert max(lags) < 5  # the server would hang for ever
    assert len(server.reports) == len(lags)


@in_loop
async def test_reports_reach_the_disk_while_the_server_hangs(tmp_path):
    """A killed app loses its last second, however long an answer takes."""
    gate = Gate()

    with scripted_server(gate) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path, batch_size=1) as telemetry:
            record(telemetry, 1)
            await until(lambda: server.received)
            record(telemetry, 5)
            await asyncio.wait_for(until(lambda: len(records_on_disk(tmp_path)) == 6), 1 + SLACK)
            gate.opened.set()
    assert len(server.reports) == 6


@in_loop
async def test_what_is_left_stays_on_disk_for_the_next_start(tmp_path):
    gate = Gate()

    with scripted_server(gate) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 3)
            started = time.monotonic()
        assert time.monotonic() - started < 2 + SLACK
        assert len(records_on_disk(tmp_path)) == 3
        gate.opened.set()
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            assert await telemetry.flush(30)
    assert len(server.received) == 2
    assert len(server.reports) == 3


@in_loop
async def test_closing_without_patience_brings_everything_to_the_disk(tmp_path):
    gate = Gate()

    with scripted_server(gate) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path, batch_size=3) as telemetry:
            record(telemetry, 3)
            await until(lambda: server.received)
            record(telemetry, 4)
            await telemetry.close(0)
        assert len(records_on_disk(tmp_path)) == 7
        gate.opened.set()


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
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(records_on_disk(tmp_path)) == 7
        gate.opened.set()


@in_loop
async def test_cancelled_farewell_still_brings_everything_to_the_disk(tmp_path):
    gate = Gate()

    async def visitor(leaving: asyncio.Event):
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 3)
            leaving.set()

    with scripted_server(gate) as server:
        leaving = asyncio.Event()
        task = asyncio.create_task(visitor(leaving))
        await leaving.wait()
        await until(lambda: server.received)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
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


@in_loop
async def test_other_threads_may_record(tmp_path):
    with scripted_server() as server:
        async with AsyncTelemetry(
            make_registry(), server.url, tmp_path, batch_size=50, batch_seconds=0.1
        ) as telemetry:
            work = (asyncio.to_thread(record, telemetry, 100) for _ in range(4))
            await asyncio.gather(*work)
            await until(lambda: len(server.reports) == 400)
    assert all(len(contents) == 1 for contents in contents_by_id(server).values())


@in_loop
async def test_threads_that_record_while_it_closes_are_never_disturbed(tmp_path):
    failures: list[BaseException] = []
    ended = threading.Event()

    def work(telemetry: AsyncTelemetry):
        try:
            while not ended.is_set():
                telemetry.record("homepage", "x")
        except BaseException as error:
            failures.append(error)

    with scripted_server() as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            threads = [threading.Thread(target=work, args=(telemetry,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            await asyncio.sleep(0.1)
            await telemetry.close(0)
        ended.set()
        for thread in threads:
            thread.join()
    assert failures == []


_OUTLIVED = """
import asyncio, logging
from hubbub.client import AsyncTelemetry

logging.disable(logging.ERROR)
telemetry = AsyncTelemetry(sys.argv[1], sys.argv[2], sys.argv[3])

async def enter_and_never_leave():
    await telemetry.__aenter__()
    record(telemetry, 2)  # in memory when the loop ends
"""


@pytest.mark.parametrize(
    "run",
    [
        "asyncio.run(enter_and_never_leave())",
        "loop = asyncio.new_event_loop(); loop.run_until_complete(enter_and_never_leave())",
        "telemetry._recorder  # never entered",
    ],
)
def test_what_is_recorded_without_a_loop_is_stored_and_sent_at_the_next_start(tmp_path, run):
    script = f"""{_OUTLIVED}
{run}
record(telemetry, 3)
print(telemetry.status().disabled, telemetry.status().postponed)
"""
    count = 3 if "never entered" in run else 5
    ended = App(tmp_path, NOWHERE).run(script)
    assert ended.output[0].startswith("None no event loop runs; reports are stored")
    with scripted_server() as server:
        app = App(tmp_path, server.url)
        assert len(app.records_on_disk()) == count
        # They were recorded for another collector.
        with closing(sqlite3.connect(app.state / "client.db")) as connection, connection:
            connection.execute("UPDATE reports SET origin = ?", (server.url,))
        app.run("sys.exit(not open_telemetry().flush(30))")
    assert len(server.reports) == count


@pytest.mark.parametrize("end", ["flush()", "close(30)", "__aenter__()"])
def test_second_loop_takes_over_from_one_that_has_ended(tmp_path, end):
    script = f"""{_OUTLIVED}
asyncio.run(enter_and_never_leave())
record(telemetry, 1)

async def go_on():
    await telemetry.{end}
    record(telemetry, {1 if end == "flush()" else 0})
    await telemetry.close(30)
    print(telemetry.status().waiting, telemetry.status().disabled)

asyncio.run(go_on())
"""
    with scripted_server() as server:
        assert App(tmp_path, server.url).run(script).output == ["0 closed"]
    assert len(server.reports) == (4 if end == "flush()" else 3)


def test_other_loops_use_the_one_that_delivers(tmp_path):
    """An app's worker thread with a loop of its own flushes and closes what the main loop sends."""

    async def other() -> None:
        assert await telemetry.flush(30)
        await telemetry.close(30)

    async def main() -> None:
        async with telemetry:
            record(telemetry, 2)
            await asyncio.to_thread(asyncio.run, other())

    with scripted_server() as server:
        telemetry = AsyncTelemetry(make_registry(), server.url, tmp_path)
        asyncio.run(main())
    assert len(server.reports) == 2
    assert telemetry.status().disabled == "closed"


def test_loop_that_runs_on_while_python_ends_stores_what_it_records(tmp_path):
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

threading.Thread(target=asyncio.run, args=(main(),)).start()
"""
    with scripted_server() as server:
        assert App(tmp_path, server.url).run(script).output == ["None"]
    assert len(server.reports) == 3


@in_loop
async def test_use_without_entering_is_harmless(tmp_path):
    telemetry = AsyncTelemetry(make_registry(), NOWHERE, tmp_path)
    record(telemetry, 3)
    assert not await telemetry.flush(1)
    assert telemetry.status().waiting == 3
    await telemetry.close()
    await telemetry.close()


@in_loop
async def test_what_was_recorded_before_entering_is_delivered(tmp_path):
    with scripted_server() as server:
        telemetry = AsyncTelemetry(make_registry(), server.url, tmp_path)
        record(telemetry, 3)
        async with telemetry:
            assert await telemetry.flush()
    assert len(server.reports) == 3


@in_loop
async def test_damaged_state_turns_it_off_and_does_not_raise(tmp_path):
    async with AsyncTelemetry(make_registry(), NOWHERE, tmp_path) as telemetry:
        record(telemetry, 1)
        assert not await telemetry.flush(1)
        with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
            connection.execute("DROP TABLE reports")
        record(telemetry, 1)
        assert not await telemetry.flush(10)
        status = telemetry.status()
    assert status.disabled is not None
    assert "client.db" in status.disabled


@in_loop
async def test_database_that_another_process_keeps_locked_is_waited_for(tmp_path):
    """It is locked just when an answer arrives, and for longer than SQLite waits."""
    locks: list[sqlite3.Connection] = []

    def lock_at_first(number: int) -> Answer:
        if number == 0:
            path = tmp_path / "client.db"
            locks.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
            locks[0].execute("BEGIN IMMEDIATE")
        return Answer()

    with scripted_server(lock_at_first) as server:
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 1)
            assert not await telemetry.flush(1)
            record(telemetry, 1)
            with closing(locks[0]):
                locks[0].execute("COMMIT")
            assert await telemetry.flush(30)
            status = telemetry.status()
        assert (status.recorded, status.delivered, status.waiting) == (2, 2, 0)
    assert len(server.reports) == 2


@in_loop
async def test_answer_that_comes_in_pieces_is_read_to_its_end(tmp_path):
    """A long list of refused reports spans packets; half of it would condemn the whole batch."""
    bodies: list[list[Any]] = []
    refusal = json.dumps({"errors": [{"report": 0, "detail": "no"}, {"report": 2}]}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        bodies.append(await read_reports(reader))
        status, body = (b"422 No", refusal) if len(bodies) == 1 else (b"201 OK", b'{"accepted":1}')
        length = b"Content-Length: %d\r\nConnection: close" % len(body)
        writer.write(b"HTTP/1.1 %s\r\n%s\r\n\r\n" % (status, length) + body[:9])
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(body[9:])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, AsyncTelemetry(make_registry(), url, tmp_path) as telemetry:
        record(telemetry, 3)
        assert await telemetry.flush(30)
        assert telemetry.status().delivered == 1
        assert telemetry.status().dropped == {"refused by the collector": 2}
    first, second = bodies
    assert second == [first[1]]


@in_loop
async def test_cookies_are_not_kept(tmp_path):
    """They would let whoever answers link one batch with the next."""
    cookie = Answer(headers={"Set-Cookie": "visitor=4711"})

    with scripted_server(lambda _: cookie) as server:
        url = server.url.replace("127.0.0.1", "localhost")  # of bare addresses none are kept anyway
        async with AsyncTelemetry(make_registry(), url, tmp_path) as telemetry:
            for _ in range(2):
                record(telemetry, 1)
                assert await telemetry.flush(30)
    assert len(server.received) == 2
    assert all("Cookie" not in request.headers for request in server.received)


async def read_reports(reader: asyncio.StreamReader) -> list[Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["Content-Length"]))
    return list(Received("/v1/reports", headers, body).batch["reports"])


@pytest.mark.parametrize("key", [None, "hub_ingest_key"])
@in_loop
async def test_login_from_netrc_is_not_sent(tmp_path, monkeypatch, key):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login zaphod password beeblebrox\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))

    with scripted_server() as server:
        state = tmp_path / "state"
        async with AsyncTelemetry(make_registry(), server.url, state, ingest_key=key) as telemetry:
            record(telemetry, 1)
            assert await telemetry.flush()
    (request,) = server.received
    assert request.headers.get("Authorization") == (key and f"Bearer {key}")


@in_loop
async def test_proxy_of_the_environment_is_used(tmp_path, monkeypatch):
    with scripted_server() as server:
        monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://arthur:dent@"))
        monkeypatch.setenv("no_proxy", "localhost")
        endpoint = "http://telemetry.invalid"
        async with AsyncTelemetry(make_registry(), endpoint, tmp_path) as telemetry:
            record(telemetry, 1)
            assert await telemetry.flush()
    (request,) = server.received
    assert request.path == "http://telemetry.invalid/v1/reports"
    assert request.headers["Proxy-Authorization"] == "Basic YXJ0aHVyOmRlbnQ="


@in_loop
async def test_proxy_is_left_out_where_the_environment_says_so(tmp_path, monkeypatch):
    with scripted_server() as server:
        monkeypatch.setenv("http_proxy", NOWHERE)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with AsyncTelemetry(make_registry(), server.url, tmp_path) as telemetry:
            record(telemetry, 1)
            assert await telemetry.flush()
    assert len(server.reports) == 1


@in_loop
async def test_only_the_proxy_of_an_https_endpoint_gets_its_login(tmp_path, monkeypatch):
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1")
    port = proxy.sockets[0].getsockname()[1]
    monkeypatch.setenv("https_proxy", f"http://arthur:dent@127.0.0.1:{port}")
    endpoint = "https://telemetry.invalid"
    async with (
        proxy,
        AsyncTelemetry(make_registry(), endpoint, tmp_path, ingest_key="zaphod") as telemetry,
    ):
        record(telemetry, 1)
        assert not await telemetry.flush(1.0)
        await until(lambda: asked)
    assert asked[0].startswith(b"CONNECT telemetry.invalid:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic YXJ0aHVyOmRlbnQ=\r\n" in asked[0]
    assert b"zaphod" not in asked[0]


@in_loop
async def test_client_that_was_left_without_consent_stays_closed(tmp_path):
    with scripted_server() as server:
        async with AsyncTelemetry(
            make_registry(), server.url, tmp_path, consent=False
        ) as telemetry:
            pass
        telemetry.set_consent(True)
        telemetry.record("homepage", "x")
        assert telemetry.status().disabled == "no consent"
    assert server.received == []


@in_loop
async def test_consent_may_be_given_and_withdrawn_in_the_loop(tmp_path):
    with scripted_server() as server:
        async with AsyncTelemetry(
            make_registry(), server.url, tmp_path, consent=False
        ) as telemetry:
            telemetry.set_consent(True)
            record(telemetry, 2)
            assert await telemetry.flush()
            telemetry.set_consent(False)
            record(telemetry, 3)
            await until(lambda: telemetry.status().dropped.get("disabled") == 3)
            telemetry.set_consent(True)
            record(telemetry, 1)
            assert await telemetry.flush()
    assert len(server.reports) == 3
