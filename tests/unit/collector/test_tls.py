"""TLS by hand: what a client can ask for that costs more than it."""

import _ssl
import ctypes
import ssl

import trustme

from hubbub.collector.serving.tls import TlsStream, tls_context

_openssl = ctypes.CDLL(_ssl.__file__)
"""The library that Python's ssl uses, of which ssl has no way to change keys."""

for _name in ("TLS_client_method", "SSL_CTX_new", "SSL_new", "BIO_new", "BIO_s_mem"):
    getattr(_openssl, _name).restype = ctypes.c_void_p


class _Client:
    """A client of TLS 1.3 with its bytes in memory."""

    def __init__(self) -> None:
        method = ctypes.c_void_p(_openssl.TLS_client_method())
        self._context = ctypes.c_void_p(_openssl.SSL_CTX_new(method))
        self._ssl = ctypes.c_void_p(_openssl.SSL_new(self._context))
        memory = ctypes.c_void_p(_openssl.BIO_s_mem())
        self._in, self._out = (ctypes.c_void_p(_openssl.BIO_new(memory)) for _ in range(2))
        _openssl.SSL_set_bio(self._ssl, self._in, self._out)
        _openssl.SSL_set_connect_state(self._ssl)

    def free(self) -> None:
        _openssl.SSL_free(self._ssl)
        _openssl.SSL_CTX_free(self._context)

    def shake_hands(self, received: bytes) -> bytes:
        """Return what to send after what was received."""
        _openssl.BIO_write(self._in, received, len(received))
        _openssl.SSL_do_handshake(self._ssl)
        return self._sent()

    def change_keys(self) -> bytes:
        """Return what asks the server to change its keys, too."""
        assert _openssl.SSL_key_update(self._ssl, 1) == 1
        _openssl.SSL_do_handshake(self._ssl)
        return self._sent()

    def _sent(self) -> bytes:
        room = ctypes.create_string_buffer(2**16)
        length = _openssl.BIO_read(self._out, room, 2**16)
        return room.raw[: max(0, length)]


def test_who_changes_keys_without_an_end_is_cut(tmp_path):
    """A change costs a client 22 bytes, and a server two new keys and an answer."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    server = TlsStream(tls_context(tmp_path / "certificate.pem", tmp_path / "key.pem"))
    client = _Client()
    said = b""
    while asked := client.shake_hands(said):
        server.receive(memoryview(asked))
        said = server.to_send()
    changes = 0
    while not (fault := _fault_of(server, client.change_keys())):
        changes += 1
        assert changes < 300
    client.free()
    assert changes > 100
    assert "too many messages of TLS itself" in fault


def _fault_of(server: TlsStream, data: bytes) -> str:
    try:
        assert server.receive(memoryview(data)) == b""
    except ssl.SSLError as error:
        return str(error)
    server.to_send()
    return ""
