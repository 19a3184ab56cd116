"""TLS on a listener: its certificate, and the encryption of one connection without a socket.

asyncio's own TLS takes some 300 kB for each connection. This hands OpenSSL a few kilobytes
at a time, so that a connection holds no more than one record that hasn't come whole.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from hubbub.collector.serving.listening import ListenError

_SLICE = 4096
"""Bytes that OpenSSL is given at once: what it keeps of memory for them it keeps for good."""

_RECORD_BYTES = 2**14  # the most that one record holds
_MOST_SAID = 2**12
"""Bytes of TLS itself, after the handshake: some 170 changes of keys, each for 2**24 records or so.
They cost us more than who asks for them."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context (TLS 1.2 or newer).

    Raises `ListenError` if the files can't be read, or don't belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # which would cost us more than who asks for it
    context.num_tickets = 0  # marks by which whoever sees the network could know a client again
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use a certificate for new connections from now on (raises as `tls_context`)."""
    for path in (certificate, key):
        if not path.is_file():
            raise ListenError(f"{path}: no such file; expected a certificate or key as PEM")
    try:
        # First into another: a pair that doesn't match would take the key from the one in use.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, key, password=_no_password
        )
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ListenError(f"tls_certificate {certificate}, tls_key {key}: {reason}") from error


def _no_password() -> str:
    raise ValueError("the key must not be encrypted")


class TlsStream:
    """The server's side of TLS on one connection: bytes in, bytes out.

    `is_open`: whether the handshake is over, so that something can be said. `is_over`: whether the
    client has said that nothing more comes.
    """

    __slots__ = ("_in", "_out", "_said", "_stream", "is_open", "is_over")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._stream = context.wrap_bio(self._in, self._out, server_side=True)
        self.is_open = False
        self._said = 0  # bytes of TLS itself since then
        self.is_over = False

    @property
    def held(self) -> int:
        """Bytes that have come and aren't a whole record yet."""
        return self._in.pending

    def receive(self, data: memoryview) -> bytes:
        """Return what data and what came before it says, as far as it can be read.

        Raises `ssl.SSLError` if it isn't TLS, or not as it was agreed on, or asks for answers
        without an end.
        """
        was_open = self.is_open
        pieces: list[bytes] = []
        for start in range(0, len(data), _SLICE):
            self._in.write(data[start : start + _SLICE])
            try:
                if not self.is_open:
                    self._stream.do_handshake()
                    self.is_open = True
                while piece := self._stream.read(_RECORD_BYTES):
                    pieces.append(piece)
                self.is_over = True
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLZeroReturnError:
                self.is_over = True
            break
        if was_open:
            self._said += self._out.pending
            if self._said > _MOST_SAID:
                raise ssl.SSLError("too many messages of TLS itself")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def encrypt(self, data: bytes) -> bytes:
        """Return what says data to the client (once it has sent a request)."""
        self._stream.write(data)
        return self._out.read()

    def to_send(self) -> bytes:
        """Return what TLS itself has to say to the client."""
        return self._out.read()

    def end(self) -> bytes:
        """Return the word that nothing more comes."""
        with contextlib.suppress(ssl.SSLError, ValueError):  # not waiting for the client's word
            self._stream.unwrap()
        return self._out.read()
