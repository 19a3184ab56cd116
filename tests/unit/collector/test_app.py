"""Answers to troubles that a real collector process can't be brought into at will."""

import asyncio
import contextlib
import sqlite3

from factories import make_report
from hubbub.client import Batch
from hubbub.collector import BatchReader
from unit.collector.event_loop import in_event_loop
from unit.collector.serving import post, serving

_BODY_MARK = "a secret of the request"


@in_event_loop
async def test_bytes_under_way_are_bounded(metrics_file, store_url, database):
    big = [
        Batch(tuple([make_report()] * 100)) for _ in range(4)
    ]  # some 8 kB each, and 4 of the head
    small = Batch((make_report(),))
    async with serving(
        metrics_file, store_url, max_waiting_bytes=31_000, retry_after_seconds=3
    ) as session:
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            posts = [asyncio.create_task(post(session, batch)) for batch in big]
            shed, _ = await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
            for answer in (task.result() for task in shed):
                assert (answer.status, answer.content_type) == (429, "application/problem+json")
                assert 3 <= int(answer.headers["Retry-After"]) <= 6
            little = asyncio.create_task(post(session, small))  # for which there is room
            await asyncio.wait([little], timeout=0.1)
            other.execute("ROLLBACK")
        assert (await little).status == 201
        statuses = [answer.status for answer in await asyncio.gather(*posts)]
        assert sorted(statuses) == [201, 201, 429, 429]
        for batch in big:  # what was held was given back
            assert (await post(session, batch)).status in {200, 201}


@in_event_loop
async def test_unexpected_error_is_answered_and_logged_without_its_text(
    metrics_file, store_url, monkeypatch, caplog
):
    def fail(*_arguments: object):
        raise ValueError(_BODY_MARK)

    async with serving(metrics_file, store_url) as session:
        with monkeypatch.context() as patched:
            patched.setattr(BatchReader, "read", fail)
            answer = await post(session, Batch((make_report(),)))
        text = await answer.text()
        assert (answer.status, answer.content_type) == (500, "application/problem+json")
        assert _BODY_MARK not in text
        assert "unexpected ValueError" in caplog.text
        assert "in fail" in caplog.text  # where it happened is what a maintainer needs
        assert _BODY_MARK not in caplog.text
        assert (await post(session, Batch((make_report(),)))).status == 201
