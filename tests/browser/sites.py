"""A web site with a strict content policy, whose own origin leads to a collector."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type

from service.posting import send
from unit.javascript.node import CLIENT

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'"
_CLIENT, _COLLECTOR = "/hubbub-client/", "/telemetry"


@dataclass
class Site:
    """A running site."""

    url: str  # its address
    # address to which the site, as a reverse proxy, hands on what is posted to `/telemetry`; None
    # if that doesn't answer
    collector: str | None


@contextmanager
def running_site(files: Mapping[str, str], collector: str) -> Iterator[Site]:
    """Serve files, path to text, on a free port of the loopback interface.

    The client's modules lie under `/hubbub-client/` besides.
    """
    site = Site("", collector)
    texts = dict(files)
    for path in CLIENT.glob("src/**/*.js"):
        texts[_CLIENT + path.relative_to(CLIENT).as_posix()] = path.read_text(encoding="utf-8")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = texts.get(self.path)
            kind = guess_type(self.path)[0] or "text/html"
            self._answer(404 if text is None else 200, kind, (text or "").encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not self.path.startswith(_COLLECTOR):
                return self._answer(405, "text/plain", b"")
            if site.collector is None:
                return self._answer(502, "text/plain", b"")
            headers = {"Content-Type": self.headers["Content-Type"]}
            answer = send(site.collector, "POST", self.path.removeprefix(_COLLECTOR), body, headers)
            return self._answer(answer.status, answer.headers["Content-Type"], answer.body)

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
