"""Too much of everything: the surplus is sent away politely, and the rest is served in full."""

import asyncio
import contextlib
import gzip
import random
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from factories import make_metric
from hubbub.client import batch_to_json
from hubbub.collector import generate_secret
from hubbub.simulations import Collector, running_collector
from service.faults import (
    cpu_seconds,
    errors_kept_in,
    peak_bytes,
    read_answer,
    reset_peak,
    status_of,
)
from service.loads import Accounts, Connection, Load, stored_in
from service.posting import (
    Answer,
    connect,
    make_batch,
    post,
    records_of,
    send,
    stored_records,
    wait_until,
)

pytestmark = pytest.mark.long

_PROBE_SECONDS = 10.0  # for a machine that stalls; idle it takes milliseconds
_REQUESTS = 400
_CLIENTS = 8
_BOMBS = 16
_BOMB_SECONDS = 0.15
_MOST_GROWTH = 100 * 2**20
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_overload_loses_nothing_and_probes_are_answered_meanwhile(
    metrics_file, sqlite_url, workers
):
    accounts = Accounts()
    options = ["--max-waiting-bytes", "100000", "--workers", workers]
    with (
        running_collector(metrics_file, sqlite_url, options) as collector,
        Load(collector.url, accounts, connections=32 * int(workers)) as load,
    ):
        load.wait_for_status(429, 20)
        for path in ("/livez", "/readyz") * 5:
            begun = time.monotonic()
            assert status_of(collector, path) == 200
            assert time.monotonic() - begun < _PROBE_SECONDS
        load.wait_for(100)
        load.finish()
    accounts.assert_all_counted_once(stored_in(sqlite_url))


@pytest.mark.parametrize("invalid_share", [1.0, 0.5, 0.05])
def test_good_traffic_amid_invalid_traffic_loses_nothing(collector, sqlite_url, invalid_share):
    chance = random.Random(invalid_share)  # noqa: S311
    accounts = Accounts()
    is_invalid = [chance.random() < invalid_share for _ in range(_REQUESTS)]
    statuses = asyncio.run(_post_mixture(collector.url, accounts, is_invalid))
    assert statuses == Counter({422: sum(is_invalid), 201: _REQUESTS - sum(is_invalid)})
    assert post(collector.url, accounts.new().batch).status == 201
    accounts.acknowledged.update(parcel.batch.batch_id for parcel in accounts.made)
    accounts.assert_all_counted_once(stored_in(sqlite_url))


def test_slow_body_is_given_up_and_does_not_hinder_others(metrics_file, database):
    body = batch_to_json(make_batch())
    with (
        running_collector(metrics_file, database, ["--body-seconds", "1"]) as collector,
        _begun_request(collector.url, body) as slow,
    ):
        begun = time.monotonic()
        with _trickling(slow, body[1:]):
            good = make_batch(5)
            assert post(collector.url, good).status == 201
            answer = read_answer(slow)
        assert answer.status == 408
        assert answer.json["detail"]
        assert answer.headers["Connection"] == "close"
        assert time.monotonic() - begun >= 0.9
    assert sorted(stored_records(database)) == records_of(good)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_probes_are_answered_on_a_listener_of_their_own(metrics_file, database, workers):
    options = ["--probe-port", "0", "--workers", workers]
    with running_collector(metrics_file, database, options) as collector:
        probes = collector.read_probe_url()
        for path in ("/livez", "/readyz"):
            assert send(probes, "GET", path).status == 200
            assert send(probes, "HEAD", path).status == 200
        assert send(probes, "GET", "/openapi.json").status == 404
        assert send(probes, "POST", "/v1/reports").status == 404
        assert send(probes, "DELETE", "/livez").status == 405


def test_no_answer_names_the_server(metrics_file, database, tmp_path):
    config = tmp_path / "collector.toml"
    _secret, sha256 = generate_secret("admin")
    token = f'[admin_tokens.ops]\nsha256 = "{sha256}"\n'
    config.write_text(f"admin_port = 0\nprobe_port = 0\n{token}", encoding="utf-8")
    options = ["--config", str(config)]
    with running_collector(metrics_file, database, options) as collector:
        admin = collector.read_admin_url()
        for url in (collector.url, admin, collector.read_probe_url()):
            for path in ("/livez", "/", "/metrics", "/nowhere"):
                assert "Server" not in send(url, "GET", path).headers
            with connect(url) as connection:
                connection.sendall(b"no HTTP\r\n\r\n")
                answer = read_answer(connection)
                assert (answer.status, "Server" in answer.headers) == (400, False)


def test_admin_takes_no_bodies_and_cuts_floods(metrics_file, database, tmp_path):
    config = tmp_path / "collector.toml"
    _secret, sha256 = generate_secret("admin")
    token = f'[admin_tokens.ops]\nsha256 = "{sha256}"\n'
    config.write_text(f"admin_port = 0\n{token}", encoding="utf-8")
    with running_collector(metrics_file, database, ["--config", str(config)]) as collector:
        admin = collector.read_admin_url()
        answer = send(admin, "GET", "/metrics", b"x" * 1000)
        assert (answer.status, answer.json["detail"]) == (413, "body: GET takes none")
        with connect(admin) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n")
            connection.sendall(b"x" * 999_999)
            assert _rest(connection) in {b"", b"HTTP/1.1 413"}
        assert _answers(admin)


def test_half_open_admin_connections_block_no_one_and_barely_fill_the_log(
    metrics_file, database, tmp_path
):
    config, errors = tmp_path / "collector.toml", tmp_path / "errors"
    _secret, sha256 = generate_secret("admin")
    token = f'[admin_tokens.ops]\nsha256 = "{sha256}"\n'
    config.write_text(
        f"admin_port = 0\npublish_seconds = 0.2\nheader_seconds = 2\n{token}", encoding="utf-8"
    )
    options = ["--config", str(config)]
    with (
        errors_kept_in(errors),
        running_collector(metrics_file, database, options) as collector,
        ExitStack() as stack,
    ):
        admin = collector.read_admin_url()
        resource.prlimit(collector.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        for _ in range(1135):
            stack.enter_context(connect(admin)).sendall(b"GET / HTTP/1.1\r\nHost: coll")
        for _ in range(5):
            assert status_of(collector, "/livez") == 200
            assert post(collector.url, make_batch()).status == 201
        # The few that were let in are given up, so that operators come in again.
        wait_until(lambda: _answers(admin))
    assert len(errors.read_text(encoding="utf-8").splitlines()) < 10


def test_running_out_of_files_is_logged_in_one_line(metrics_file, database, tmp_path):
    errors = tmp_path / "errors"
    with (
        errors_kept_in(errors),
        running_collector(metrics_file, database) as collector,
    ):
        pid = collector.process.pid
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(connect(collector.url))
            told = "no more files can be opened"
            wait_until(lambda: told in errors.read_text(encoding="utf-8"))
        wait_until(lambda: _is_served_anew(collector))
    assert len(errors.read_text(encoding="utf-8").splitlines()) < 10


def test_zip_bombs_in_parallel_are_refused_and_memory_stays_bounded(collector):
    bomb = gzip.compress(bytes(256 * 2**20), 9)
    assert len(bomb) < 2**20
    pid = collector.process.pid
    assert post(collector.url, make_batch()).status == 201
    before, spent_before = reset_peak(pid), cpu_seconds(pid)
    with ThreadPoolExecutor(_BOMBS) as pool:
        answers = list(pool.map(lambda _: _post_bomb(collector, bomb), range(2 * _BOMBS)))
    assert {answer.status for answer in answers} == {413}
    assert post(collector.url, make_batch()).status == 201
    assert peak_bytes(pid) - before < _MOST_GROWTH
    # Each would take 0.5 s if all of it were inflated.
    assert cpu_seconds(pid) - spent_before < _BOMB_SECONDS * 2 * _BOMBS


async def _post_mixture(url: str, accounts: Accounts, is_invalid: list[bool]) -> Counter[int]:
    """Post good and bad batches from several clients; return how often each status came."""
    wrong = batch_to_json(make_batch(5, make_metric(version=2)))
    turns = iter(is_invalid)
    statuses: Counter[int] = Counter()

    async def work() -> None:
        connection = Connection()
        for bad in turns:
            body = wrong if bad else batch_to_json(accounts.new().batch)
            statuses[(await connection.post(url, body)).status] += 1
        connection.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CLIENTS):
            tasks.create_task(work())
    return statuses


@contextmanager
def _begun_request(url: str, body: bytes) -> Iterator[socket.socket]:
    """Begin a request, and send the first byte of its body once the collector waits for it."""
    with connect(url) as connection:
        connection.sendall(
            b"POST /v1/reports HTTP/1.1\r\nHost: collector\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert connection.recv(len(_CONTINUE), socket.MSG_WAITALL) == _CONTINUE
        connection.sendall(body[:1])
        yield connection


@contextmanager
def _trickling(connection: socket.socket, data: bytes) -> Iterator[None]:
    """Send a byte now and then, in the background, until nobody listens."""
    is_over = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            for byte in data:
                connection.sendall(bytes([byte]))
                if is_over.wait(0.05):
                    return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _rest(connection: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: connection.recv(4096), b""))[:12]
    except ConnectionError:
        return b""


def _answers(url: str) -> bool:
    try:
        return send(url, "GET", "/").status == 401
    except (ConnectionError, HTTPException):
        return False


def _is_served_anew(collector: Collector) -> bool:
    try:
        return status_of(collector, "/livez") == 200
    except ConnectionError:
        return False


def _post_bomb(collector: Collector, bomb: bytes) -> Answer:
    return post(collector.url, bomb, headers={"Content-Encoding": "gzip"})
