"""A body as it was before its Content-Encoding, as long as that isn't too large.

The HTTP library could do this too, but it goes on inflating what is left of a body that was
refused, so that a bomb of a megabyte costs seconds. What a maintainer must not break: no more is
ever inflated than may be accepted.
"""

from __future__ import annotations

import zlib

from hubbub.collector.errors import RefusalError

_ENCODINGS = ("gzip", "deflate")
_GZIP = 16 + zlib.MAX_WBITS
_DEFLATED_ZLIB = 8  # the compression method, in the low bits of a zlib stream's first byte


def inflated(body: bytes, encoding: str, most: int) -> bytes:
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
    if encoding not in _ENCODINGS:
        detail = f"Content-Encoding: must be absent, or one of: {', '.join(_ENCODINGS)}"
        raise RefusalError(415, "encoding", detail)
    stream = zlib.decompressobj(_GZIP if encoding == "gzip" else _window(body))
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error:
        raise _not_encoded(encoding) from None
    if len(plain) > most:
        raise RefusalError(413, "too_large", f"body: must be at most {most} bytes")
    if not stream.eof or stream.unused_data:
        raise _not_encoded(encoding)
    return plain


def _window(body: bytes) -> int:
    """Tell zlib's format, which "deflate" means, from the bare one that some senders send."""
    is_zlib = bool(body) and body[0] & 0x0F == _DEFLATED_ZLIB
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS


def _not_encoded(encoding: str) -> RefusalError:
    return RefusalError(400, "incomplete", f"body: incomplete, or not {encoding}")
