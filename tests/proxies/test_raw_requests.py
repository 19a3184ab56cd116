"""What proxies forward of requests that servers read in different ways, and a collector's view.

Each proxy stands before a server that keeps the bytes. These are then given to a collector, with
another request behind them as on a connection that the proxy uses again. Invariant: what the proxy
forwards as one request is one to the collector, or is refused and closes the connection.
"""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from hubbub.simulations import running_collector
from proxies.servers import PROXIES, running_proxy
from service.raw_requests import REQUESTS, Outcome, outcome_of, read_statuses

_QUIET = 0.3
"""Seconds after which nothing more comes of a request; on this machine it takes milliseconds."""

MENDED = {
    "nginx": {
        "bare LF after a chunk size",
        "bare LF everywhere",
        "bare LF hides a field",
        "bare LF in a chunk extension",
        "bare LF in the head",
        "byte that isn't ASCII in a name",
        "chunk that ends with LF",
        "field without a colon",
        "host b'a\\\\b'",
        "trailer without a colon",
        "version b''",
        "version b'HTTP/1.1 '",
        "version b'HTTP/1.10'",
    },
    "haproxy": {
        "bare LF after a chunk size",
        "bare LF everywhere",
        "bare LF hides a field",
        "bare LF in a chunk extension",
        "bare LF in the head",
        "chunk that ends with LF",
        "chunks that end before the length",
        "chunks, then length",
        "folded coding",
        "folded field",
        "length b'5, 5'",
        "length, then chunks",
        "tab in the request line",
        "version b'HTTP/2.0'",
    },
    "caddy": {
        "bare LF after a chunk size",
        "bare LF in a chunk extension",
        "bare LF in the head",
        "chunks that end before the length",
        "chunks, then length",
        "folded coding",
        "length b''",
        "length, then chunks",
    },
}
"""What each proxy lets through in a form that a collector takes, of the requests that it refuses
when they come from a client: with one length and with whole line ends. HAProxy also forwards some
as they are, such as `Host: a, b`, no host, NUL in a value and chunks of 1.0, and Caddy the
beginnings of broken chunks; these a collector refuses.
"""


class Upstream:
    """Keeps each request as its bytes, and answers it once nothing more comes."""

    def __init__(self, listener: socket.socket) -> None:
        self.received: list[bytes] = []
        self._listener = listener

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._keep, args=(connection,)).start()

    def _keep(self, connection: socket.socket) -> None:
        data = b""
        with connection:
            connection.settimeout(_QUIET)
            while True:
                try:
                    part = connection.recv(65_536)
                except TimeoutError:
                    if data:
                        self.received.append(data)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    data = b""
                    continue
                except OSError:
                    part = b""
                data += part
                if not part:
                    break
        if data:
            self.received.append(data)


@contextmanager
def _running_upstream() -> Iterator[tuple[Upstream, str]]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        upstream = Upstream(listener)
        serving = threading.Thread(target=upstream.serve)
        serving.start()
        yield upstream, f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    serving.join()


@pytest.mark.parametrize("name", PROXIES)
def test_a_collector_ends_each_request_where_the_proxy_does(name, metrics_file, tmp_path):
    forwarded: dict[str, list[bytes]] = {}
    with (
        _running_upstream() as (upstream, url),
        running_proxy(name, tmp_path / "proxy", url) as proxy,
    ):
        for request in REQUESTS:
            with closing(proxy.connection()) as connection:
                connection.connect()
                with suppress(OSError):  # closed already
                    connection.sock.sendall(request.data)
                read_statuses(connection.sock, 2 * _QUIET)
            forwarded[request.name], upstream.received = upstream.received, []
    pairs = [(case, data) for case, requests in forwarded.items() for data in requests]
    with running_collector(metrics_file, tmp_path / "hubbub.db") as collector:
        address = urlsplit(collector.url)
        assert address.hostname
        assert address.port
        where = address.hostname, address.port
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda pair: (*pair, outcome_of(where, pair[1])), pairs))
    assert not [it for it in found if it[2] not in {Outcome.TAKEN, Outcome.REFUSED}]
    refused = {request.name for request in REQUESTS if request.outcome is Outcome.REFUSED}
    assert {"length", "chunks", "trailer"} <= {case for case, *_ in found}
    mended = {case for case, _, outcome in found if outcome is Outcome.TAKEN}
    assert mended & refused == MENDED[name]
