"""The public side of a collector inside a test's own event loop, for troubles made from within."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from hubbub.client import Batch, batch_to_json
from hubbub.collector import Ingest, Metrics, ServiceFiles, Settings, running_ingest
from hubbub.storage import Store, open_store


@contextlib.asynccontextmanager
async def serving(
    metrics: Path, store_url: str, **settings: object
) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        running(metrics, store_url, **settings) as ingest,
        aiohttp.ClientSession(ingest.addresses.public) as session,
    ):
        yield session


@contextlib.asynccontextmanager
async def running(metrics: Path, store_url: str, **settings: object) -> AsyncIterator[Ingest]:
    """Serve, and yield the public side."""
    given = Settings.model_validate({"metrics": metrics, "store": store_url, "port": 0, **settings})
    async with open_store(store_url, create=True) as store, running_from(store, given) as ingest:
        yield ingest


@contextlib.asynccontextmanager
async def running_from(store: Store, settings: Settings) -> AsyncIterator[Ingest]:
    """Serve from a store that is open already."""
    files = ServiceFiles(settings, lambda: settings)
    async with running_ingest(files, store, Metrics()) as ingest:
        yield ingest


async def post(session: aiohttp.ClientSession, batch: Batch) -> aiohttp.ClientResponse:
    headers = {"Content-Type": "application/json"}
    async with session.post("/v1/reports", data=batch_to_json(batch), headers=headers) as answer:
        await answer.read()
        return answer
