"""One HTTP attempt to deliver a batch, what its outcome means, and why it failed.

Only an answer that the collector itself could have given counts as delivered: a captive portal that
redirects, or answers 200 with its own page, must not make the client discard reports. An answer is
read for a bounded time, however slowly it arrives, and the description of a failure contains no
value, no key and no login. What is sent is a batch's compact form, or JSON where that isn't
understood. No answer changes how later batches are sent, or it would mark the client.
"""

from __future__ import annotations

import enum
import io
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector, Request

    from _typeshed import WriteableBuffer

    from hubbub.protocol.wire import Batch

SWITCH_HEADERS = {"User-Agent": "hubbub", "Accept-Encoding": "identity"}
"""All clients ask for the switch with these: no key, and nothing from an earlier answer."""
SWITCH_BYTES = 65_537  # one more than any switch has: what is longer is malformed
MAX_ANSWER = 1_048_576  # a 422 may name every report of a large batch
_JSON = "application/json"
_LONGEST_DETAIL = 200  # characters of a foreign answer in a log: its first sentence
_KEY_STATUSES = frozenset({401, 403})
"""Unauthorized, forbidden: RFC 9110, sections 15.5.2 and 15.5.4."""
_ADDRESS_STATUSES = frozenset({404, 405})  # not found, method not allowed: another service answers
_UNKNOWN_FORM_STATUSES = frozenset({400, 403, 406, 415})
"""Answers of collectors, or of firewalls before them, to an unknown media type."""
_PROXY_LOGIN = 407  # comes from a proxy, not from the collector
_RETRY_STATUSES = frozenset({_PROXY_LOGIN, 408, 429})
"""Timeout and too many requests: refusals of this moment, not of the batch."""
_TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})\b", re.ASCII)
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}", re.ASCII)
_BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)


class Outcome(enum.Enum):
    """The outcome of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


class DeliveryFailure(NamedTuple):
    """Why an attempt didn't deliver its batch."""

    # "DNS", "TLS", "connection" (refused, reset, or ended before the answer was complete),
    # "timeout", "redirect", "status" (any other HTTP status), or "answer" (a 2xx that isn't the
    # collector's, such as a captive portal's page).
    kind: str
    detail: str  # for people; never a value, a key, or a proxy's login
    status: int | None  # the answer's HTTP status, if there was an answer
    time: float  # seconds since the epoch


class Answer(NamedTuple):
    """The result of an attempt."""

    outcome: Outcome
    retry_after: float | None = None  # seconds for which the server asks not to be called
    # Indices of the reports that a 422 names; empty if it means the whole batch.
    refused: tuple[int, ...] = ()
    error: DeliveryFailure | None = None  # none if the batch was delivered
    # Whether the collector may have stored the batch in an attempt that is to be repeated.
    may_be_stored: bool = True
    # Versions that the collector doesn't know yet: their reports wait, the others may go at once.
    unknown: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_to_be_repeated(self) -> bool:
        """Whether the batch should be sent again, after a wait."""
        return self.outcome is Outcome.RETRY and not self.unknown


def check_endpoint(endpoint: str) -> str:
    """Return the address to post to (raises ValueError if it isn't an http or https address)."""
    if not isinstance(endpoint, str) or not endpoint.startswith(("https://", "http://")):
        raise ValueError(f"endpoint = {endpoint!r}: must start with https:// or http://")
    if not urlsplit(endpoint).hostname:
        raise ValueError(f"endpoint = {endpoint!r}: must name a host")
    return endpoint.rstrip("/") + "/v1/reports"


def origin_of(endpoint: str) -> str:
    """Return scheme, host and port of an address, without a login."""
    parts = urlsplit(endpoint)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{parts.hostname}:{port}"


def is_in_the_clear(address: str) -> bool:
    """Whether requests to an address can be read on the way: http, not to this machine."""
    parts = urlsplit(address)
    host = (parts.hostname or "").rstrip(".")
    is_local = host in {"localhost", "::1"} or host.endswith(".localhost")
    return parts.scheme == "http" and not is_local and not _LOOPBACK.fullmatch(host)


def classify_response(status: int, headers: Mapping[str, str], body: bytes, now: float) -> Answer:
    """Return what an HTTP answer means; `now`: seconds since the epoch."""
    import json

    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = {}
    # Only a collector returns how many reports it accepted.
    if status in {200, 201} and isinstance(document.get("accepted"), int):
        return Answer(Outcome.DELIVERED)
    error = DeliveryFailure(*_explain(status, headers, document), status, now)
    # A refusal of some reports, of versions that the collector doesn't know yet, or of the batch.
    if 400 <= status < 500 and status not in _RETRY_STATUSES:
        named = [e.get("report") for e in _errors(document)] if status == 422 else []
        refused = tuple(index for index in named if type(index) is int and index >= 0)
        if status == 422 and document.get("retry") is True:
            unknown = _unknown_versions(document)
            return Answer(Outcome.RETRY, None, refused, error, may_be_stored=False, unknown=unknown)
        return Answer(Outcome.REFUSED, refused=refused, error=error)
    # Anything else is of this moment.
    return Answer(
        Outcome.RETRY,
        retry_after=_retry_after(headers.get("Retry-After"), now),
        error=error,
        may_be_stored=document.get("stored") is not False,
    )


def _unknown_versions(document: Mapping[str, Any]) -> frozenset[tuple[str, int]]:
    listed = document.get("unknown")
    pairs = [
        (one.get("metric"), one.get("version"))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
    ]
    return frozenset((m, v) for m, v in pairs if isinstance(m, str) and type(v) is int)


def switch_address(switch: str | bool | None, endpoint: str) -> str | None:
    """Return where the switch is asked for, if at all.

    `switch`: as in `Telemetry`. `endpoint`: the collector's base address. Raises `ValueError` if it
    can't be, or is less protected than reports are.
    """
    if switch is None or switch is False:
        return None
    if switch is True:
        return endpoint.rstrip("/") + "/v1/switch"
    schemes = ("https://",) if endpoint.startswith("https://") else ("https://", "http://")
    if not (isinstance(switch, str) and switch.startswith(schemes)) or set("?#@") & set(switch):
        expected = f"must be True or start with {' or '.join(schemes)}, without user or query"
        raise ValueError(f"switch = {switch!r}: {expected}")
    return switch


def failure(error: BaseException, now: float) -> Answer:
    """Return the result of an attempt that ended in an exception: retry, for this reason.

    Texts of exceptions aren't repeated, because some quote an address with its login.
    """
    import ssl
    from socket import gaierror

    # urllib wraps what it meets before an answer.
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, BaseException) else error
    system = cause.strerror if isinstance(cause, OSError) else None
    is_name = isinstance(cause, (gaierror, UnicodeError))
    if is_name:
        kind, detail = "DNS", system or "the host's name can't be looked up"
    elif isinstance(cause, ssl.SSLError):
        known = getattr(cause, "reason", None) or "the encrypted connection failed"
        kind, detail = "TLS", known.replace("_", " ").lower()
        if why := getattr(cause, "verify_message", None):
            detail = f"the certificate can't be trusted: {why}"
    elif isinstance(cause, TimeoutError):
        kind, detail = "timeout", system or "no complete answer in time"
    elif refused := _TUNNEL_REFUSED.match(str(cause)):
        kind, detail = "connection", f"the proxy refused a tunnel, with status {refused[1]}"
    else:
        kind, detail = "connection", f"no complete HTTP answer ({type(cause).__name__})"
        if isinstance(cause, OSError) and cause.errno:
            detail = os.strerror(cause.errno)
    is_not_sent = isinstance(cause, (ConnectionRefusedError, ssl.SSLCertVerificationError))
    return Answer(
        Outcome.RETRY,
        error=DeliveryFailure(kind, _printable(detail), None, now),
        may_be_stored=not is_name and not is_not_sent,
    )


def refusal_reason(answer: Answer) -> str:
    """Return the reason under which reports are counted that this answer refuses."""
    status = None if answer.error is None else answer.error.status
    if status in _KEY_STATUSES:
        return "refused by the collector: ingest key"
    if status in _ADDRESS_STATUSES:
        return "refused by the collector: no such address"
    return "refused by the collector"


class HttpSender:
    """Post batches to a collector; standard library only.

    TLS certificates are verified, proxies taken from the environment, redirects not followed.
    Threads may share a sender.

    `endpoint`: base address, such as "https://telemetry.example.com". `timeout`: seconds for which
    the other side may be silent, for the TLS handshake, and for the whole answer of the server, or
    of a proxy to its tunnel. `ingest_key`: presented with each batch. Raises `ValueError` if the
    endpoint isn't an http or https address, or the key can't be sent in a header.
    """

    def __init__(
        self,
        endpoint: str,
        timeout: float = 10.0,
        ingest_key: str | None = None,
    ) -> None:
        self._url = check_endpoint(endpoint)
        self._headers = {"User-Agent": "hubbub"}
        if ingest_key is not None:
            # A bearer token (RFC 6750, 2.1); the message doesn't quote it.
            if not (isinstance(ingest_key, str) and _BEARER_TOKEN.fullmatch(ingest_key)):
                raise ValueError(
                    "ingest_key: must be letters, digits and -._~+/ alone, and = at the end"
                )
            self._headers["Authorization"] = f"Bearer {ingest_key}"
        self._timeout = timeout
        self._opener: OpenerDirector | None = None

    def prepare(self) -> None:
        """Import what sending needs; call it while the app can't fork."""
        self._open()

    def send(self, batch: Batch) -> Answer:
        """Try once; never raises for anything that the network or the server does."""
        from hubbub.protocol import wire

        answer = self._post(wire.batch_to_compact(batch), wire.MEDIA_TYPE)
        status = None if answer.error is None else answer.error.status
        # Firewalls may know less than the collector behind them. The next batch is compact again.
        if answer.outcome is Outcome.REFUSED and status in _UNKNOWN_FORM_STATUSES:
            answer = self._post(wire.batch_to_json(batch), _JSON)
        return answer

    def fetch(self, address: str) -> bytes | Answer:
        """Return the switch's file, or why there is none (never raises, as `send`)."""
        got = self._exchange(address, SWITCH_HEADERS, most=SWITCH_BYTES)
        if isinstance(got, Answer):
            return got
        status, headers, body = got
        if status == 200:
            return body
        error = DeliveryFailure(*_explain(status, headers, {}), status, time.time())
        return Answer(Outcome.RETRY, error=error)

    def _post(self, data: bytes, media_type: str) -> Answer:
        got = self._exchange(self._url, {"Content-Type": media_type, **self._headers}, data)
        return got if isinstance(got, Answer) else classify_response(*got, time.time())

    def _exchange(
        self,
        address: str,
        headers: dict[str, str],
        data: bytes | None = None,
        most: int = MAX_ANSWER,
    ) -> tuple[int, Mapping[str, str], bytes] | Answer:
        """Return status, headers and at most so many bytes of an answer, or why there is none."""
        from http.client import HTTPException, IncompleteRead
        from urllib.request import Request

        request = Request(address, data, headers)  # noqa: S310 (checked at the start)
        try:
            with self._open().open(request, timeout=self._timeout) as response:
                body = response.read(most)
                if response.length and len(body) < most:  # of a 422, all would be refused
                    raise IncompleteRead(body, response.length)
                return response.status, response.headers, body
        except (OSError, HTTPException, ValueError) as error:
            return failure(error, time.time())

    def _open(self) -> OpenerDirector:
        if self._opener is None:
            import email.utils  # noqa: F401
            import encodings.idna  # noqa: F401
            import json  # noqa: F401

            import hubbub.protocol.wire  # noqa: F401

            self._opener = _build_opener(self._timeout)
        return self._opener


def _build_opener(timeout: float) -> OpenerDirector:
    """Return an opener with the environment's proxies, which treats no status as an error.

    `timeout`: seconds for each answer, a proxy's to a tunnel too.
    """
    import ssl
    from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
    from urllib import request

    class TimedResponse(HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            until = time.monotonic() + timeout
            self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), until))

    class Connection(HTTPConnection):
        response_class = TimedResponse

    class TlsConnection(HTTPSConnection):
        response_class = TimedResponse

    class Handler(request.AbstractHTTPHandler):
        http_request = https_request = request.AbstractHTTPHandler.do_request_

        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Connection, req)

        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(TlsConnection, req, context=tls)

    # Its own context: the app may have replaced the library's by one that trusts anybody.
    tls = ssl.create_default_context()
    opener = request.OpenerDirector()
    for handler in (request.ProxyHandler(), Handler(), request.UnknownHandler()):
        opener.add_handler(handler)
    return opener


class _TimedReader(io.RawIOBase):
    """A socket's bytes, with one deadline for all of them."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, until: float) -> None:
        super().__init__()
        self._sock, self._raw, self._until = sock, raw, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._sock.settimeout(seconds)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _explain(
    status: int, headers: Mapping[str, str], document: dict[str, object]
) -> tuple[str, str]:
    if 200 <= status < 300:
        return "answer", f"status {status} with another answer than a collector's"
    if 300 <= status < 400:
        host = _host(headers.get("Location", ""))
        return "redirect", f"redirected to {host}" if host else "redirected"
    if status in _KEY_STATUSES:
        return "status", "the ingest key is missing, unknown or expired"
    if status in _ADDRESS_STATUSES:
        return "status", "the address isn't a collector's"
    if status == _PROXY_LOGIN:
        return "status", "the proxy wants a login, or another one"
    problem = next((e for e in _errors(document) if isinstance(e.get("detail"), str)), document)
    detail = problem.get("detail")
    answered = f"answered with status {status}"
    return "status", f"{answered}: {_printable(detail)}" if isinstance(detail, str) else answered


def _host(location: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        host = urlsplit(location).hostname
    except ValueError:
        return None
    return host and _printable(host)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST_DETAIL])


def _errors(document: dict[str, object]) -> list[dict[str, object]]:
    errors = document.get("errors")
    return [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []


def _retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header: a number or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None
