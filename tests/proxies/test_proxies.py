"""A collector behind the proxies of docs/do/deploy.md: nothing is lost, and no address is kept."""

import http.client
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from factories import make_registry
from hubbub.client import Telemetry
from hubbub.collector import Settings
from hubbub.simulations import Collector, running_collector
from proxies.servers import PROXIES, running_proxy
from service.posting import COMPACT, FORMS, JSON, SECONDS, make_batch, stored_count

LARGEST = 2**20
"""Bytes of a body that the collector takes (`max_body_bytes`)."""
AT_ONCE = 600
"""More than the connections that a collector takes from one address unless told otherwise."""
REFUSED = {413, 502}
"""Of a larger one: Caddy 2.6 can miss the collector's answer while it still sends the body."""
NOBODY = {502, 503}
"""Of a proxy that finds no collector."""
SOMEBODY = "127.0.0.9"
"""A client's address, which nothing else has."""
OPTIONS = ["--max-connections-per-address", "4096"]


@pytest.fixture
def collector(metrics_file, tmp_path):
    with running_collector(metrics_file, tmp_path / "hubbub.db", OPTIONS) as running:
        yield running


@pytest.fixture(params=PROXIES)
def proxy(request, collector: Collector, tmp_path):
    with running_proxy(request.param, tmp_path / "proxy", collector.url) as running:
        yield running


def post(connection: http.client.HTTPSConnection, body: bytes, media_type: str = JSON) -> int:
    connection.request("POST", "/v1/reports", body, {"Content-Type": media_type})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_client_delivers_by_tls(proxy, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.authority))
    with closing(Telemetry(make_registry(), proxy.url, tmp_path / "state")) as telemetry:
        telemetry.record("homepage", "https://intranet.example")
        assert telemetry.flush(SECONDS)
    assert stored_count(tmp_path / "hubbub.db") == 1


def test_bodies_of_the_collectors_limit_pass_and_larger_ones_are_refused(proxy):
    statuses = []
    for size in (LARGEST, LARGEST + 1):
        with closing(proxy.connection()) as connection:
            statuses.append(post(connection, b"x" * size))
    assert statuses[0] == 400  # the collector's: no JSON
    assert statuses[1] in REFUSED


@pytest.mark.parametrize("name", PROXIES)
def test_the_proxy_closes_an_idle_connection_before_the_collector_does(name, tmp_path):
    """Otherwise a request could meet a connection that is just being closed."""
    limit = Settings.model_fields["header_seconds"].default
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}"
        with running_proxy(name, tmp_path / "proxy", url) as proxy, ThreadPoolExecutor() as threads:
            idle = threads.submit(_idle_seconds, upstream)
            with closing(proxy.connection()) as connection:
                assert post(connection, b"{}") == 201
                assert 1 < idle.result() < limit - 1


def _idle_seconds(upstream: socket.socket) -> float:
    """Answer one request, and return how long its connection then stays open."""
    connection, _ = upstream.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
        answered = time.monotonic()
        with suppress(ConnectionResetError):  # HAProxy's way to close
            while connection.recv(4096):  # the body, if it comes behind the head
                pass
        return time.monotonic() - answered


def test_many_slow_clients_are_served(proxy, tmp_path):
    body = {proxy.connection(): FORMS[COMPACT](make_batch()) for _ in range(AT_ONCE)}
    for connection, data in body.items():
        connection.putrequest("POST", "/v1/reports")
        connection.putheader("Content-Type", COMPACT)
        connection.putheader("Content-Length", f"{len(data)}")
        connection.endheaders()
        connection.send(data[:1])
    for connection, data in body.items():
        connection.send(data[1:])
        assert connection.getresponse().status == 201
        connection.close()
    assert stored_count(tmp_path / "hubbub.db") == 3 * AT_ONCE


def test_proxy_logs_have_no_address(proxy, collector):
    """Not of a request that went well, one too large, no TLS, nor one that finds no collector."""
    bodies = [FORMS[COMPACT](make_batch()), b"x" * (LARGEST + 1), FORMS[COMPACT](make_batch())]
    for body, expected in zip(bodies, ({201}, REFUSED, NOBODY), strict=True):
        if expected == NOBODY:
            collector.stop()
        with closing(proxy.connection(SOMEBODY)) as connection:
            assert post(connection, body, COMPACT) in expected
    with socket.create_connection((proxy.host, proxy.port), SECONDS, (SOMEBODY, 0)) as plain:
        plain.sendall(b"POST /v1/reports HTTP/1.1\r\n\r\n")
        while plain.recv(4096):
            pass
    assert SOMEBODY not in proxy.log.read_text(encoding="utf-8")
