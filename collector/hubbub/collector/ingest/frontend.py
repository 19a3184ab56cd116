"""POST /v1/reports: from a request's head and body to an answer.

A request is admitted, read, checked, handed to the group commit and answered; nothing about its
sender is read, kept or logged. What is cheap to check is checked first: the key, the type and the
room before there is a body. Invariant: an answer 200 or 201 means that the reports are durable.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from hubbub.collector.access.admission import Admission, LoadLimiter
from hubbub.collector.config.settings import Settings
from hubbub.collector.http1 import Head, HttpResponse
from hubbub.collector.ingest.body import check_encoding, decompress
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.ingest.reader import BatchReader, check_media_type
from hubbub.collector.ingest.report_validator import ReportValidator
from hubbub.collector.ingest.slice_limit import SliceLimit
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import RefusalError
from hubbub.storage import NewBatch, Store

_MAX_CONCURRENT_LOOKUPS = 16  # one looks and 15 wait, some milliseconds each

_DUPLICATE = b'{"accepted": %d, "duplicate": true}'
_ACCEPTED = b'{"accepted": %d}'


class Frontend:
    """Takes reports, from the admission of a request to its answer."""

    def __init__(
        self,
        settings: Settings,
        reader: BatchReader,
        slice_limit: SliceLimit,
        store: Store,
        commit: GroupCommit,
        limiter: LoadLimiter,
        validator: ReportValidator,
        metrics: Metrics,
    ) -> None:
        self._admission = Admission(settings)
        self._commit = commit
        self._limiter = limiter
        self._validator = validator
        self._count = metrics.request
        self._count_duplicates = metrics.duplicates
        self.count_seconds = metrics.answered
        self._store = store
        self._looking, self._lookers = asyncio.Lock(), 0
        self.use(settings, reader, slice_limit)

    def use(self, settings: Settings, reader: BatchReader, slice_limit: SliceLimit) -> None:
        """Go by these keys, this reader and this limit from now on."""
        self._settings = settings
        self._admission.use(settings)
        self._reader = reader
        self._slice_limit = slice_limit

    def begin(self, head: Head) -> _Posting:
        """Let a request in by its head; what is returned takes its body.

        Raises `RefusalError`: 401 without a good key, 415 for a type or encoding that isn't known,
        429 if too many requests are under way.
        """
        key = self._admission.key(head.fields.get("authorization"))
        media_type = head.fields.get("content-type", "").partition(";")[0].strip().lower()
        check_media_type(media_type)
        encoding = check_encoding(head.fields.get("content-encoding", ""))
        return _Posting(self, self._limiter, self._settings, key, media_type, encoding)

    def answer(self, body: bytes, media_type: str, key: str | None) -> Awaitable[HttpResponse]:
        """Read a batch at once; return what stores it and answers.

        `body`: as its media type says. `key`: the name of the key with which it came. Raises
        `RefusalError` for what is wrong with it. When it is stored also 429 if the key's quota is
        used up, and StoreError.
        """
        batch = self._reader.read(body, media_type)
        self._validator.check(batch)
        return self._store_and_answer(batch, key)

    async def _store_and_answer(self, batch: NewBatch, key: str | None) -> HttpResponse:
        reports = sum([records.reports for records in batch.records.values()])
        if await self._store_once(batch, key, reports):
            self._count(201, "stored")
            return HttpResponse(201, _ACCEPTED % reports)
        self._count(200, "duplicate")
        return HttpResponse(200, _DUPLICATE % reports)

    async def _store_once(self, batch: NewBatch, key: str | None, reports: int) -> bool:
        """Store a batch at the expense of its key; return whether it was new.

        One that is stored already costs no quota, and is acknowledged again without any: its sender
        never got the answer.
        """
        sections = 1 + len(batch.records) - len({(it.metric, it.version) for it in batch.records})
        try:
            self._admission.spend(key, reports, sections)
        except RefusalError as error:
            if error.status == 429 and self._admission.may_repeat(key, reports, sections):
                # One at a time, and few who wait, so that those without quota keep nobody else from
                # the store or from a slot.
                if self._lookers >= _MAX_CONCURRENT_LOOKUPS:
                    raise
                async with self._looked_up():
                    is_known = await self._store.ids.has(batch.batch_id)
                if is_known:
                    self._count_duplicates(1)
                    return False
            raise
        batch = self._slice_limit.applied(batch, dt.datetime.now(dt.UTC).date())
        is_new = await self._commit.submit(batch)
        if not is_new:
            self._admission.refund(key, reports, sections)
        return is_new

    @asynccontextmanager
    async def _looked_up(self) -> AsyncIterator[None]:
        self._lookers += 1
        try:
            async with self._looking:
                yield
        finally:
            self._lookers -= 1


class _Posting:
    """A request that was let in (a `connections.Posting`), with its slot."""

    __slots__ = (
        "_begun", "_encoding", "_frontend", "_key", "_media_type", "_slot", "hold", "most",
        "seconds",
    )  # fmt: skip

    def __init__(
        self,
        frontend: Frontend,
        limiter: LoadLimiter,
        settings: Settings,
        key: str | None,
        media_type: str,
        encoding: str,
    ) -> None:
        self.most = settings.max_body_bytes
        self.seconds = settings.body_seconds
        self._frontend = frontend
        self._key = key
        self._media_type = media_type
        self._encoding = encoding
        self._slot = limiter.acquire()
        self._begun = time.perf_counter()
        self.hold = self._slot.hold

    def release(self) -> None:
        """Give its slot back, and count how long it took."""
        self._slot.release()
        self._frontend.count_seconds(time.perf_counter() - self._begun)

    def answer(self, body: bytes) -> Awaitable[HttpResponse]:
        """Read the whole request, and return what answers it (raises as `Frontend.answer`)."""
        if self._encoding:
            body = decompress(body, self._encoding, self.most)
            self.hold(len(body))
        return self._frontend.answer(body, self._media_type, self._key)
