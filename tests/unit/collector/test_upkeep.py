"""The upkeep: what it does, when, and what happens if it can't; and its commands."""

import asyncio
import contextlib
import datetime as dt
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from factories import make_metric
from hubbub.collector import delete, maintain
from hubbub.storage import (
    STEPS,
    Maintenance,
    MetricVersion,
    NewBatch,
    Store,
    maintenance,
    open_store,
    running_maintenance,
)
from unit.collector.batches import HOMEPAGE, make_new_batch, stored_segments
from unit.collector.event_loop import in_event_loop

pytestmark = pytest.mark.long_on_postgresql

_TODAY = dt.date(2026, 3, 14)
_SEARCH = MetricVersion("search", 1)
_FOR_EVER = 1e9
_SECONDS = 60.0


def _days_ago(days: int) -> dt.date:
    return _TODAY - dt.timedelta(days=days)


@in_event_loop
async def test_ids_are_known_for_the_whole_window_and_then_forgotten(any_store_url):
    batches = [make_new_batch([age]) for age in range(18)]
    async with open_store(any_store_url, create=True) as store:
        for age, batch in enumerate(batches):
            await store.append([batch], _days_ago(age))
        done = await Maintenance(store, 14, None, _FOR_EVER).run_once(_TODAY)
        assert (done.forgotten, done.dropped, done.faults) == (3, 0, {})
        assert await store.append(batches, _TODAY) == [False] * 15 + [True] * 3


@in_event_loop
async def test_ageing_goes_on_when_the_day_changes(sqlite_url):
    async with open_store(sqlite_url, create=True) as store:
        upkeep = Maintenance(store, 1, 1, _FOR_EVER)
        await store.append([make_new_batch()], _TODAY)
        for later, expected in ((0, (0, 0)), (1, (0, 0)), (2, (1, 3)), (2, (0, 0))):
            done = await upkeep.run_once(_TODAY + dt.timedelta(days=later))
            assert (done.forgotten, done.dropped) == expected


@pytest.mark.parametrize("jump", [8, 3650, -9, -3650])
@in_event_loop
async def test_nothing_is_deleted_after_a_clock_jump_until_it_is_confirmed(any_store_url, jump):
    there, steps = _TODAY + dt.timedelta(days=jump), dict[str, bool]()
    async with open_store(any_store_url, create=True) as store:
        batch = make_new_batch()
        await store.append([batch], _TODAY)
        await Maintenance(store, 1, 1, _FOR_EVER).run_once(_TODAY)
        upkeep = Maintenance(store, 1, 1, _FOR_EVER, observe=steps.__setitem__)
        for day in (there, there + dt.timedelta(days=1)):  # it goes on, wrong as it is
            await store.append([make_new_batch()], day)
            await store.append([make_new_batch()], day)
            done = await upkeep.run_once(day)
            assert (done.forgotten, done.dropped, list(done.faults)) == (0, 0, ["check"])
            told = f"it is {day}, .* was on {_TODAY}, .*trust-clock"
            assert re.search(told, done.faults["check"])
            assert steps == {
                **dict.fromkeys(("slices", "merge", "prepare", "mix", "tidy"), True),
                "check": False,
            }
        assert await store.append([batch], _TODAY) == [False]
        assert await store.count(HOMEPAGE) == 15
        assert len(await stored_segments(store)) == 3
        later = there + dt.timedelta(days=2)
        done = await upkeep.run_once(later, trust_clock=True)
        assert done.dropped == (9 if jump > 0 else 6)
        await upkeep.run_once(later + dt.timedelta(days=1))


@in_event_loop
async def test_reports_stay_single_after_a_clock_jump_until_it_is_confirmed(
    any_store_url,
):
    async with open_store(any_store_url, create=True) as store:
        upkeep = Maintenance(store, 14, None, _FOR_EVER, report_days=7)
        await store.declare([make_metric()])
        await store.append([make_new_batch()], _TODAY)
        await upkeep.run_once(_TODAY)
        there = _TODAY + dt.timedelta(days=8)
        done = await upkeep.run_once(there)
        assert (done.counted, list(done.faults)) == (0, ["check"])
        assert len(await stored_segments(store)) == 1
        done = await upkeep.run_once(there, trust_clock=True)
        assert (done.counted, done.faults) == (3, {})
        assert await stored_segments(store) == []


@in_event_loop
async def test_clock_that_is_set_right_again_is_believed(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        upkeep = Maintenance(store, 14, 7, _FOR_EVER)
        await store.append([make_new_batch()], _days_ago(8))
        for day in (_days_ago(7), _days_ago(3000), _days_ago(6), _TODAY + dt.timedelta(days=3650)):
            assert (await upkeep.run_once(day)).dropped == 0
        assert (await upkeep.run_once(_TODAY)).dropped == 3


@in_event_loop
async def test_log_is_empty_after_a_run(sqlite_url, tmp_path):
    async with open_store(sqlite_url, create=True) as store:
        await store.append([make_new_batch()], _TODAY)
        log = tmp_path / "hubbub.db-wal"
        assert log.stat().st_size > 0
        await Maintenance(store, 14, None, _FOR_EVER).run_once(_TODAY)
        assert log.stat().st_size == 0


@in_event_loop
async def test_upkeep_runs_at_the_start_regularly_and_at_the_end(sqlite_url):
    async with open_store(sqlite_url, create=True) as store:
        await _append_two(store)
        async with running_maintenance(Maintenance(store, 14, None, _FOR_EVER)):
            await _until(store, lambda segments: segments == 1)
            await _append_two(store)
        assert len(await stored_segments(store)) == 1
        async with running_maintenance(Maintenance(store, 14, None, seconds=0.01)):
            for _ in range(3):
                await _append_two(store)
                await _until(store, lambda segments: segments == 1)


@in_event_loop
async def test_days_that_a_run_has_no_time_for_are_mixed_by_another(sqlite_url, monkeypatch):
    async with open_store(sqlite_url, create=True) as store:
        upkeep = Maintenance(store, 14, None, _FOR_EVER)
        await store.append([make_new_batch()], _days_ago(1))
        for seconds, mixed in ((-1, 0), (30, 3)):
            monkeypatch.setattr(maintenance, "_MIXING_SECONDS", seconds)
            await store.append([make_new_batch()], _TODAY)
            await store.append([make_new_batch()], _TODAY)
            done = await upkeep.run_once(_TODAY)
            assert done.merged in {2, 3}
            assert done.mixed == mixed


@in_event_loop
async def test_steps_of_the_upkeep_fail_alone(sqlite_url, tmp_path):
    async with open_store(sqlite_url, create=True) as store:
        upkeep = Maintenance(store, 14, 7, _FOR_EVER)
        await store.append([make_new_batch()], _days_ago(20))
        _alter(tmp_path, "ALTER TABLE segments RENAME TO elsewhere")
        done = await upkeep.run_once(_TODAY)
        assert done.forgotten == 1
        assert done.faults == dict.fromkeys(
            ["merge", "drop", "mix"], "store: no such table: segments"
        )
        _alter(tmp_path, "ALTER TABLE elsewhere RENAME TO segments")
        done = await upkeep.run_once(_TODAY)
        assert (done.forgotten, done.dropped, done.faults) == (0, 3, {})


@in_event_loop
async def test_nothing_is_deleted_while_the_day_of_the_last_upkeep_cannot_be_read(
    sqlite_url, tmp_path
):
    async with open_store(sqlite_url, create=True) as store:
        upkeep = Maintenance(store, 14, 7, _FOR_EVER)
        await store.append([make_new_batch()], _days_ago(20))
        _alter(tmp_path, "ALTER TABLE upkeep_day RENAME TO elsewhere")
        done = await upkeep.run_once(_TODAY)
        assert (done.forgotten, done.dropped) == (0, 0)
        assert done.faults == {"check": "store: no such table: upkeep_day"}
        _alter(tmp_path, "ALTER TABLE elsewhere RENAME TO upkeep_day")
        done = await upkeep.run_once(_TODAY)
        assert (done.forgotten, done.dropped, done.faults) == (1, 3, {})


@in_event_loop
async def test_upkeep_that_fails_is_logged_and_tried_again(sqlite_url, tmp_path, caplog):
    steps: list[tuple[str, bool]] = []
    told = {
        f"upkeep failed to {step} and will try again: store: no such table: segments"
        for step in ("merge", "mix")
    }
    async with open_store(sqlite_url, create=True) as store:
        await _append_two(store)
        _alter(tmp_path, "ALTER TABLE segments RENAME TO elsewhere")
        upkeep = Maintenance(
            store, 14, None, seconds=0.01, observe=lambda *step: steps.append(step)
        )
        with caplog.at_level(logging.ERROR, logger="hubbub.collector"):
            async with running_maintenance(upkeep):
                async with asyncio.timeout(_SECONDS):
                    while min(map(caplog.messages.count, told)) < 2:
                        await asyncio.sleep(0.01)
                # In a thread, because an upkeep of this loop may hold the lock that it waits for.
                await asyncio.to_thread(
                    _alter, tmp_path, "ALTER TABLE elsewhere RENAME TO segments"
                )
                await _until(store, lambda segments: segments == 1)
    assert set(caplog.messages) == told
    each = len(STEPS)
    assert steps[:each] == [(step, step not in {"merge", "mix"}) for step in STEPS]
    assert steps[-each:] == [(step, True) for step in STEPS]


def test_maintaining_by_hand_says_what_failed(sqlite_url, tmp_path):
    _store(sqlite_url, _TODAY, make_new_batch())
    _alter(tmp_path, "ALTER TABLE segments RENAME TO elsewhere")
    said = CliRunner().invoke(maintain, ["--store", sqlite_url])
    assert said.exit_code == 1
    assert "forgot the batch ids of 1 day" in said.output
    assert "Error: failed to merge: store: no such table: segments; failed to mix" in said.output


def test_maintaining_by_hand_merges_and_forgets(any_store_url):
    today = dt.datetime.now(dt.UTC).date()
    old = today - dt.timedelta(days=5)
    _store(any_store_url, old, make_new_batch(), make_new_batch())
    options = ["--store", any_store_url]
    said = CliRunner().invoke(maintain, [*options, "--deduplication-days", "5"])
    assert (
        said.output == "merged 2 segments, forgot the batch ids of 0 days, deleted 0 old reports\n"
    )
    said = CliRunner().invoke(
        maintain, [*options, "--deduplication-days", "4", "--retention-days", "4"]
    )
    assert said.output == (
        "merged 0 segments, forgot the batch ids of 1 day, deleted 6 old reports\n"
    )
    assert said.exit_code == 0


def test_maintaining_by_hand_after_a_long_time_asks_whether_the_clock_is_right(any_store_url):
    long_ago = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=100)
    _store(any_store_url, long_ago, make_new_batch())
    _run_upkeep(any_store_url, long_ago)
    options = ["--store", any_store_url, "--retention-days", "30"]
    said = CliRunner().invoke(maintain, options)
    assert said.exit_code == 1
    assert f"the last upkeep was on {long_ago}, so nothing was deleted" in said.output
    assert _count(any_store_url, HOMEPAGE) == 3
    said = CliRunner().invoke(maintain, [*options, "--trust-clock"])
    assert said.exit_code == 0
    assert _count(any_store_url, HOMEPAGE) == 0
    assert CliRunner().invoke(maintain, options).exit_code == 0


def test_metric_is_deleted_after_asking(any_store_url):
    _store(any_store_url, _TODAY, make_new_batch(), make_new_batch(range(4), key=_SEARCH))
    options = ["homepage", "--store", any_store_url]
    said = CliRunner().invoke(delete, options, input="n\n")
    assert said.exit_code == 1
    assert f"Delete 3 reports of homepage from {any_store_url} for good? [y/N]: n" in said.output
    assert _count(any_store_url, HOMEPAGE) == 3
    said = CliRunner().invoke(delete, options, input="y\n")
    assert said.exit_code == 0
    assert said.output.endswith("deleted 3 reports of homepage\n")
    assert _count(any_store_url, HOMEPAGE) == 0
    assert _count(any_store_url, _SEARCH) == 4


def test_one_version_is_deleted_without_asking(any_store_url):
    other = MetricVersion("homepage", 2)
    _store(any_store_url, _TODAY, make_new_batch(), make_new_batch(range(4), key=other))
    options = ["homepage", "--version", "2", "--yes", "--store", any_store_url]
    assert CliRunner().invoke(delete, options).output == "deleted 4 reports of homepage version 2\n"
    assert CliRunner().invoke(delete, options).output == "deleted 0 reports of homepage version 2\n"
    assert _count(any_store_url, HOMEPAGE) == 3


def test_mistyped_metric_is_refused_instead_of_deleting_nothing(any_store_url):
    _store(any_store_url, _TODAY, make_new_batch())
    for mistyped, expected in (
        (["hompage"], "metric 'hompage': must be one that was collected: homepage, search"),
        (["search", "--version", "2"], "version 2 of search: must be one that was collected: 1"),
    ):
        for answered in ([], ["--yes"]):  # nobody is asked about it
            said = CliRunner().invoke(delete, [*mistyped, *answered, "--store", any_store_url])
            assert (said.exit_code, said.output) == (1, f"Error: {expected}\n")


@pytest.mark.parametrize("arguments", [["maintain"], ["delete", "homepage", "--yes"]])
def test_mistyped_address_makes_no_store(tmp_path, arguments):
    command = maintain if arguments[0] == "maintain" else delete
    path = tmp_path / "typo.db"
    said = CliRunner().invoke(command, [*arguments[1:], "--store", f"sqlite:///{path}"])
    assert said.exit_code == 1
    assert f"Error: store 'sqlite:///{path}': no such file" in said.output
    assert not path.exists()


async def _append_two(store: Store) -> None:
    for _ in range(2):
        await store.append([make_new_batch()], dt.datetime.now(dt.UTC).date())


async def _until(store: Store, reached: Callable[[int], bool]) -> None:
    async with asyncio.timeout(_SECONDS):
        while not reached(len(await stored_segments(store))):
            await asyncio.sleep(0.01)


def _alter(folder: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "hubbub.db", timeout=_SECONDS)) as connection:
        connection.execute(statement)


def _store(url: str, day: dt.date, *batches: NewBatch) -> None:
    async def run() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([make_metric(), make_metric("search")])
            await store.declare([make_metric(version=2)])
            for batch in batches:
                await store.append([batch], day)

    asyncio.run(run())


def _run_upkeep(url: str, day: dt.date) -> None:
    async def run() -> None:
        async with open_store(url, create=True) as store:
            await Maintenance(store, 14, None, _FOR_EVER).run_once(day)

    asyncio.run(run())


def _count(url: str, key: MetricVersion) -> int:
    async def run() -> int:
        async with open_store(url, create=False) as store:
            return await store.count(key)

    return asyncio.run(run())
