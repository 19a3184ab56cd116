"""Real servers on the loopback interface that answer as a test tells them to, or too slowly."""

import contextlib
import gzip
import json
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from evaluation.reference import compact as reference
from hubbub.client import Batch, Report, batch_to_json
from hubbub.protocol import wire


@dataclass(frozen=True, slots=True)
class Answer:
    """What to answer; status 0 closes the connection without a word."""

    status: int = 201
    body: bytes = b'{"accepted": 1}'
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def batch(self) -> dict[str, Any]:
        """The batch as JSON has it, whichever form it came in."""
        compressed = self.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(self.body) if compressed else self.body
        if self.headers["Content-Type"] == wire.MEDIA_TYPE:
            decoded = reference.decode(body)
            assert decoded is not None
            batch_id, reports = decoded
            body = batch_to_json(Batch(tuple(Report(*report) for report in reports), batch_id))
        return dict(json.loads(body))


@dataclass
class ScriptedServer:
    """Answers request number n (from 0) with `script(n)`, and keeps what it received."""

    script: Callable[[int], Answer]
    url: str = ""
    received: list[Received] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Received) -> Answer:
        with self._lock:
            number = len(self.received)
            self.received.append(request)
        return self.script(number)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """All reports of batches, each batch id counted once."""
        batches = {request.batch["batch_id"]: request.batch for request in self.received}
        return [report for batch in batches.values() for report in batch["reports"]]


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_details: object) -> None:
        """Stay silent: clients that hang up are what some tests are about."""


@contextmanager
def scripted_server(
    script: Callable[[int], Answer] = lambda _number: Answer(),
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[ScriptedServer]:
    """Serve until the context closes; threads that still answer are waited for."""
    scripted = ScriptedServer(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # its process has ended meanwhile; no server takes a part
                self.close_connection = True
                return
            answer = scripted.answer(Received(self.path, dict(self.headers), body))
            if not answer.status:
                return
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def do_GET(self) -> None:
            """Answer what a client would get if it followed a redirect."""
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"accepted": 1}')

        def log_message(self, *_args: object) -> None:
            """Stay silent."""

    with _QuietServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scripted.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()


_SECONDS_PER_BYTE = 0.1
DRIP_SECONDS = 60.0  # at least; no test waits for it


@contextmanager
def dripping_server(
    at_once: bytes,
    drips: bytes | Callable[[bytes], bytes],
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """Answer the first words of one connection at once, and then ten bytes a second.

    Yields the port.

    drips: What follows; or a function of the client's first words that returns it.
    tls: With it each byte is a TLS record of its own.
    """
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        first_words = connection.recv(65_536)
        answer = drips(first_words) if callable(drips) else drips
        assert len(answer) * _SECONDS_PER_BYTE >= DRIP_SECONDS
        connection.sendall(at_once)
        for byte in answer:
            connection.sendall(bytes([byte]))
            if stop.wait(_SECONDS_PER_BYTE):
                return

    def serve() -> None:
        while not stop.is_set():
            with contextlib.suppress(
                OSError
            ):  # nobody yet; or the client has hung up, as it should
                connection, _ = listener.accept()
                connection.settimeout(10.0)
                with contextlib.ExitStack() as open_connections:
                    open_connections.enter_context(connection)
                    if tls is not None:
                        connection = tls.wrap_socket(connection, server_side=True)
                        open_connections.enter_context(connection)
                    drip(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve, name="dripping server")
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            thread.join()


@contextmanager
def tunnelling_proxy() -> Iterator[tuple[str, list[str]]]:
    """Run a proxy that tunnels to this machine alone; yield its address and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Proxy-Authorization')}")
            port = int(self.path.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as server:
                self.send_response(200)
                self.end_headers()
                _relay(self.connection, server)
            self.close_connection = True

        def log_message(self, *_args: object) -> None:
            """Stay silent."""

    with _QuietServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{proxy.server_port}", asked
        finally:
            proxy.shutdown()
            thread.join()


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Pass on what either side says, until one hangs up."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for ready, _ in selector.select():
                assert isinstance(ready.fileobj, socket.socket)
                if not (words := ready.fileobj.recv(65_536)):
                    return
                ready.data.sendall(words)
