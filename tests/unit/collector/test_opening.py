"""Sealed records in a store and out of it, on both databases: opened once, or named and left."""

import datetime as dt
import secrets
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from factories import APPLICATION, make_metric, make_params, make_registry, make_report
from hubbub.client import Batch, Report
from hubbub.client.sealing import Sealer
from hubbub.collector.ingest.reader import BatchReader
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.operations.sampling import Sampler
from hubbub.collector.operations.status import Stored, metric_statuses
from hubbub.collector.problems import BatchError
from hubbub.protocol.hpke import PrivateKey, require_cryptography, seal
from hubbub.protocol.records import Records
from hubbub.protocol.sealed import (
    GRACE,
    MEDIA_TYPE,
    OVERHEAD,
    SealedReport,
    read_sealed,
    write_sealed,
)
from hubbub.storage import SEALED, MetricVersion, NewBatch, Store, open_store, sealed_key
from hubbub.storage.errors import ReportFileError, StoreError
from hubbub.storage.files.exporting import export_partitions, plan_export
from hubbub.storage.files.importing import find_sources
from hubbub.storage.files.locations import resolve
from hubbub.storage.files.reader import ParquetReader
from hubbub.storage.maintenance import Maintenance
from hubbub.storage.sealed import (
    CHANGED,
    MALFORMED,
    OTHER_KEY,
    OTHER_LENGTH,
    UNFIT,
    UNKNOWN,
    OpenResult,
    open_reports,
)
from unit.collector.event_loop import in_event_loop

TODAY = dt.date(2026, 3, 14)
KEY = PrivateKey.parse("hub_unseal_20260331_aJKoyzjzEsWmJr328gYDcGFehvVNEtWcThzFnxmh2ks")
OTHER = PrivateKey.parse("hub_unseal_20260630_aJKoyzjzEsWmJr328gYDcGFehvVNEtWcThzFnxmh2ks")
HOMEPAGE = make_metric()
SEARCH = make_metric("search", params=make_params(k=8, m=4))
REGISTRY = make_registry(HOMEPAGE, SEARCH)
OF_HOMEPAGE, OF_SEARCH = MetricVersion("homepage", 1), MetricVersion("search", 1)
WIDTH = 64 + OVERHEAD


def reports(count: int, start: int = 0) -> tuple[Report, ...]:
    """Return reports of both metrics, of which no two are equal."""
    return tuple(
        make_report(HOMEPAGE, cohort=i % 64, bits=i)
        if i % 3
        else make_report(SEARCH, cohort=i // 3 % 4, bits=i // 3 % 256)
        for i in range(start, start + count)
    )


def sealed(*given: Report, key: PrivateKey = KEY, batch_id: str | None = None) -> bytes:
    """Return the body that a client makes of reports."""
    batch = Batch(given, batch_id)
    return Sealer(str(key.public), REGISTRY).seal(batch, bytes(32), TODAY)


def batch_of(body: bytes) -> NewBatch:
    """Return a body as the collector reads it."""
    keys = [KEY.public.key_id, OTHER.public.key_id]
    return BatchReader(REGISTRY, sealed_to=keys).read(body, MEDIA_TYPE)


def raw(payload: bytes, key: PrivateKey = KEY, application: str = APPLICATION) -> bytes:
    """Return a record of any payload, as a hostile sender may make one."""
    public = X25519PublicKey.from_public_bytes(key.public.public)
    info = key.public.info(application)
    return key.public.key_id + require_cryptography().encrypt(payload, public, info)


def rows(data: bytes) -> list[bytes]:
    return [data[start : start + WIDTH] for start in range(0, len(data), WIDTH)]


async def append(store: Store, *bodies: bytes, day: dt.date = TODAY) -> None:
    await store.declare_sealed()
    await store.append([batch_of(body) for body in bodies], day)


@asynccontextmanager
async def collected(folder: Path, *bodies: bytes) -> AsyncIterator[Store]:
    """Give a collector's store with batches in it."""
    async with open_store(f"sqlite:///{folder / 'collected.db'}", create=True) as store:
        await append(store, *bodies)
        yield store


async def run(source: Store | ParquetReader, store: Store, *keys: PrivateKey) -> OpenResult:
    return await open_reports(source, store, REGISTRY, keys or [KEY], today=TODAY)


async def stored(store: Store, day: dt.date | None = None) -> Counter[tuple[MetricVersion, bytes]]:
    """Return the records of a store, by metric."""
    found: Counter[tuple[MetricVersion, bytes]] = Counter()
    for key, width in ((OF_HOMEPAGE, 18), (OF_SEARCH, 3)):
        async for data in store.records(key, day, day):
            found.update((key, data[i : i + width]) for i in range(0, len(data), width))
    return found


def expected(*given: Report) -> Counter[tuple[MetricVersion, bytes]]:
    return Counter(
        (MetricVersion(r.metric, r.version), r.cohort.to_bytes(2, "little") + r.bits) for r in given
    )


@in_event_loop
async def test_reports_come_out_as_they_were_sealed_by_the_collectors_day(any_store_url, tmp_path):
    early, late = reports(40), reports(10, start=40)
    async with collected(tmp_path, sealed(*early)) as source:
        await append(source, sealed(*late), day=TODAY + dt.timedelta(days=1))
        async with open_store(any_store_url, create=True) as store:
            result = await run(source, store)
            assert result == OpenResult(Counter({OF_HOMEPAGE: 33, OF_SEARCH: 17}), 0, Counter())
            assert await stored(store, TODAY) == expected(*early)
            assert await stored(store) == expected(*early, *late)


@in_event_loop
async def test_reports_count_once_however_often_they_are_sealed_stored_and_opened(
    any_store_url, tmp_path
):
    """A client that got no answer seals anew; a hostile collector keeps, copies and dates all."""
    given, batch_id = reports(30), secrets.token_hex(16)
    attempts = [sealed(*given, batch_id=batch_id) for _ in range(2)]
    attempts.append(sealed(*given, key=OTHER, batch_id=batch_id))
    async with collected(tmp_path) as source, open_store(any_store_url, create=True) as store:
        for number, body in enumerate(attempts):
            batch = batch_of(body)._replace(batch_id=secrets.token_bytes(16))
            twice = batch._replace(batch_id=secrets.token_bytes(16))
            await source.append([batch, twice], TODAY + dt.timedelta(days=number))
        await source.declare_sealed()
        first = await run(source, store, KEY, OTHER)
        assert (first.new.total(), first.known) == (30, 150)
        again = await run(source, store, OTHER, KEY)
        assert (again.new.total(), again.known) == (0, 180)
        assert await stored(store) == expected(*given)
        await append(source, sealed(*reports(5, start=30)))
        assert (await run(source, store)).new.total() == 5


@in_event_loop
async def test_equal_reports_are_all_counted(any_store_url, tmp_path):
    given = (make_report(SEARCH),) * 7
    async with (
        collected(tmp_path, sealed(*given), sealed(*given)) as source,
        open_store(any_store_url, create=True) as store,
    ):
        assert (await run(source, store)).new == {OF_SEARCH: 14}


@in_event_loop
async def test_what_was_opened_is_remembered_until_its_key_opens_no_more(any_store_url, tmp_path):
    """However short other ids are kept: a replay must not count."""
    last = KEY.public.last_day + GRACE
    async with (
        collected(tmp_path, sealed(*reports(9))) as source,
        open_store(any_store_url, create=True) as store,
    ):
        await run(source, store)
        upkeep = Maintenance(store, 1, None, seconds=0)
        await upkeep.run_once(last, trust_clock=True)
        again = await open_reports(source, store, REGISTRY, [KEY], today=last)
        assert (again.new.total(), again.known) == (0, 9)
        later = last + dt.timedelta(days=1)
        with pytest.raises(StoreError, match=f"opened reports until {last}.*delete"):
            await open_reports(source, store, REGISTRY, [KEY], today=later)
        forgotten = await upkeep.run_once(later + dt.timedelta(days=1), trust_clock=True)
        assert forgotten.forgotten == 1


@in_event_loop
async def test_what_was_sealed_to_two_keys_counts_once_after_the_first_has_ended(
    any_store_url, tmp_path
):
    """A hostile collector keeps back what a client that got no answer sealed to its next key."""
    given, batch_id = reports(9), secrets.token_hex(16)
    async with (
        collected(tmp_path, sealed(*given, batch_id=batch_id)) as source,
        open_store(any_store_url, create=True) as store,
    ):
        assert (await run(source, store, KEY, OTHER)).new.total() == 9
        late = KEY.public.opens_until + dt.timedelta(days=10)
        await Maintenance(store, 1, None, seconds=0).run_once(late, trust_clock=True)
        held_back = batch_of(sealed(*given, key=OTHER, batch_id=batch_id))
        await source.append([held_back._replace(batch_id=secrets.token_bytes(16))], late)
        again = await open_reports(source, store, REGISTRY, [OTHER], today=late)
        assert (again.new.total(), again.known) == (0, 9)
        assert again.left_out == {OTHER_KEY: 9}


@in_event_loop
async def test_records_of_a_length_that_none_have_are_left_unread(tmp_path):
    """A hostile collector names directories as it likes; no memory is asked for on its word."""
    async with collected(tmp_path, sealed(*reports(9))) as source:
        export = [
            it
            async for it in export_partitions(source, tmp_path / "out", await plan_export(source))
        ]
    day = Path(str(export[0].path)).parent
    for version in (65, 9_999_999_999):
        shutil.copytree(day, day.parents[1] / f"version={version}" / day.name)
    async with open_store(f"sqlite:///{tmp_path / 'opened.db'}", create=True) as store:
        result = await run(ParquetReader(tmp_path / "out"), store)
    assert (result.new.total(), result.left_out) == (9, {OTHER_LENGTH: 18})


@in_event_loop
async def test_nothing_is_opened_into_a_collectors_store_whatever_its_address(tmp_path):
    async with collected(tmp_path, sealed(*reports(9))) as source:
        with pytest.raises(StoreError, match="must be another store"):
            await run(source, source)
        assert not await source.versions("homepage")


@in_event_loop
async def test_records_of_hostile_senders_are_left_out_by_reason(tmp_path):
    def payload(**changes: Any) -> bytes:
        report = SealedReport(secrets.token_bytes(16), "homepage", 1, bytes(18))
        (record,) = seal([report._replace(**changes)], KEY.public, APPLICATION, 64)
        return record

    fit = payload()
    changed = payload()
    records = {
        CHANGED: [changed[:-1] + bytes([changed[-1] ^ 1]), raw(bytes(64), application="other")],
        MALFORMED: [raw(bytes(64)), raw(b"\xff" * 64), raw(bytes(17) + b"\xff" * 47)],
        UNKNOWN: [payload(metric="other"), payload(version=2), payload(metric=SEALED, version=64)],
        UNFIT: [payload(record=bytes(19)), payload(record=b"\x40\x00" + bytes(16))],
        OTHER_KEY: [*(raw(bytes(64), OTHER) for _ in range(2))],
    }
    everything = [fit, *(row for some in records.values() for row in some)]
    async with (
        collected(tmp_path, write_sealed(secrets.token_hex(16), everything)) as source,
        open_store(f"sqlite:///{tmp_path / 'opened.db'}", create=True) as store,
    ):
        result = await run(source, store)
        assert result.new == {OF_HOMEPAGE: 1}
        assert result.left_out == {reason: len(some) for reason, some in records.items()}
        # With the key and a registry that knows more, what was left out is opened.
        newer = make_registry(make_metric(version=2), SEARCH, make_metric("other"))
        later = await open_reports(source, store, newer, [KEY, OTHER], today=TODAY)
        assert later.new == {MetricVersion("homepage", 2): 1, MetricVersion("other", 1): 1}
        assert (later.known, later.left_out[MALFORMED]) == (1, 5)


@in_event_loop
async def test_reports_of_earlier_versions_are_opened_as_collectors_take_them(tmp_path):
    async with (
        collected(tmp_path, sealed(*reports(6))) as source,
        open_store(f"sqlite:///{tmp_path / 'opened.db'}", create=True) as store,
    ):
        await store.declare([HOMEPAGE])
        newer = make_registry(make_metric(version=2, params=make_params(k=8)), SEARCH)
        result = await open_reports(source, store, newer, [KEY], today=TODAY)
        assert result.new == {OF_HOMEPAGE: 4, OF_SEARCH: 2}


@pytest.mark.long
@in_event_loop
async def test_several_processes_open_as_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr("hubbub.storage.sealed._CHUNK", 16)
    monkeypatch.setattr("hubbub.storage.sealed._WORTH_PROCESSES", 1)
    given, seen = reports(100), []
    async with (
        collected(tmp_path, sealed(*given), sealed(*given)) as source,
        open_store(f"sqlite:///{tmp_path / 'opened.db'}", create=True) as store,
    ):
        result = await open_reports(
            source, store, REGISTRY, [KEY], jobs=2, today=TODAY,
            progress=lambda done, total: seen.append((done, total)),
        )  # fmt: skip
        assert result.new.total() == 200
        assert await stored(store) == expected(*given, *given)
    assert seen == [(min(16 * i, 200), 200) for i in range(1, 14)]


@in_event_loop
async def test_exported_records_are_opened_as_those_of_the_store(tmp_path):
    given = reports(20)
    async with collected(tmp_path, sealed(*given)) as source:
        plan = await plan_export(source)
        written = [file async for file in export_partitions(source, tmp_path / "out", plan)]
    (file,) = written
    assert file.reports == 20
    assert file.path.parent == resolve(tmp_path / f"out/metric=_sealed/version=64/day={TODAY}")
    async with open_store(f"sqlite:///{tmp_path / 'opened.db'}", create=True) as store:
        result = await run(ParquetReader(tmp_path / "out"), store)
        assert result.new.total() == 20
        assert await stored(store) == expected(*given)


def test_import_leaves_sealed_records_to_who_can_open_them(tmp_path):
    path = tmp_path / f"metric=_sealed/version=64/day={TODAY}/part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"record": [b"sealed"]}), path)
    with pytest.raises(ReportFileError, match="only hubbub-collector open can read"):
        find_sources([tmp_path], REGISTRY)


@in_event_loop
async def test_sealed_records_are_merged_and_dropped_and_never_counted(any_store_url):
    """Their counts would be nonsense, and the reports lost."""
    async with open_store(any_store_url, create=True) as store:
        await append(store, sealed(*reports(10)))
        await append(store, sealed(*reports(10)))
        key, later = sealed_key(64), TODAY + dt.timedelta(days=30)
        before = [data async for data in store.records(key)]
        assert await store.segments.merge(later) == len(before) == 2
        assert await store.counts.count_reports(later) == 0
        (merged,) = [data async for data in store.records(key)]
        assert sorted(rows(merged)) == sorted(rows(b"".join(before)))
        assert await store.drop_reports(later) == 20
        assert await store.count(key) == 0


@in_event_loop
async def test_page_shows_the_sizes_that_are_stored_and_samples_none(sqlite_url):
    """Sealed records have neither cohorts nor bits that could look forged."""
    async with open_store(sqlite_url, create=True) as store:
        await store.declare([HOMEPAGE])
        await store.declare_sealed()
        metrics = Metrics()
        for stored_sizes in ([], [64]):
            declared, days = await store.declared(), await store.overview()
            sampler = Sampler(store)
            await sampler.sample(declared, days, TODAY)
            assert sampler.samples == {}
            found = Stored(declared, days, samples=sampler.samples)
            shown = metric_statuses(REGISTRY, found, metrics.snapshot(), TODAY)
            sizes = [v.version for it in shown if it.name == SEALED for v in it.versions]
            assert sizes == stored_sizes
            await append(store, sealed(*reports(5)))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "body: not valid application/vnd.hubbub.sealed: head"),
        (sealed(*reports(2))[:-1], 400, "records: 239 bytes; must be at least one record, and 2"),
        (
            sealed(*reports(2), key=PrivateKey.generate(TODAY)),
            422,
            "records: sealed to a key that this collector doesn't take",
        ),
        (sealed(*reports(6)), 413, "records: 6; must be at most 5"),
    ],
    ids=["empty", "cut off", "unknown key", "too many"],
)
def test_other_bodies_are_refused_in_words(body, status, words):
    reader = BatchReader(REGISTRY, max_reports=5, sealed_to=[KEY.public.key_id])
    with pytest.raises(BatchError, match=words) as caught:
        reader.read(body, MEDIA_TYPE)
    assert (caught.value.status, caught.value.reports) == (status, {})


def test_collector_without_keys_takes_nothing_sealed():
    with pytest.raises(BatchError) as caught:
        BatchReader(REGISTRY).read(sealed(*reports(1)), MEDIA_TYPE)
    assert caught.value.status == 415
    assert MEDIA_TYPE not in str(caught.value).partition("one of")[2]


def test_read_batch_is_what_was_posted():
    body = sealed(*reports(4))
    batch = read_sealed(body, [KEY.public.key_id])
    assert batch_of(body) == NewBatch(
        batch.batch_id, {sealed_key(64): Records(WIDTH, batch.records)}
    )
