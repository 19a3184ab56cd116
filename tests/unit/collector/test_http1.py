"""Heads are read as aiohttp's parser reads them, or refused."""

import asyncio
import re

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.collector.http1 import Head, HttpError, parse_head
from parameters import examples

_lines = st.one_of(
    st.sampled_from(
        [
            b"Host: collector", b"host:a", b"HOST : a", b"Content-Length: 3", b"Content-Length: 0",
            b"Content-Length: 3, 3", b"content-length:\t03 ", b"Content-Length: +3",
            b"Content-Length: 3_0", b"Transfer-Encoding: chunked", b"Transfer-Encoding:Chunked",
            b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: identity",
            b"Connection: close", b"Connection: keep-alive", b"Connection: x, Close", b" folded",
            b"Expect: 100-continue", b"Authorization: Bearer x", b"X: \xc3\xa4", b"X:", b": x",
            b"X\x00: x", b"X: a\x00b", b"X: a\nb", b"X: a\rb", b"X Y: z", b"X",
        ]
    ),
    st.binary(max_size=12),
)  # fmt: skip
_first = st.one_of(
    st.sampled_from(
        [
            b"GET / HTTP/1.1", b"POST /v1/reports HTTP/1.1", b"GET / HTTP/1.0", b"GET / HTTP/1.2",
            b"GET /a?b#c HTTP/1.1", b"GET http://a/b?c HTTP/1.1", b"GET * HTTP/1.1",
            b"GET /\xc3\xa4 HTTP/1.1", b"GET  / HTTP/1.1", b"GET\t/ HTTP/1.1", b"get / HTTP/1.1",
            b"GET http://\xff/livez HTTP/1.1", b"GET http://\n/livez HTTP/1.1", b"GET / HTTP/1.1\n",
            b"GET http:// HTTP/1.1 HTTP/1.1", b"GET http://h?/livez HTTP/1.1", b"GET ? HTTP/1.1",
            b"GET HTTPS://a:1 HTTP/1.1", b"GET http://h#/livez HTTP/1.1", b"GET http:/a HTTP/1.1",
            b"GET / HTTP/1.1 ", b" GET / HTTP/1.1", b"GET / http/1.1", b"GET /",
        ]
    ),
    st.binary(max_size=12),
)  # fmt: skip


@examples(2_000)
@given(first=_first, lines=st.lists(_lines, max_size=5))
@example(first=b"GET / HTTP/1.1", lines=[b"Host: a", b"X:" + b" " * 7_000 + b"\x01"])
def test_what_is_taken_means_the_same_to_another_parser(first, lines):
    data = b"\r\n".join([first, *lines])
    try:
        ours = parse_head(data)
    except HttpError:
        return
    try:
        theirs, body = _read_by_aiohttp(data + b"\r\n\r\n")
    except BadHttpMethod:  # one that it doesn't know; nor do we
        return
    assert (ours.method, ours.path) == (theirs.method, _path_of(theirs))
    assert ours.keeps_alive == (not theirs.should_close and theirs.version == (1, 1))
    assert ours.has_body == (body is not None)
    for name, value in ours.fields.items():
        # Older versions of aiohttp keep white space at the end.
        texts = [text.strip(" \t") for text in theirs.headers.getall(name)]
        given = [text.encode("utf-8", "surrogateescape") for text in texts]
        assert b", ".join(given) == value.encode("latin-1")


@given(
    st.lists(
        st.tuples(st.sampled_from(["X-A", "X-B"]), st.text("abc ,;=", min_size=1, max_size=9)),
        unique_by=lambda field: field[0],
    ),
    st.sampled_from([None, 0, 3, 10**9]),
)
def test_what_is_well_formed_is_taken(fields, length):
    lines = ["POST /v1/reports?x HTTP/1.1", "Host: a", *(f"{n}: {v}" for n, v in fields)]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    head = parse_head("\r\n".join(lines).encode())
    assert head.fields == {"host": "a"} | {
        name.lower(): value.strip() for name, value in fields
    } | ({} if length is None else {"content-length": str(length)})
    assert head == Head("POST", "/v1/reports", head.fields, length or 0, keeps_alive=True)


def _path_of(message: RawRequestMessage) -> str:
    path = message.path.encode("utf-8", "surrogateescape").decode("latin-1")
    if not path.startswith("/"):
        rest = path.partition("://")[2]
        end = re.search(r"[/?#]", rest)  # of the host
        path = rest[end.start() :] if end else "/"
    return path.partition("?")[0] or "/"


def _read_by_aiohttp(data: bytes) -> tuple[RawRequestMessage, StreamReader | None]:
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
        try:
            messages, _upgraded, _tail = parser.feed_data(data)
        except BadHttpMethod:
            raise
        except HttpProcessingError as error:
            raise AssertionError(data) from error
        message, body = messages[0]
        return message, None if body is EMPTY_PAYLOAD else body
    finally:
        loop.close()
