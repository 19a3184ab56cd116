"""A request's body: read within bounds of size and time, and decompressed within them too.

The HTTP library could decompress too, but it goes on inflating the rest of a body that was refused,
so that a zip bomb of a megabyte costs seconds. Invariant: no more is ever held, or inflated, than
may be accepted.
"""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

from hubbub.collector.access.admission import Slot
from hubbub.collector.errors import RefusalError

ENCODINGS = ("gzip", "deflate")
_GZIP = 16 + zlib.MAX_WBITS
_DEFLATED_ZLIB = 8  # the compression method, in the low bits of a zlib stream's first byte


async def read_body(request: web.BaseRequest, slot: Slot, most: int, seconds: float) -> bytes:
    """Return a request's body, without its Content-Encoding.

    Parameters
    ----------
    request : aiohttp.web.BaseRequest
    slot : Slot
        Counts the bytes that are held.
    most : int
        Bytes that are allowed, before and after decompression.
    seconds : float
        Time that the body may take to arrive.

    Raises
    ------
    RefusalError
        400, 408, 413 or 415 for what is wrong with the body; 429 if too many bytes are under way.
    """
    # A small body comes with the head: it is taken without waiting.
    body = _take_arrived(request, slot, most) if request.content.is_eof() else None
    if body is None:
        if (request.content_length or 0) > most:
            raise _too_large(most)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer proper hasn't begun
        try:
            async with asyncio.timeout(seconds):
                body = await _receive(request, slot, most)
        except TimeoutError:
            detail = f"body: must arrive within {seconds:g} seconds"
            raise RefusalError(408, "slow", detail) from None
    if encoding := request.headers.get("Content-Encoding"):
        body = decompress(body, encoding, most)
        slot.hold(len(body))
    return body


def decompress(body: bytes, encoding: str, most: int) -> bytes:
    """Undo a Content-Encoding.

    Parameters
    ----------
    body : bytes
    encoding : str
        The header's value.
    most : int
        Most bytes to return.

    Raises
    ------
    RefusalError
        415 for an unknown encoding, 413 if the result is too large, 400 if the body isn't what the
        header says.
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return body
    if encoding not in ENCODINGS:
        detail = f"Content-Encoding: must be absent, or one of: {', '.join(ENCODINGS)}"
        raise RefusalError(415, "encoding", detail)
    window = _GZIP
    if encoding == "deflate":
        # That means zlib's format, but some senders send the bare one.
        is_zlib = bool(body) and body[0] & 0x0F == _DEFLATED_ZLIB
        window = zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
    stream = zlib.decompressobj(window)
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error:
        raise _not_encoded(encoding) from None
    if len(plain) > most:
        raise _too_large(most)
    if not stream.eof or stream.unused_data:
        raise _not_encoded(encoding)
    return plain


def _take_arrived(request: web.BaseRequest, slot: Slot, most: int) -> bytes:
    content = request.content
    try:
        body = content.read_nowait()
    except web.RequestPayloadError:
        raise _incomplete() from None
    _hold(len(body), slot, most)
    while not content.at_eof():  # taking some may have let more in
        more = content.read_nowait()
        _hold(len(body) + len(more), slot, most)
        body += more
    return body


async def _receive(request: web.BaseRequest, slot: Slot, most: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := await request.content.readany():
            size += len(piece)
            _hold(size, slot, most)
            pieces.append(piece)
    except web.RequestPayloadError:
        raise _incomplete() from None
    return b"".join(pieces)


def _hold(size: int, slot: Slot, most: int) -> None:
    """Refuse a body that is too large by itself, or beside all others."""
    if size > most:
        raise _too_large(most)
    slot.hold(size)


def _too_large(most: int) -> RefusalError:
    return RefusalError(413, "too_large", f"body: must be at most {most} bytes")


def _incomplete() -> RefusalError:
    return RefusalError(400, "incomplete", "body: incomplete")


def _not_encoded(encoding: str) -> RefusalError:
    return RefusalError(400, "incomplete", f"body: incomplete, or not {encoding}")
