"""Sealed reports beside plain ones: bytes, the client's CPU, the collector's, and the opener's."""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from evaluation.benchmarks.timing import Comparison, compare
from factories import make_metric, make_registry, make_secret
from hubbub.client import Batch, Encoder, Metric, Registry, Report
from hubbub.client.sealing import Sealer
from hubbub.client.transport import RequestEncoder
from hubbub.collector.ingest.reader import BatchReader
from hubbub.protocol.compact import MEDIA_TYPE as COMPACT
from hubbub.protocol.compact import batch_to_compact
from hubbub.protocol.hpke import PrivateKey
from hubbub.protocol.records import Records, record_width
from hubbub.protocol.sealed import MEDIA_TYPE, OVERHEAD, read_sealed
from hubbub.storage import MetricVersion, NewBatch, Reader, open_store, sealed_key
from hubbub.storage.sealed import RecordOpener, open_reports

_REPORTS = 100
_TURN = 20  # batches
_TO_OPEN = 20_000
_FAR = dt.date(2099, 12, 31)


def comparisons() -> Iterator[Comparison]:
    """Compare one batch's way, report by report."""
    key, metric = PrivateKey.generate(_FAR), make_metric()
    registry, encoder = make_registry(metric), Encoder(metric, make_secret())
    batch = Batch(tuple(encoder.encode(f"value {i}") for i in range(_REPORTS)))
    sealer = Sealer(str(key.public), registry)
    sealed, plain = sealer.seal(batch, make_secret()), batch_to_compact(batch)
    yield _compare_requests(sealer, batch, len(sealed), len(plain))
    yield _compare_reading(registry, key, sealed, plain)
    yield _compare_recording(encoder, sealer, batch)
    yield _compare_opening(registry, key, sealed, plain)
    yield _compare_stores(registry, key, sealer, batch.reports)


def _compare_requests(sealer: Sealer, batch: Batch, sealed: int, plain: int) -> Comparison:
    sealing, encoding = RequestEncoder(sealer=sealer), RequestEncoder()

    def make(encoder: RequestEncoder, times: int) -> int:
        for _ in range(times):
            encoder.encode(batch, make_secret())
        return times * _REPORTS

    found = compare(
        f"request of {_REPORTS} sealed reports, k = 128: {sealed:,} bytes",
        lambda: make(sealing, _TURN),
        f"compact: {plain:,} bytes",
        lambda: make(encoding, 10 * _TURN),
        "reports",
        clock=time.process_time,
    )
    return replace(found, verdict=f"{found.verdict}, {sealed / plain:.1f} times the bytes")


def _compare_reading(
    registry: Registry, key: PrivateKey, sealed: bytes, plain: bytes
) -> Comparison:
    reader = BatchReader(registry, sealed_to=[key.public.key_id])

    def read(body: bytes, media_type: str) -> int:
        for _ in range(10 * _TURN):
            reader.read(body, media_type)
        return 10 * _TURN * _REPORTS

    return compare(
        f"collector reads {_REPORTS} sealed reports",
        lambda: read(sealed, MEDIA_TYPE),
        "compact ones",
        lambda: read(plain, COMPACT),
        "reports",
        clock=time.process_time,
    )


def _compare_recording(encoder: Encoder, sealer: Sealer, batch: Batch) -> Comparison:
    def encode() -> int:
        for i in range(_TURN * _REPORTS):
            encoder.encode(f"value {i}")
        return _TURN * _REPORTS

    def seal() -> int:
        for _ in range(_TURN):
            sealer.seal(batch, make_secret())
        return _TURN * _REPORTS

    return compare(
        "client seals", seal, "draws new answers", encode, "reports", clock=time.process_time
    )


def _compare_opening(
    registry: Registry, key: PrivateKey, sealed: bytes, plain: bytes
) -> Comparison:
    width = record_width(128)
    expected = {MetricVersion("homepage", 1): (64, width, registry["homepage"])}
    opener = RecordOpener([key], registry.application, expected)
    batch = read_sealed(sealed, [key.public.key_id])
    reader = BatchReader(registry)

    def open_all() -> int:
        for _ in range(_TURN):
            opener.open_all(batch.payload + OVERHEAD, batch.records)
        return _TURN * _REPORTS

    def read() -> int:
        for _ in range(10 * _TURN):
            reader.read(plain, COMPACT)
        return 10 * _TURN * _REPORTS

    return compare(
        "records opened and judged by one process", open_all, "compact reports read and judged",
        read, "reports", clock=time.process_time,
    )  # fmt: skip


def _compare_stores(
    registry: Registry, key: PrivateKey, sealer: Sealer, reports: tuple[Report, ...]
) -> Comparison:
    """Compare `open`, with what it stores, with storing the same reports in batches of 100."""
    metric: Metric = registry["homepage"]
    bodies = [sealer.seal(Batch(reports), make_secret()) for _ in range(_TO_OPEN // _REPORTS)]
    batches = [read_sealed(body, [key.public.key_id]) for body in bodies]
    pool = Records(64 + OVERHEAD, b"".join(batch.records for batch in batches))
    row = b"".join(r.cohort.to_bytes(2, "little") + r.bits for r in reports)
    today = dt.date(2026, 3, 14)

    async def open_into(source: Reader, url: str) -> None:
        async with open_store(url, create=True) as store:
            await open_reports(source, store, registry, [key], today=today)

    async def store_plainly(url: str) -> None:
        plain = [
            NewBatch(secrets.token_bytes(16), {MetricVersion("homepage", 1): Records(18, row)})
            for _ in range(_TO_OPEN // _REPORTS)
        ]
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            await store.append(plain, today)
            await store.segments.merge()
            await store.database.reclaim_space()

    def timed_open() -> int:
        async def run(folder: Path) -> None:
            async with open_store(f"sqlite:///{folder / 'sealed.db'}", create=True) as source:
                await source.declare_sealed()
                batch = NewBatch(secrets.token_bytes(16), {sealed_key(64): pool})
                await source.append([batch], today)
                await open_into(source, f"sqlite:///{folder / 'opened.db'}")

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(run(Path(folder)))
        return _TO_OPEN

    def timed_store() -> int:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(store_plainly(f"sqlite:///{folder}/plain.db"))
        return _TO_OPEN

    return compare(
        f"{_TO_OPEN:,} records opened into SQLite, by one process",
        timed_open,
        "as many reports stored in batches of 100",
        timed_store,
        "reports",
        turns=3,
        clock=time.process_time,
    )
