"""Quarantine: batches pooled as in segments, bounded, and replayed once or forgotten whole."""

import asyncio
import datetime as dt
import itertools
import logging
import secrets
import sqlite3
from collections import Counter

import numpy as np
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray

from factories import make_metric, make_params
from hubbub.collector.config.settings import ConfigError, Settings
from hubbub.collector.config.sources import load
from hubbub.protocol.records import Records
from hubbub.storage import MetricVersion, NewBatch, QuarantineDay, QuarantineKey, Store, open_store
from hubbub.storage.maintenance import MOST_QUARANTINE_DAYS, Maintenance, QuarantineCare
from hubbub.storage.quarantine import MOST_KEYS
from unit.collector.batches import HOMEPAGE, WIDTH, make_records, stored_segments, two_stores
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_TODAY = dt.date(2026, 3, 14)
_AMPLE = 2**24
_FOR_EVER = 1e9
_KEY = QuarantineKey("homepage", 2, WIDTH)
_SECOND = make_metric(version=2)
_NEXT = MetricVersion("homepage", 2)


def _days_ago(days: int) -> dt.date:
    return _TODAY - dt.timedelta(days=days)


def _batch(
    numbers: range = range(3),
    *,
    key: QuarantineKey = _KEY,
    known: range = range(0),
) -> NewBatch:
    """Return a batch with records of a key, and perhaps others that are known."""
    wide = b"".join(n.to_bytes(2, "little") + bytes(key.width - 2) for n in numbers)
    records = {HOMEPAGE: make_records(known)} if known else {}
    return NewBatch(secrets.token_bytes(16), records, {key: Records(key.width, wide)})


def _all(_key: MetricVersion, records: Records) -> NDArray[np.bool_]:
    return np.ones(records.reports, dtype=np.bool_)


async def _keep(store: Store, *batches: NewBatch, day: dt.date = _TODAY) -> list[bool | None]:
    return await store.quarantine.append(batches, day, _AMPLE)


async def _kept(store: Store) -> dict[QuarantineKey, int]:
    found: Counter[QuarantineKey] = Counter()
    for one in await store.quarantine.days():
        found[one.key] += one.reports
    return dict(found)


async def _replay(store: Store, metrics: tuple[str, ...] = ("homepage",)) -> int:
    named = {name: make_metric(name) for name in metrics}
    replayed = store.replay_quarantine(named, _all)
    return sum([it.records.reports async for it in replayed])


async def _stored(store: Store, key: MetricVersion = _NEXT) -> list[int]:
    return sorted(itertools.chain.from_iterable(await stored_segments(store, key)))


@in_event_loop
async def test_batch_is_stored_once_and_what_is_unknown_of_it_is_no_reader_s(any_store_url):
    batch = _batch(range(3), known=range(5))
    async with open_store(any_store_url, create=True) as store:
        assert await _keep(store, batch, batch) == [True, False]
        assert await _keep(store, batch) == [False]
        assert await store.append([batch], _TODAY) == [False]
        assert await store.ids.has(batch.batch_id)
        assert await store.quarantine.days() == [QuarantineDay(_KEY, _TODAY, 3, 1)]
        assert await _stored(store, HOMEPAGE) == list(range(5))
        assert await store.versions("homepage") == [1]
        assert [day.reports for day in await store.overview()] == [5]
        assert await store.count(_NEXT) == 0


@in_event_loop
async def test_rows_hold_the_shuffled_reports_of_all_batches(any_store_url):
    """P(false alarm) = 2/256! each."""
    async with open_store(any_store_url, create=True) as store:
        await _keep(store, *[_batch(range(i, i + 16)) for i in range(0, 256, 16)])
        assert await store.quarantine.days() == [QuarantineDay(_KEY, _TODAY, 256, 1)]
        for i in range(256, 512, 16):
            await _keep(store, _batch(range(i, i + 16)))
        assert await store.quarantine.merge(_TODAY) == 17
        assert await store.quarantine.days() == [QuarantineDay(_KEY, _TODAY, 512, 1)]
        assert await store.quarantine.merge(_TODAY) == 0
        await store.declare([make_metric(version=2, params=make_params(m=1024))])
        assert await _replay(store) == 512
        (segment,) = await stored_segments(store, _NEXT)
    assert sorted(segment) == list(range(512))
    assert [n for n in segment if n < 256] not in (list(range(256)), list(range(255, -1, -1)))
    assert segment not in (sorted(segment), sorted(segment)[::-1])


@in_event_loop
async def test_small_row_that_is_left_of_a_day_is_merged_when_the_day_is_over(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await _keep(store, _batch(range(20_000)))
        await _keep(store, _batch(range(3)))
        assert await store.quarantine.merge(_TODAY) == 0
        assert await store.quarantine.merge(_TODAY + dt.timedelta(days=1)) == 2
        assert await store.quarantine.days() == [QuarantineDay(_KEY, _TODAY, 20_003, 1)]


@pytest.mark.parametrize("full", ["bytes", "keys"])
@in_event_loop
async def test_nothing_of_a_batch_is_stored_for_which_there_is_no_room(any_store_url, full):
    async with open_store(any_store_url, create=True) as store:
        if full == "bytes":
            most = 2_500
            fitting = [_batch(range(50))]
        else:
            most = _AMPLE
            keys = [QuarantineKey(f"name{i}", i, 3) for i in range(1, MOST_KEYS + 1)]
            fitting = [_batch(range(1), key=key) for key in keys]
        assert await store.quarantine.append(fitting, _TODAY, most) == [True] * len(fitting)
        more = _batch(range(100), key=QuarantineKey("other", 1, WIDTH), known=range(5))
        assert await store.quarantine.append([more, more], _TODAY, most) == [None, None]
        assert not await store.ids.has(more.batch_id)
        assert await store.count(HOMEPAGE) == 0
        assert sum((await _kept(store)).values()) == sum(it.n_quarantined for it in fitting)
        # Room is made by whoever deletes what nobody wants.
        for batch in fitting:
            for key in batch.quarantined:
                await store.delete(key.metric)
        assert await store.quarantine.append([more, more], _TODAY, most) == [True, False]
        assert await store.count(HOMEPAGE) == 5


@in_event_loop
async def test_bounds_hold_however_many_collectors_write_at_once(any_store_url):
    batches = [_batch(range(1), key=QuarantineKey(f"name{i}", 1, 3)) for i in range(100)]
    async with two_stores(any_store_url) as (one, other):
        taken = await asyncio.gather(
            *[
                store.quarantine.append([batch], _TODAY, _AMPLE)
                for store, batch in zip(itertools.cycle([one, other]), batches)
            ]
        )
        assert Counter(itertools.chain.from_iterable(taken)) == {True: 64, None: 36}
        assert len(await one.quarantine.days()) == MOST_KEYS == 64


@in_event_loop
async def test_what_fits_by_now_becomes_segments_of_its_day_and_the_rest_stays(any_store_url):
    left = {
        QuarantineKey("homepage", 2, 10): 3,  # another width
        QuarantineKey("homepage", 3, WIDTH): 3,  # never declared
        QuarantineKey("search", 1, WIDTH): 3,  # declared, and not in the registry any more
    }
    async with open_store(any_store_url, create=True) as store:
        await _keep(store, _batch(range(60, 70)), day=_days_ago(3))
        await _keep(store, _batch(range(5)), *[_batch(key=key) for key in left])
        await _keep(store, _batch(range(5, 9)))
        assert await _replay(store) == 0
        await store.declare([_SECOND, make_metric("search")])  # m = 64
        moved = [it async for it in store.replay_quarantine({"homepage": _SECOND}, _all)]
        assert sum(it.records.reports for it in moved) == 4 + 9
        assert {it.day for it in moved} == {_TODAY, _days_ago(3)}
        assert await store.days(_NEXT) == [_days_ago(3), _TODAY]
        assert await store.count(_NEXT, until=_days_ago(3)) == 4
        assert await _stored(store) == [*range(9), *range(60, 64)]
        assert await _kept(store) == {**left, _KEY: 6}
        assert await _replay(store) == 0
        assert await _replay(store, ("homepage", "search")) == 3


@in_event_loop
async def test_what_the_screen_refuses_stays(any_store_url):
    def even(key: MetricVersion, records: Records) -> NDArray[np.bool_]:
        assert key == _NEXT
        numbers: NDArray[np.bool_] = np.frombuffer(records.data, np.uint8)[::WIDTH] % 2 == 0
        return numbers

    async with open_store(any_store_url, create=True) as store:
        await _keep(store, _batch(range(10)))
        await store.declare([_SECOND])
        for _ in range(2):
            [_ async for _ in store.replay_quarantine({"homepage": _SECOND}, even)]
            assert await _stored(store) == [0, 2, 4, 6, 8]
            assert await _kept(store) == {_KEY: 5}


@in_event_loop
async def test_each_report_is_replayed_once_beside_appends_mergers_and_others_who_replay(
    any_store_url, monkeypatch
):
    monkeypatch.setattr("hubbub.storage.quarantine._REPORTS_AT_ONCE", 20)
    batches = [_batch(range(i, i + 4)) for i in range(0, 240, 4)]
    metric = make_metric(version=2, params=make_params(m=1024))
    async with two_stores(any_store_url) as (one, other):
        await one.declare([metric])
        for batch in batches[:30]:
            await _keep(one, batch)

        async def append(store: Store):
            for batch in batches[30:]:
                assert await _keep(store, batch) in ([True], [False])

        async def merge():
            for _ in range(3):
                await one.quarantine.merge(_TODAY)
                await other.segments.merge(_TODAY)

        await asyncio.gather(
            append(one), append(other), merge(), *[_replay(it) for it in (one, other, one)]
        )
        await _replay(one)
        assert await _stored(one) == list(range(240))
        assert await one.quarantine.days() == []


@in_event_loop
async def test_metric_or_version_is_deleted_from_quarantine_too(any_store_url):
    third = QuarantineKey("homepage", 3, WIDTH)
    other = QuarantineKey("other", 2, WIDTH)
    async with open_store(any_store_url, create=True) as store:
        await _keep(store, _batch(known=range(5)), _batch(key=third), _batch(key=other))
        assert await store.delete("homepage", 2) == 3
        assert await _kept(store) == {third: 3, other: 3}
        assert await store.delete("homepage") == 5 + 3
        assert await _kept(store) == {other: 3}


@pytest.mark.parametrize(
    ("settings", "last"),
    [({"days": 4}, 4), ({}, 90), ({"report_days": 3}, 3), ({"retention": 6}, 6)],
)
@in_event_loop
async def test_what_nobody_took_in_time_is_deleted_and_counted_as_lost(
    sqlite_url, settings, last, caplog
):
    lost: list[int] = []
    care = QuarantineCare(settings.get("days"), None, lost.append)
    async with open_store(sqlite_url, create=True) as store:
        for age in (last - 1, last, last + 1):
            await _keep(store, _batch(range(age + 1)), day=_days_ago(age))
        upkeep = Maintenance(
            store,
            14,
            settings.get("retention"),
            _FOR_EVER,
            report_days=settings.get("report_days"),
            quarantine=care,
        )
        with caplog.at_level(logging.WARNING, logger="hubbub.collector"):
            done = await upkeep.run_once(_TODAY)
        assert (done.lost, done.dropped, done.faults) == (last + 2, 0, {})
        assert {one.day for one in await store.quarantine.days()} == {
            _days_ago(last),
            _days_ago(last - 1),
        }
    assert lost == [last + 2]
    assert f"deleted {last + 2} reports in quarantine" in caplog.text


@in_event_loop
async def test_nothing_in_quarantine_is_deleted_on_the_word_of_a_clock_that_jumped(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        await _keep(store, _batch())
        upkeep = Maintenance(store, 14, None, _FOR_EVER, quarantine=QuarantineCare(3))
        await upkeep.run_once(_TODAY)
        far = _TODAY + dt.timedelta(days=400)
        done = await upkeep.run_once(far)
        assert (done.lost, list(done.faults)) == (0, ["check"])
        assert await _kept(store) == {_KEY: 3}
        assert (await upkeep.run_once(far, trust_clock=True)).lost == 3


@in_event_loop
async def test_quarantine_that_fails_keeps_no_other_step_from_running(sqlite_url, tmp_path):
    async def fail():
        raise OSError("quoting what is stored")

    steps: dict[str, bool] = {}
    async with open_store(sqlite_url, create=True) as store:
        for _ in range(2):
            await _keep(store, _batch(known=range(3)))
        with sqlite3.connect(tmp_path / "hubbub.db") as connection:
            connection.execute("ALTER TABLE quarantine RENAME TO elsewhere")
        connection.close()
        care = QuarantineCare(3, fail)
        upkeep = Maintenance(store, 14, 7, _FOR_EVER, observe=steps.__setitem__, quarantine=care)
        done = await upkeep.run_once(_TODAY)
        assert set(done.faults) == {"pool", "replay", "expire"}
        assert done.faults["replay"] == "OSError"
        assert done.merged == 2
        assert [step for step, succeeded in steps.items() if not succeeded] == list(done.faults)
        assert steps.keys() >= {"merge", "prepare", "check", "count", "forget", "drop", "tidy"}


@in_event_loop
async def test_no_byte_of_what_was_forgotten_is_left_in_the_file(sqlite_url, tmp_path):
    """P(false alarm) < 1e-30: 128 random bits that are there again."""
    data = secrets.token_bytes(50 * WIDTH)
    batch = NewBatch(secrets.token_bytes(16), {}, {_KEY: Records(WIDTH, data)})
    bits = [data[i + 2 : i + WIDTH] for i in range(0, len(data), WIDTH)]

    def found() -> int:
        files = b"".join(path.read_bytes() for path in tmp_path.glob("hubbub.db*"))
        return sum(one in files for one in bits)

    async with open_store(sqlite_url, create=True) as store:
        await _keep(store, batch)
        assert found() == 50
        upkeep = Maintenance(store, 14, None, _FOR_EVER, quarantine=QuarantineCare(3))
        await upkeep.run_once(_TODAY)
        await upkeep.run_once(_TODAY + dt.timedelta(days=4))
        assert found() == 0


def test_reports_are_not_kept_longer_in_quarantine_than_anywhere_else(metrics_file):
    def settings(**given: int) -> Settings:
        return load({"metrics": str(metrics_file), **given}, None).settings

    assert settings().quarantine_days is None
    assert settings(quarantine_days=MOST_QUARANTINE_DAYS).quarantine_days == 90
    for given in ({"report_days": 6}, {"retention_days": 6}):
        assert settings(quarantine_days=6, **given).quarantine_days == 6
        with pytest.raises(ConfigError, match="quarantine-days: must be at most"):
            settings(quarantine_days=7, **given)
    for wrong in (0, MOST_QUARANTINE_DAYS + 1):
        with pytest.raises(ConfigError, match="quarantine-days"):
            settings(quarantine_days=wrong)


@in_event_loop
async def test_reports_beside_and_from_quarantine_come_to_the_table_of_their_day(
    postgresql, postgresql_url
):
    """Which is dropped with all traces of how they came."""
    async with open_store(postgresql_url, create=True) as store:
        await store.declare([_SECOND])
        await store.quarantine.append([_batch(known=range(3))], _TODAY, _AMPLE)
        async for _ in store.replay_quarantine({"homepage": _SECOND}, _all):
            pass
        where = "SELECT DISTINCT tableoid::regclass FROM segments"
        assert postgresql.execute(where, url=postgresql_url) == "segments_20260314"
        assert await store.count(HOMEPAGE) == await store.count(_NEXT) == 3


@in_event_loop
async def test_frozen_collector_keeps_the_quarantine_for_some_seconds_only(postgresql_url):
    async with open_store(postgresql_url, create=True) as store:
        database = store.database
        async with database.write() as connection:
            await database.lock_quarantine(connection)
            limit = sa.text("SHOW idle_in_transaction_session_timeout")
            assert await connection.scalar(limit) == "10s"
