"""Connections of the admin listener: each answer has its own time."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from hubbub.collector.serving.admin_connections import AdminConnections
from hubbub.collector.serving.listening import listening
from unit.collector.event_loop import in_event_loop

_LARGE = bytes(20_000_000)
_GET = b"GET / HTTP/1.1\r\nHost: collector\r\n\r\n"
_SEND_SECONDS = 2.0


async def _answer(_request: web.BaseRequest) -> web.Response:
    return web.Response(body=_LARGE)


@pytest.mark.parametrize("takes_it", [True, False])
@in_event_loop
async def test_answer_that_is_not_taken_in_time_is_cut_and_no_other(takes_it):
    connections = AdminConnections(
        _answer, most=10, idle_seconds=60, send_seconds=_SEND_SECONDS, turned_away=lambda: None
    )
    async with listening(connections, "127.0.0.1", 0) as listener:
        port = urlsplit(listener.address).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_GET)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(_LARGE))
        await asyncio.sleep(0.75 * _SEND_SECONDS)
        writer.write(_GET)
        await reader.readuntil(b"\r\n\r\n")
        # The time of the first answer ends in the middle of this.
        await asyncio.sleep((0.5 if takes_it else 2) * _SEND_SECONDS)
        if takes_it:
            await reader.readexactly(len(_LARGE))
        else:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(len(_LARGE))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
