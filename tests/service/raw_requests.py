"""Requests as raw bytes that HTTP servers disagree on, and what a collector does with each.

Whoever disagrees with a proxy on where a request ends lets its sender hide another one in it. So a
collector takes a request as one, or refuses it and closes the connection; it never takes it as
more, or waits for bytes that the proxy believes it has sent.
"""

import re
import socket
from enum import Enum
from typing import NamedTuple

from hubbub.client import batch_to_json
from service.posting import make_batch


class Outcome(Enum):
    """What becomes of a request that another one follows on the same connection."""

    TAKEN = "answered once; then the other one is"
    BOTH = "two requests, answered one after the other"
    REFUSED = "answered 4xx or 5xx, or not at all, and the connection is closed"
    EITHER = "taken or refused: both are safe"


class RawRequest(NamedTuple):
    """Bytes to send, and what a collector that gets them by itself makes of them."""

    name: str
    data: bytes
    outcome: Outcome


_BODY = batch_to_json(make_batch())
_HIDDEN = b"GET /openapi.json HTTP/1.1\r\nHost: hidden\r\n\r\n"
_CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_BODY), _BODY)
_LENGTH = b"Content-Length: %d" % len(_BODY)
_TE = b"Transfer-Encoding: chunked"
MARKER = b"GET /livez HTTP/1.1\r\nHost: t\r\n\r\n"
"""Follows each request; its answer is 200."""


def _post(*fields: bytes, body: bytes = _BODY, host: bytes = b"Host: localhost") -> bytes:
    lines = (b"POST /v1/reports HTTP/1.1", host, b"Content-Type: application/json", *fields)
    return b"\r\n".join(filter(None, lines)) + b"\r\n\r\n" + body


def _chunks(body: bytes) -> bytes:
    return _post(_TE, body=body)


def _get(line: bytes, *fields: bytes, host: bytes = b"Host: localhost") -> bytes:
    return b"\r\n".join(filter(None, (line, host, *fields))) + b"\r\n\r\n"


_GET = b"GET /livez HTTP/1.1"
_LENGTHS = (
    *(b"+5", b"-1", b"0x10", b"", b"1e1", b"1_0", b"5 5", b"5;", b"9" * 20, b"5, 5", b"\x0b5"),
)
_CODINGS = (
    *(b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"identity", b"gzip", b""),
    *(b"xchunked", b"chunked;a=b", b"\x0bchunked", b'"chunked"', b"chunked\x00"),
)
_HOSTS = (b"a, b", b"a b", b"a/b", b"a\x00b", b"a\\b")
_SIZES = (*(b"0x5", b"-5", b"+5", b"", b"5_0", b" 5", b"g", b"F" * 16 + b"1", b"1" * 300),)
_VERSIONS = (b"HTTP/2.0", b"HTTP/1.10", b"HTTP/1.x", b"http/1.1", b"HTTP/1.1 ", b"HTTPS/1.1", b"")

TAKEN = (
    ("length", _post(_LENGTH)),
    ("chunks", _chunks(_CHUNKED)),
    ("chunk extension", _chunks(_CHUNKED.replace(b"\r\n", b";a=b\r\n", 1))),
    ("trailer", _chunks(_CHUNKED[:-2] + b"X-Trailer: a\r\n\r\n")),
    ("absolute form", _get(b"GET http://localhost/livez HTTP/1.1")),
    ("absolute form of another host", _get(b"GET http://other/livez HTTP/1.1")),
    ("expectation", _post(_LENGTH, b"Expect: 100-continue")),
    ("upgrade to h2c", _get(_GET, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                            b"HTTP2-Settings: AAMAAABkAAQAAP__")),
    ("upgrade to websocket", _get(_GET, b"Connection: Upgrade", b"Upgrade: websocket",
                                  b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: AAAA")),
)  # fmt: skip
EITHER = (
    ("trailer that says a length", _chunks(_CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n")),
    ("a method in lower case", _get(b"get /livez HTTP/1.1")),
    ("two blanks in the request line", _get(b"GET  /livez HTTP/1.1")),
    ("tunnel", _get(b"CONNECT localhost:80 HTTP/1.1")),
    ("empty line first", b"\r\n" + _get(_GET)),
    ("GET with a body", _get(_GET, b"Content-Length: %d" % len(_HIDDEN)) + _HIDDEN),
    ("GET with chunks", _get(_GET, _TE) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(_HIDDEN), _HIDDEN)),
    ("another expectation", _post(_LENGTH, b"Expect: 200-ok")),
    ("OPTIONS of the server", _get(b"OPTIONS * HTTP/1.1")),
    ("length that begins with zeros", _post(b"Content-Length: 000%d" % len(_BODY))),
    ("the same length twice", _post(_LENGTH, _LENGTH)),
    ("coding in other case", _post(b"Transfer-Encoding: CHUNKED", body=_CHUNKED)),
    ("chunk size and a blank", _chunks(_CHUNKED.replace(b"\r\n", b" \r\n", 1))),
    ("byte that isn't ASCII in a field", _get(_GET, b"X-A: \xe9")),
    ("byte that isn't ASCII in the path", _get(b"GET /\xe9 HTTP/1.1")),
    ("host with a user", _get(_GET, host=b"Host: user@localhost")),
    ("fragment", _get(b"GET /livez#a HTTP/1.1")),
    ("connection names a field", _get(_GET, b"Connection: X-A, keep-alive", b"X-A: 1")),
    ("backslash in the path", _get(b"GET /..\\livez HTTP/1.1")),
    ("length of 1.0", b"POST /v1/reports HTTP/1.0\r\n" + _LENGTH + b"\r\n\r\n" + _BODY),
)  # fmt: skip
_FIELDS = (
    *((f"length {each!r}", b"Content-Length: " + each) for each in _LENGTHS),
    *((f"coding {each!r}", b"Transfer-Encoding: " + each) for each in _CODINGS),
)
REFUSED = (
    ("length, then chunks", _post(_LENGTH, _TE, body=_CHUNKED)),
    ("chunks, then length", _post(_TE, b"Content-Length: 4", body=_CHUNKED)),
    ("chunks that end before the length", _post(b"Content-Length: %d" % (5 + len(_HIDDEN)), _TE,
                                                body=b"0\r\n\r\n" + _HIDDEN)),
    ("two lengths", _post(_LENGTH, b"Content-Length: 0")),
    *((name, _post(field, body=_CHUNKED)) for name, field in _FIELDS),
    ("two codings", _post(_TE, b"Transfer-Encoding: identity", body=_CHUNKED)),
    ("blank before a colon", _post(b"Transfer-Encoding : chunked", body=_CHUNKED)),
    ("chunks of 1.0", b"POST /v1/reports HTTP/1.0\r\n" + _TE + b"\r\n\r\n" + _CHUNKED),
    ("no host", _get(_GET, host=b"")),
    ("two hosts", _get(_GET, b"Host: other")),
    *((f"host {each!r}", _get(_GET, host=b"Host: " + each)) for each in _HOSTS),
    ("bare LF in the head", _post(_LENGTH).replace(b"\r\n", b"\n", 2)),
    ("bare LF everywhere", _get(_GET).replace(b"\r\n", b"\n")),
    ("bare LF hides a field", _get(_GET, b"X-A: 1\nContent-Length: %d" % len(_HIDDEN)) + _HIDDEN),
    ("bare CR in a value", _get(_GET, b"X-A: 1\rContent-Length: 5")),
    ("NUL in a value", _get(_GET, b"X-A: 1\x002")),
    ("folded field", _get(_GET, b"X-A: 1\r\n 2")),
    ("folded coding", _post(b"Transfer-Encoding:\r\n chunked", body=_CHUNKED)),
    ("blank before the first field", b"GET /livez HTTP/1.1\r\n Host: localhost\r\n\r\n"),
    ("field without a colon", _get(_GET, b"X-A")),
    ("field without a name", _get(_GET, b": 1")),
    ("blank in a name", _get(_GET, b"X A: 1")),
    ("byte that isn't ASCII in a name", _get(_GET, b"X-\xe9: 1")),
    *((f"chunk size {each!r}", _chunks(each + b"\r\n55555\r\n0\r\n\r\n")) for each in _SIZES),
    ("bare LF after a chunk size", _chunks(b"5\n12345\r\n0\r\n\r\n")),
    ("bare LF in a chunk extension", _chunks(b"5;a\n12345\r\n0\r\n\r\n")),
    ("chunk longer than its size", _chunks(b"5\r\n1234567\r\n0\r\n\r\n")),
    ("chunk that ends with LF", _chunks(b"5\r\n12345\n0\r\n\r\n")),
    ("trailer without a colon", _chunks(b"5\r\n12345\r\n0\r\nX-A\r\n\r\n")),
    *((f"version {each!r}", _get(b"GET /livez " + each)) for each in _VERSIONS),
    ("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("tab in the request line", _get(b"GET\t/livez HTTP/1.1")),
    ("blank in the path", _get(b"GET /live z HTTP/1.1")),
    ("NUL in the path", _get(b"GET /livez\x00 HTTP/1.1")),
    ("method with a delimiter", _get(b"G@T /livez HTTP/1.1")),
    ("endless head", _get(_GET, b"X-A: " + b"a" * 40_000)),
)  # fmt: skip

REQUESTS = tuple(
    RawRequest(name, data, outcome)
    for outcome, some in (
        (Outcome.TAKEN, TAKEN),
        (Outcome.EITHER, EITHER),
        (Outcome.REFUSED, REFUSED),
        (Outcome.BOTH, [("two requests at once", _post(_LENGTH) + MARKER)]),
    )
    for name, data in some
)

_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d) [A-Z]")


def read_statuses(connection: socket.socket, seconds: float) -> tuple[list[int], bool]:
    """Return the statuses of answers until it was quiet so long, and whether it was closed.

    Answers 1xx aren't final, and left out.
    """
    connection.settimeout(seconds)
    data = b""
    try:
        while part := connection.recv(65_536):
            data += part
    except TimeoutError:
        return _statuses(data), False
    except OSError:  # reset, because not all was read that had been sent
        pass
    return _statuses(data), True


def _statuses(data: bytes) -> list[int]:
    return [int(status) for status in _STATUS.findall(data)]


def outcome_of(address: tuple[str, int], data: bytes, seconds: float = 1.0) -> Outcome | str:
    """Send bytes to a collector and a request after them; return what became of them.

    A string describes an outcome that can be used for an attack.
    """
    with socket.create_connection(address, 10) as connection:
        try:
            connection.sendall(data + MARKER)
        except OSError:
            return Outcome.REFUSED
        statuses, closed = read_statuses(connection, seconds)
    if closed and len(statuses) <= 1 and all(status >= 400 for status in statuses):
        return Outcome.REFUSED
    if closed and len(statuses) == 1:
        return Outcome.TAKEN  # by a server that closes when it should, so that nothing follows
    if len(statuses) == 2 and statuses[1] == 200:
        return Outcome.TAKEN
    if len(statuses) == 3 and statuses[1:] == [200, 200]:
        return Outcome.BOTH
    return f"answers {statuses}, {'closed' if closed else 'left open'}"
