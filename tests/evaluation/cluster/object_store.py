"""A server that speaks S3 and keeps objects in memory, as a process that may be killed."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Self

_BUCKET = "reports"
_HOST = "127.0.0.1"
_PATIENCE = 60.0


class ObjectStore:
    """The server, with one bucket."""

    def __init__(self) -> None:
        with socket.create_server((_HOST, 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """Serve until the context closes."""
        server = cls()
        try:
            yield server
        finally:
            server.kill()

    @property
    def address(self) -> str:
        """Where an export belongs."""
        return f"s3://{_BUCKET}/export"

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs need to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{self.port}",
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, with an empty bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", _HOST, "-p", str(self.port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                status, answer = self._request("PUT", f"/{_BUCKET}")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        if status != 200:
            raise OSError(f"the S3 server made no bucket: {status} {answer!r}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def uploads(self) -> int:
        """Return how many objects are being sent in parts, or were when their sender was killed."""
        return self._request("GET", f"/{_BUCKET}?uploads")[1].count(b"<UploadId>")

    def _request(self, method: str, path: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(_HOST, self.port, timeout=_PATIENCE)) as server:
            server.request(method, path)
            response = server.getresponse()
            return response.status, response.read()
