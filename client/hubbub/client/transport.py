"""One HTTP attempt to deliver a batch, and what its outcome means.

Only an answer that the collector itself could have given counts as delivered: a captive portal that
redirects, or says 200 with a page of its own, must not make the client throw reports away.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

MAX_ANSWER = 65_536
_COMPRESS_ABOVE = 1024
_RETRY_STATUSES = frozenset({408, 429})
_BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)


class Outcome(enum.Enum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


class Answer(NamedTuple):
    """What an attempt came to.

    Attributes
    ----------
    outcome : Outcome
    retry_after : float or None
        Seconds that the server asks to be left alone.
    refused : tuple of int
        Indices of the reports that a 422 names; empty if it means the whole batch.
    """

    outcome: Outcome
    retry_after: float | None = None
    refused: tuple[int, ...] = ()


UNREACHABLE = Answer(Outcome.RETRY)


def check_endpoint(endpoint: str) -> str:
    """Return the address to post to (raises ValueError if it isn't an http or https address)."""
    if not endpoint.startswith(("https://", "http://")):
        raise ValueError(f"endpoint = {endpoint!r}: must start with https:// or http://")
    return endpoint.rstrip("/") + "/v1/reports"


def check_ingest_key(key: str | None) -> None:
    """Raise ValueError, without the key, if it can't be a bearer token (RFC 6750, 2.1)."""
    if key is not None and not (isinstance(key, str) and _BEARER_TOKEN.fullmatch(key)):
        raise ValueError("ingest_key: must be letters, digits and -._~+/ alone, and = at the end")


def encode_request(body: bytes, ingest_key: str | None) -> tuple[bytes, dict[str, str]]:
    """Return what goes over the wire, and its headers: nothing about the machine."""
    headers = {"Content-Type": "application/json", "User-Agent": "hubbub"}
    if ingest_key is not None:
        headers["Authorization"] = f"Bearer {ingest_key}"
    if len(body) <= _COMPRESS_ABOVE:
        return body, headers
    import gzip

    return gzip.compress(body, mtime=0), headers | {"Content-Encoding": "gzip"}


def judge(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Answer:
    """Return what an HTTP answer means.

    Parameters
    ----------
    status : int
    headers : mapping
        Looked up as "Retry-After".
    body : bytes
        At most `MAX_ANSWER` of it.
    now : float
        Seconds since the epoch, for a Retry-After that is a date.
    """
    if status in {200, 201}:
        accepted = _json_object(body).get("accepted")
        return Answer(Outcome.DELIVERED) if isinstance(accepted, int) else UNREACHABLE
    if 400 <= status < 500 and status not in _RETRY_STATUSES:
        return Answer(Outcome.REFUSED, refused=_named_reports(body) if status == 422 else ())
    return Answer(Outcome.RETRY, retry_after=_retry_after(headers.get("Retry-After"), now))


class HttpSender:
    """Post batches to a collector; standard library only.

    TLS certificates are verified, proxies taken from the environment, redirects not followed.

    Parameters
    ----------
    endpoint : str
        Base address, such as "https://telemetry.example.com".
    connect_timeout, read_timeout : float
        Seconds for connecting, and for the whole answer after that.
    ingest_key : str, optional
        Presented with each batch.

    Raises
    ------
    ValueError
        If the endpoint isn't an http or https address, or the key can't be sent in a header.
    """

    def __init__(
        self,
        endpoint: str,
        connect_timeout: float = 5.0,
        read_timeout: float = 10.0,
        ingest_key: str | None = None,
    ) -> None:
        self._url = check_endpoint(endpoint)
        check_ingest_key(ingest_key)
        self._ingest_key = ingest_key
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._opener: OpenerDirector | None = None

    def prepare(self) -> None:
        """Import what sending needs, if that hasn't been done; not while the app forks."""
        self._open()

    def send(self, body: bytes) -> Answer:
        """Try once. Never raises for anything that the network or the server does."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        data, headers = encode_request(body, self._ingest_key)
        request = Request(self._url, data=data, headers=headers, method="POST")  # noqa: S310
        try:
            try:
                response = self._open().open(request, timeout=self._connect_timeout)
            except HTTPError as error:
                response = error
            with response:
                answer = self._read(response)
                return judge(response.status, response.headers, answer, time.time())
        except (OSError, HTTPException, ValueError):
            return UNREACHABLE

    def _read(self, response: HTTPResponse) -> bytes:
        """Read an answer within the time for all of it, however slowly it drips."""
        deadline = time.monotonic() + self._read_timeout
        pieces: list[bytes] = []
        while (room := MAX_ANSWER - sum(map(len, pieces))) > 0:
            if time.monotonic() > deadline:
                raise TimeoutError("the answer came too slowly")
            piece = response.read1(room)
            if not piece:
                break
            pieces.append(piece)
        return b"".join(pieces)

    def _open(self) -> OpenerDirector:
        if self._opener is None:
            import email.utils  # noqa: F401
            import encodings.idna  # noqa: F401
            import gzip  # noqa: F401

            self._opener = _build_opener(self._read_timeout)
        return self._opener


def _build_opener(read_timeout: float) -> OpenerDirector:
    from http.client import HTTPConnection, HTTPSConnection
    from urllib import request

    class PlainConnection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(read_timeout)

    class TlsConnection(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(read_timeout)

    class PlainHandler(request.HTTPHandler):
        def http_open(self, req: request.Request) -> HTTPResponse:
            return self.do_open(PlainConnection, req)

    class TlsHandler(request.HTTPSHandler):
        def https_open(self, req: request.Request) -> HTTPResponse:
            return self.do_open(TlsConnection, req)

    class NoRedirects(request.HTTPRedirectHandler):
        def redirect_request(self, *_args: object) -> None:
            return None

    return request.build_opener(PlainHandler, TlsHandler, NoRedirects)


def _json_object(body: bytes) -> dict[str, object]:
    import json

    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _named_reports(body: bytes) -> tuple[int, ...]:
    """Return the reports that a problem document names in "errors"."""
    errors = _json_object(body).get("errors")
    if not isinstance(errors, list):
        return ()
    indices = (error.get("report") for error in errors if isinstance(error, dict))
    return tuple(index for index in indices if type(index) is int and index >= 0)


def _retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, which may be a number or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None
