"""Content-Encoding undone within bounds: no more is ever inflated than may be accepted."""

from __future__ import annotations

import zlib

from hubbub.collector.problems import RefusalError

ENCODINGS = ("gzip", "deflate")
_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to ask for gzip's header (its manual, inflateInit2)
_MOST_MEMBERS = 64
"""Of a body: what follows a member is copied, so a megabyte of empty ones would cost minutes."""

_DEFLATED_ZLIB = 8  # the compression method, in the low bits of a zlib stream's first byte


def check_encoding(given: str) -> str:
    """Return the encoding that a Content-Encoding names, or "" for none.

    Raises `RefusalError`: 415 for one that isn't known.
    """
    encoding = given.strip().lower()
    if encoding in {"", "identity"}:
        return ""
    if encoding not in ENCODINGS:
        detail = f"Content-Encoding: must be absent, or one of: {', '.join(ENCODINGS)}"
        raise RefusalError(415, "encoding", detail)
    return encoding


def decompress(body: bytes, encoding: str, most: int) -> bytes:
    """Undo a Content-Encoding.

    `encoding`: one of `ENCODINGS`. `most`: most bytes to return. Raises `RefusalError`: 413 if the
    result is too large, 400 if the body isn't what the encoding says.
    """
    window = _GZIP
    if encoding == "deflate":
        # That means zlib's format, but some senders send the bare one.
        is_zlib = bool(body) and body[0] & 0x0F == _DEFLATED_ZLIB
        window = zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
    plain, rest, members = b"", body, 0
    while rest or not members:  # several members say what all of them say (RFC 1952, section 2.2)
        members += 1
        if members > (_MOST_MEMBERS if window == _GZIP else 1):
            raise _not_encoded(encoding)
        stream = zlib.decompressobj(window)
        try:
            plain += stream.decompress(rest, most + 1 - len(plain))
        except zlib.error:
            raise _not_encoded(encoding) from None
        if len(plain) > most:
            raise RefusalError(413, "too_large", f"body: must be at most {most} bytes")
        if not stream.eof:
            raise _not_encoded(encoding)
        rest = stream.unused_data
    return plain


def _not_encoded(encoding: str) -> RefusalError:
    return RefusalError(400, "incomplete", f"body: incomplete, or not {encoding}")
