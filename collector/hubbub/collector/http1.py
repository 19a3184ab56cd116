"""HTTP/1.1 as far as public listeners speak it: bytes into a request, an answer into bytes.

No input or output happens here. Invariant: what could be read in two ways is refused (RFC 9112,
section 11.2), so that a proxy and a collector never disagree on where a request ends: bare line
feeds, folded fields, two lengths, a length beside chunks, any other transfer coding.
"""

from __future__ import annotations

import email.utils
import http
import re
import time
from typing import NamedTuple

MOST_HEAD_BYTES = 8_192
"""Of a request line and its fields: ours have some 300; nginx takes as many of a line by default.

4,096 connections that send a head without an end hold half of the default budget of bytes.
"""

HEAD_END = b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_AUTHORITY = rb"(?i:https?)://[!$&'()*+,;=:@\[\]%._~0-9A-Za-z-]+"
_LINE = re.compile(
    rb"(%b) (%b)?((?:[/?][\x21\x22\x24-\x7e]*)?) HTTP/1\.([01])" % (_TOKEN, _AUTHORITY)
)
_HOST = re.compile(r"[!$&'()*+,;=:\[\]%._~0-9A-Za-z-]*", re.ASCII)
_MOST_FIELDS = 100
"""As Apache's default. Each costs a microsecond, and memory beside what it says."""

_FIELD = re.compile(rb"(%b):([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_MOST_LINES = 512
"""Of chunks that are read at a time, in less than a millisecond: they may say a byte each."""

_MOST_CHUNK_LINE = 256  # bytes: 16 hexadecimal digits, and room for extensions that nobody uses
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_GIVEN_ONCE = frozenset(
    {
        "authorization", "content-encoding", "content-length", "content-type", "host",
        "transfer-encoding",
    }
)  # fmt: skip


class HttpError(Exception):
    """Bytes that aren't HTTP/1.1, or not as it is spoken here; the text says what was expected."""


class Head(NamedTuple):
    """A request without its body."""

    method: str  # the path without a query, not decoded
    path: str
    fields: dict[str, str]  # by name in lower case; bytes that aren't ASCII as Latin-1
    length: int | None  # bytes of the body; None: it comes in chunks
    keeps_alive: bool  # whether another request may follow

    @property
    def has_body(self) -> bool:
        """Whether bytes of a body follow the head."""
        return self.length != 0

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return self.fields.get("expect", "").lower() == "100-continue"


def parse_head(data: bytes) -> Head:
    """Return the head of a request.

    `data`: up to the empty line, without it. Raises `HttpError`.
    """
    first, *lines = data.split(b"\r\n", _MOST_FIELDS + 1)
    line = _LINE.fullmatch(first)
    if line is None or not (line[2] or line[3].startswith(b"/")):
        raise HttpError("request line: must be METHOD PATH HTTP/1.1")
    if len(lines) > _MOST_FIELDS:
        raise HttpError(f"fields: must be at most {_MOST_FIELDS}")
    fields: dict[str, str] = {}
    for each in lines:
        field = _FIELD.fullmatch(each)
        if field is None:
            raise HttpError("field: must be NAME: VALUE, on one line")
        name, value = field[1].decode("ascii").lower(), field[2].strip(b" \t").decode("latin-1")
        if name in fields:
            if name in _GIVEN_ONCE:
                raise HttpError(f"{name}: must be given once")
            value = f"{fields[name]}, {value}"
        fields[name] = value
    is_1_1 = line[4] == b"1"
    if is_1_1 and "host" not in fields:
        raise HttpError("host: is missing")
    if not _HOST.fullmatch(fields.get("host", "")):
        raise HttpError("host: must be a name or address, and perhaps a port")
    if not is_1_1:
        fields.pop("expect", None)  # to be ignored (RFC 9110, section 10.1.1)
    options = fields.get("connection", "").lower()
    closes = "close" in options and "close" in re.split(r"[ \t]*,[ \t]*", options)
    return Head(
        line[1].decode("ascii"),
        _path(line[3].decode("ascii")),
        fields,
        _body_length(fields, is_1_1=is_1_1),
        is_1_1 and not closes,
    )


def _path(target: str) -> str:
    return target.partition("?")[0] or "/"


def _body_length(fields: dict[str, str], *, is_1_1: bool) -> int | None:
    length, coding = fields.get("content-length"), fields.get("transfer-encoding")
    if coding is not None:
        if length is not None or coding.lower() != "chunked" or not is_1_1:
            raise HttpError("transfer-encoding: must be chunked, without content-length")
        return None
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise HttpError("content-length: must be a number of bytes")
    return int(length)


class Chunks:
    """Takes a chunked body apart as it arrives.

    `is_over`: whether the last chunk and the trailer have been read. `has_stopped`: whether there
    is more in what it was given, but others are to have their turn before.
    """

    def __init__(self) -> None:
        self.is_over = self.has_stopped = False
        self._left = 0  # bytes of the chunk that is being read
        self._is_at_end = False  # of a chunk, before its line end
        self._trailer: int | None = None  # bytes of it so far

    def take(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return what data has of the body, and what comes after it or can't be used yet.

        The rest must be given again, with more behind it.

        Raises `HttpError`.
        """
        pieces: list[bytes] = []
        at = lines = 0
        self.has_stopped = False
        while not self.is_over:
            if self._left:
                piece = data[at : at + self._left]
                if not piece:
                    break
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._is_at_end = not self._left
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > _MOST_CHUNK_LINE or b"\n" in data[at:]:
                    raise HttpError("chunk: must begin with its size, on a line")
                break
            if lines == _MOST_LINES:
                self.has_stopped = True
                break
            self._read_line(data[at:end])
            at = end + 2
            lines += 1
        return pieces, data[at:]

    def _read_line(self, line: bytes) -> None:
        if self._is_at_end:
            if line:
                raise HttpError("chunk: must end after as many bytes as it says")
            self._is_at_end = False
        elif self._trailer is not None:
            self._trailer += len(line)
            if self._trailer > MOST_HEAD_BYTES or (line and not _FIELD.fullmatch(line)):
                raise HttpError("trailer: must be fields")
            self.is_over = not line
        else:
            size = _CHUNK.fullmatch(line)
            if size is None or len(line) > _MOST_CHUNK_LINE:
                raise HttpError("chunk: must begin with its size, on a line")
            self._left = int(size[1], 16)
            self._trailer = None if self._left else 0


class HttpResponse(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    fields: tuple[tuple[str, str], ...] = ()  # more of its head

    def to_bytes(self, *, with_body: bool, closes: bool) -> bytes:
        """Return what is sent.

        `with_body`: no to answer HEAD. `closes`: whether the connection is closed after it.
        """
        head = [
            _status_line(self.status),
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\nDate: ",
            _date(),
            "\r\n",
            *(f"{name}: {value}\r\n" for name, value in self.fields),
            "Connection: close\r\n\r\n" if closes else "\r\n",
        ]
        return "".join(head).encode("latin-1") + (self.body if with_body else b"")


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_dated: tuple[int, str] = (0, "")


def _date() -> str:
    global _dated  # noqa: PLW0603 (made once a second)
    now = int(time.time())
    if _dated[0] != now:
        _dated = now, email.utils.formatdate(now, usegmt=True)
    return _dated[1]


_status_lines: dict[int, str] = {}


def _status_line(status: int) -> str:
    line = _status_lines.get(status)
    if line is None:
        line = _status_lines[status] = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
    return line
