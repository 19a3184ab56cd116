"""Answers to troubles that a real collector process can't be brought into at will."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from factories import make_registry, make_report
from hubbub.client import Batch, batch_to_json
from hubbub.collector import app as app_module
from hubbub.collector.app import make_app
from hubbub.collector.ingest import BatchReader
from unit.collector.event_loop import in_event_loop

_Client = TestClient[web.Request, web.Application]
_BODY_MARK = "a secret of the request"


@in_event_loop
async def test_collector_with_too_many_waiting_says_when_to_come_back(
    store_url: str, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "MAX_WAITING_BATCHES", 4)
    batches = [Batch((make_report(),)) for _ in range(10)]
    async with _client(store_url) as client:
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            # One group of at most 4 is being written, 4 batches wait: at least 2 find no room.
            posts = [asyncio.create_task(_post(client, batch)) for batch in batches]
            await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
            other.execute("ROLLBACK")
        answers = await asyncio.gather(*posts)
        busy = [answer for answer in answers if answer.status == 503]
        assert len(busy) >= 2
        assert {answer.status for answer in answers} == {201, 503}
        for answer in busy:
            assert int(answer.headers["Retry-After"]) > 0
            assert answer.content_type == "application/problem+json"
            assert "too busy" in (await answer.json(content_type=None))["detail"]
        for batch, answer in zip(batches, answers, strict=True):
            again = await _post(client, batch)
            assert again.status == (200 if answer.status == 201 else 201)


@in_event_loop
async def test_unexpected_error_is_answered_and_logged_without_its_text(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise ValueError(_BODY_MARK)

    async with _client(store_url) as client:
        with monkeypatch.context() as patched:
            patched.setattr(BatchReader, "read", fail)
            answer = await _post(client, Batch((make_report(),)))
        text = await answer.text()
        assert (answer.status, answer.content_type) == (500, "application/problem+json")
        assert _BODY_MARK not in text
        assert "unexpected ValueError" in caplog.text
        assert "in fail" in caplog.text  # where it happened is what a maintainer needs
        assert _BODY_MARK not in caplog.text
        assert (await _post(client, Batch((make_report(),)))).status == 201


@contextlib.asynccontextmanager
async def _client(store_url: str) -> AsyncIterator[_Client]:
    async with TestClient(TestServer(make_app(make_registry(), store_url))) as client:
        yield client


async def _post(client: _Client, batch: Batch) -> ClientResponse:
    headers = {"Content-Type": "application/json"}
    return await client.post("/v1/reports", data=batch_to_json(batch), headers=headers)
