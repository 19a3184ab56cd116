"""A listening address: sockets, TLS, and ending in good order.

Several processes may listen on one port (SO_REUSEPORT): the kernel shares new connections out.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from hubbub.collector.serving.connections import Connections
from hubbub.protocol.errors import HubbubError

_BACKLOG = 1024
_CLOSE_SECONDS = 1.0


class ListenError(HubbubError):
    """An address that can't be listened on, or a certificate that can't be used."""


class Listener:
    """An address on which connections are accepted; use `listening`."""

    def __init__(self, server: asyncio.Server, connections: Connections, scheme: str) -> None:
        self._server = server
        self._connections = connections
        self.address = address_of(scheme, server.sockets[0].getsockname())

    def stop_accepting(self) -> None:
        """Accept no new connections; those that are open stay."""
        self._server.close()

    async def close(self) -> None:
        """Close everything; requests under way are given up."""
        self._server.close()
        await asyncio.sleep(0)  # what has been accepted gets to its connection
        self._connections.pre_shutdown()
        await self._connections.shutdown(_CLOSE_SECONDS)


@asynccontextmanager
async def listening(
    connections: Connections,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    tls_seconds: float = 10.0,
    shared: bool = False,
) -> AsyncIterator[Listener]:
    """Listen as long as the context is open.

    Parameters
    ----------
    connections : Connections
    host : str
    port : int
        0 lets the system choose.
    tls : ssl.SSLContext, optional
    tls_seconds : float
        How long a TLS handshake may take.
    shared : bool
        Whether other processes listen on the same port.

    Raises
    ------
    ListenError
        If the address can't be bound.
    """
    try:
        server = await asyncio.get_running_loop().create_server(
            connections,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=tls_seconds if tls else None,
            backlog=_BACKLOG,
            reuse_port=shared or None,
        )
    except OSError as error:
        raise _cannot_bind(host, port, error) from error
    listener = Listener(server, connections, "https" if tls else "http")
    try:
        yield listener
    finally:
        await listener.close()


@contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """Bind a port for others to share, without listening on it; yield its number.

    Raises
    ------
    ListenError
        If the address can't be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if port:
            # Alone, as another collector that shares the port would get some of its reports.
            with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        with contextlib.closing(socket.socket(family, kind, protocol)) as reserved:
            # As asyncio does, so that a port whose last connections still linger can be had again.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            yield int(reserved.getsockname()[1])
    except OSError as error:
        raise _cannot_bind(host, port, error) from error


def allow_open_files(number: int) -> bool:
    """Raise this process's limit of open files to a number; return whether that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        most = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most == number
    return True


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context (TLS 1.2 or newer).

    Raises
    ------
    ListenError
        If the files can't be read, or don't belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
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
    """Refuse to ask the terminal for an encrypted key's password."""
    raise ValueError("the key must not be encrypted")


async def start_site(runner: web.BaseRunner, host: str, port: int) -> None:
    """Let an application listen (raises ListenError if the address can't be bound)."""
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise _cannot_bind(host, port, error) from error


def address_of(scheme: str, name: Sequence[Any]) -> str:
    """Return the base address of a socket's name."""
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _cannot_bind(host: str, port: int, error: OSError) -> ListenError:
    return ListenError(f"--host {host} --port {port}: {error.strerror}")
