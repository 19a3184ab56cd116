"""SIGTERM: what was begun is finished, nothing new is begun, and the process ends well."""

import contextlib
import http.client
import signal
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hubbub.client import batch_to_json
from programs import forked_collector
from service.posting import (
    SECONDS,
    accepts_connections,
    connect,
    make_batch,
    post,
    stored_count,
    wait_until,
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_request_under_way_is_answered_and_stored(collector, database, number):
    body = batch_to_json(make_batch(5))
    with _begun_request(collector.url, body) as connection:
        collector.process.send_signal(number)
        wait_until(lambda: not accepts_connections(collector.url))
        assert collector.process.poll() is None
        connection.sendall(body[len(body) // 2 :])
        answer = _answer(connection)
        assert answer.status == 201
        assert answer.will_close  # or a busy connection would go on for ever
    assert collector.process.wait(SECONDS) == 0
    assert stored_count(database) == 5


def test_batch_that_waits_for_the_store_is_answered_and_stored(collector, database):
    with (
        ThreadPoolExecutor(1) as pool,
        contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        other.execute("BEGIN EXCLUSIVE")
        answer = pool.submit(post, collector.url, make_batch(5))
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.5)
        collector.process.terminate()
        wait_until(lambda: not accepts_connections(collector.url))
        other.execute("ROLLBACK")
        assert answer.result().status == 201
    assert collector.process.wait(SECONDS) == 0
    assert stored_count(database) == 5


def test_idle_connection_does_not_hold_the_collector(collector):
    with connect(collector.url) as silent, connect(collector.url) as used:
        used.sendall(b"GET /livez HTTP/1.1\r\nHost: collector\r\n\r\n")
        assert _answer(used).status == 200
        begun = time.monotonic()
        collector.process.terminate()
        assert collector.process.wait(SECONDS) == 0
        assert time.monotonic() - begun < 10  # far less than the 30 s that requests would get
        assert silent.recv(1) == b""


@pytest.mark.parametrize("seconds", ["0", "0.5"])
def test_request_that_does_not_end_is_given_up_and_not_stored(metrics_file, database, seconds):
    body = batch_to_json(make_batch(5))
    with (
        forked_collector(metrics_file, database, ["--drain-seconds", seconds]) as collector,
        _begun_request(collector.url, body),
    ):
        begun = time.monotonic()
        collector.process.terminate()
        assert collector.process.wait(SECONDS) == 0
        assert time.monotonic() - begun < 10
    assert stored_count(database) == 0


def _begun_request(url: str, body: bytes) -> socket.socket:
    """Send half of a request's body, the collector having said that it reads it."""
    connection = connect(url)
    connection.sendall(
        b"POST /v1/reports HTTP/1.1\r\nHost: collector\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert connection.recv(len(interim), socket.MSG_WAITALL) == interim
    connection.sendall(body[: len(body) // 2])
    return connection


def _answer(connection: socket.socket) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response
