"""A real S3 server on the loopback interface, and a proxy that refuses, cuts and holds requests."""

import contextlib
import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn
from urllib.parse import urlsplit

from moto.server import ThreadedMotoServer

BUCKET = "reports"
_ERROR = "<Error><Code>{code}</Code><Message>refused by the test</Message></Error>"


class Fault(Enum):
    """What may become of a connection in the middle of a body."""

    CUT_REQUEST = auto()  # the server never hears of it
    CUT_ANSWER = auto()  # the server has done its work
    SILENT_REQUEST = auto()  # half of it is read, then nothing happens any more
    SILENT_ANSWER = auto()  # half of it is sent


Trouble = tuple[int, str] | Fault | None
"""A status and an error's code, or what becomes of the connection, or None to pass a request on."""


class _CutError(OSError):
    """The proxy breaks the connection."""


@dataclass(slots=True)
class Proxy:
    """What stands between a client and the server."""

    url: str = ""  # where clients connect
    # From a request's method and path to what becomes of it.
    trouble: Callable[[str, str], Trouble] = lambda _method, _path: None
    requests: list[str] = field(default_factory=list)  # methods and paths, as they came
    closing: threading.Event = field(default_factory=threading.Event)  # ends all silence

    @property
    def environment(self) -> dict[str, str]:
        """What tells a client to come here."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with an empty bucket; yields its address."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(request, timeout=60):
            pass
        yield url
    finally:
        server.stop()


@contextmanager
def proxy_before(target: str) -> Iterator[Proxy]:
    """Run a proxy on a free port."""
    proxy, address = Proxy(), urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            proxy.requests.append(f"{self.command} {self.path}")
            trouble = proxy.trouble(self.command, self.path)
            if trouble in {Fault.CUT_REQUEST, Fault.SILENT_REQUEST}:
                self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
                self._break(trouble)
            body = self._body()
            if isinstance(trouble, tuple):
                status, text = trouble[0], _ERROR.format(code=trouble[1]).encode()
                headers = [("Content-Type", "application/xml")]
            else:
                passed_on = http.client.HTTPConnection(str(address.hostname), address.port)
                kept = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in {"content-length", "expect", "transfer-encoding"}
                }
                passed_on.request(self.command, self.path, body, kept)
                answer = passed_on.getresponse()
                status, text, headers = answer.status, answer.read(), answer.getheaders()
                passed_on.close()
            self.send_response_only(status)
            length = dict(headers).get("Content-Length", len(text))
            for name, value in headers:
                if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if isinstance(trouble, Fault):
                self.wfile.write(text[: len(text) // 2])
                self.wfile.flush()
                self._break(trouble)
            if self.command != "HEAD":
                self.wfile.write(text)

        def _break(self, fault: Trouble) -> NoReturn:
            if fault in {Fault.SILENT_REQUEST, Fault.SILENT_ANSWER}:
                proxy.closing.wait()
            raise _CutError

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return body

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                # The client was killed, or is to lose its connection.
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="s3 proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
