"""A listening address: its sockets, how many connections there is room for, an orderly shutdown.

Several processes may listen on one port (SO_REUSEPORT): the kernel shares new connections out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Protocol

from hubbub.protocol.errors import HubbubError

_BACKLOG = 1024  # connections that wait for accept(): a second of a busy service's
_OTHER_FILES = 256  # the store's files, connections and pipes are some tens
_PAUSE_SECONDS = 60.0  # a shortage of files is logged once a minute, not once a connection

_log = logging.getLogger("hubbub.collector")


class ListenError(HubbubError):
    """An address that can't be listened on, or a certificate that can't be used."""


class ListenerConnections(Protocol):
    """The connections of a listener."""

    def __call__(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection (raises OSError to turn it away)."""

    async def close(self) -> None:
        """Close everything; requests under way are given up."""


class Listener:
    """An address on which connections are accepted; use `listening`."""

    def __init__(self, server: asyncio.Server, scheme: str) -> None:
        self._server = server
        self.address = address_of(scheme, server.sockets[0].getsockname())

    def stop_accepting(self) -> None:
        """Accept no new connections; those that are open stay."""
        self._server.close()


@asynccontextmanager
async def listening(
    connections: ListenerConnections,
    host: str,
    port: int,
    *,
    scheme: str = "http",
    kind: str = "",
    shared: bool = False,
    backlog: int = _BACKLOG,
) -> AsyncIterator[Listener]:
    """Listen as long as the context is open.

    `port`: 0 lets the system choose. `scheme`: what is spoken there. `kind`: what the names of its
    settings begin with. `shared`: whether other processes listen on the same port. `backlog`:
    connections that may wait to be accepted. As many are accepted at once, and open for a moment,
    before those that are too many are turned away. Raises `ListenError` if the address can't be
    bound.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_LoopTrouble())
    try:
        server = await loop.create_server(
            connections, host, port, backlog=backlog, reuse_port=shared or None
        )
    except (OSError, ValueError) as error:  # a name that can't be one raises a ValueError
        raise _cannot_bind(host, port, error, kind) from error
    try:
        yield Listener(server, scheme)
    finally:
        server.close()
        await asyncio.sleep(0)  # what has been accepted gets to its connection
        await connections.close()


@contextmanager
def reserved_port(host: str, port: int, kind: str = "") -> Iterator[int]:
    """Bind a port for others to share, without listening on it; yield its number.

    `kind`: what the names of its settings begin with. Raises `ListenError` if the address can't be
    bound.
    """
    try:
        family, sort, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if port:
            # Alone, as another collector that shares the port would get some of its reports.
            with contextlib.closing(socket.socket(family, sort, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        with contextlib.closing(socket.socket(family, sort, protocol)) as reserved:
            # As asyncio does, so that a port whose last connections still linger can be had again.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            yield int(reserved.getsockname()[1])
    except (OSError, ValueError) as error:  # a name that can't be one raises a ValueError
        raise _cannot_bind(host, port, error, kind) from error


class _LoopTrouble:
    """Logs what goes wrong in an event loop, but not each time that no file can be opened.

    asyncio tells of that a thousand times a second while connections wait to be accepted; and each
    time it has itself called back to accept again, which fails if the socket is closed by then.
    """

    def __init__(self) -> None:
        self._logged_at = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context["message"]
        if "._start_serving(" in message:
            return
        if "accept() out of system resource" not in message:
            loop.default_exception_handler(context)
        elif loop.time() > self._logged_at + _PAUSE_SECONDS:
            self._logged_at = loop.time()
            _log.error("connections wait because no more files can be opened")


class Room(NamedTuple):
    """How many connections may be open, and how many may wait to be accepted."""

    most: int
    backlog: int


def room_for_connections(most: int) -> Room:
    """Raise this process's limit of open files for so many connections, as far as is allowed.

    Returns what fits into the limit, beside some files of other uses.
    """
    needed = most + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return room_within(needed if soft == resource.RLIM_INFINITY else soft, most)


def room_within(files: int, most: int) -> Room:
    """Return the room for at most so many connections within a limit of open files."""
    left = max(2, files - _OTHER_FILES)
    backlog = min(_BACKLOG, max(1, left // 4))
    return Room(min(most, left - backlog), backlog)


def address_of(scheme: str, name: Sequence[Any]) -> str:
    """Return the base address of a socket's name."""
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _cannot_bind(host: str, port: int, error: OSError | ValueError, kind: str) -> ListenError:
    if isinstance(error, OSError):
        return ListenError(f"--{kind}host {host} --{kind}port {port}: {error.strerror}")
    return ListenError(f"--{kind}host {host[:80]!r}: must be a name or an address")
