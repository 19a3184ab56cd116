"""A real HTTP server on the loopback interface that answers as a test tells it to."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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
        compressed = self.headers.get("Content-Encoding") == "gzip"
        return dict(json.loads(gzip.decompress(self.body) if compressed else self.body))


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
            body = self.rfile.read(int(self.headers["Content-Length"]))
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
