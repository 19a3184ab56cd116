"""What PostgreSQL answers arrives whole, and leaves no holes in the memory of a collector."""

import asyncio
import datetime as dt
import re
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from hubbub.storage import open_store
from unit.collector.batches import HOMEPAGE, make_random_batch
from unit.collector.event_loop import in_event_loop
from unit.collector.exchanges import segments_of

_DAY = dt.date(2026, 3, 14)


@in_event_loop
async def test_an_answer_takes_little_more_memory_than_it_is_long(postgresql_url):
    """Room for more, most of which is given back at once, would leave the holes."""
    async with open_store(postgresql_url, create=True) as store:
        for _ in range(2):  # the first one makes what is kept
            tracemalloc.start()
            try:
                await store.declared()
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert most < 100_000


@pytest.mark.parametrize("over_tls", [False, True])
@in_event_loop
async def test_answers_larger_than_the_buffer_arrive_whole(postgresql_url, over_tls):
    batch = make_random_batch(20_000)  # 360 kB
    async with (
        _tls_before(postgresql_url) as tls_url,
        open_store(tls_url if over_tls else postgresql_url, create=True) as store,
    ):
        await store.append([batch], _DAY)
        (stored,) = await segments_of(store, HOMEPAGE)
    width, sent = batch.records[HOMEPAGE]
    assert sorted(_cut(stored, width)) == sorted(_cut(sent, width))


def _cut(data: bytes, width: int) -> list[bytes]:
    return [data[start : start + width] for start in range(0, len(data), width)]


@asynccontextmanager
async def _tls_before(url: str) -> AsyncIterator[str]:
    """Serve the database over TLS as PostgreSQL does; the server of the tests can't by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    found = re.fullmatch(r"postgresql://postgres@/(?P<database>\w+)\?host=(?P<folder>.+)", url)
    assert found

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
        writer.close()

    handled: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handled.add(asyncio.create_task(handle(reader, writer)))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # may we speak TLS?
        writer.write(b"S")
        await writer.start_tls(context)
        path = f"{found['folder']}/.s.PGSQL.5432"
        from_server, to_server = await asyncio.open_unix_connection(path)
        await asyncio.gather(pass_on(reader, to_server), pass_on(from_server, writer))

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}/{found['database']}?sslmode=require"
        if handled:
            await asyncio.wait(handled)
