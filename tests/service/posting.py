"""Speak HTTP to a collector as clients do, well or badly, and look into what it stored."""

import asyncio
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from factories import make_metric, make_report
from hubbub.client import Batch, Metric, batch_to_json
from hubbub.protocol import MEDIA_TYPE, batch_to_compact
from hubbub.storage import MetricVersion, Store, open_store
from unit.collector.exchanges import segments_of

SECONDS = 60.0
JSON = "application/json"
COMPACT = MEDIA_TYPE
FORMS: dict[str, Callable[[Batch], bytes]] = {
    JSON: batch_to_json,
    COMPACT: batch_to_compact,
}
"""Encoders of batches by media type."""

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a collector answered."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def make_batch(reports: int = 3, metric: Metric | None = None) -> Batch:
    """Return a batch of distinguishable reports under a new id."""
    metric = metric or make_metric()
    cohorts = metric.params.m
    return Batch(tuple(make_report(metric, cohort=i % cohorts, bits=i) for i in range(reports)))


def send(
    url: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    source: str = "127.0.0.1",
) -> Answer:
    """Make one request over a connection of its own."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=SECONDS, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())


def post(
    url: str,
    batch: Batch | bytes,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
    *,
    source: str = "127.0.0.1",
) -> Answer:
    body = batch_to_json(batch) if isinstance(batch, Batch) else batch
    headers = {"Content-Type": content_type, **(headers or {})}
    return send(url, "POST", "/v1/reports", body, headers, source=source)


def connect(url: str, source: str = "127.0.0.1") -> socket.socket:
    """Open a bare connection."""
    address = urlsplit(url)
    return socket.create_connection(
        (address.hostname, address.port or 80), SECONDS, source_address=(source, 0)
    )


def accepts_connections(url: str) -> bool:
    try:
        connect(url).close()
    except ConnectionError:
        return False
    return True


def wait_until(condition: Callable[[], object]) -> None:
    """Return once a condition holds; fail if it doesn't come true."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def wait_until_published(admin: str, token: str) -> None:
    """Wait until a collector's numbers were published once, from when on it counts."""
    headers = {"Authorization": f"Bearer {token}"}
    wait_until(lambda: send(admin, "GET", "/status.json", headers=headers).json["published_at"])


def records_of(batch: Batch) -> list[bytes]:
    """Return the records that a store should hold of a batch, sorted."""
    return sorted(r.cohort.to_bytes(2, "little") + r.bits for r in batch.reports)


def stored_count(database: Path, metric: Metric | None = None) -> int:
    """Return the number of reports stored."""
    key = _key(metric)

    async def count(store: Store) -> int:
        return await store.count(key)

    return _read(database, count)


def stored_records(database: Path, metric: Metric | None = None) -> list[bytes]:
    """Return all records, segment after segment, in the order in which they are stored."""
    key, width = _key(metric), 2 + (metric or make_metric()).params.k // 8

    async def read(store: Store) -> list[bytes]:
        joined = b"".join(await segments_of(store, key))
        return [joined[i : i + width] for i in range(0, len(joined), width)]

    return _read(database, read)


def _key(metric: Metric | None) -> MetricVersion:
    metric = metric or make_metric()
    return MetricVersion(metric.name, metric.version)


def _read(database: Path, query: Callable[[Store], Awaitable[_Found]]) -> _Found:
    async def read() -> _Found:
        async with open_store(f"sqlite:///{database}", create=False) as store:
            return await query(store)

    return asyncio.run(read())
