"""Quarantine as clients, operators and intruders meet it: kept, shown, replayed once or deleted."""

import asyncio
import contextlib
import datetime as dt
import itertools
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from factories import make_metric, make_params, make_report, registry_toml
from hubbub.client import Batch, Metric, Report
from hubbub.client.transport import HttpSender, Outcome
from hubbub.collector.access.auth import generate_secret
from hubbub.collector.cli.group import main
from hubbub.protocol.records import Records
from hubbub.simulations.experiments.processes import Collector
from hubbub.storage import NewBatch, QuarantineDay, QuarantineKey, open_store
from programs import forked_collector
from service.loads import stored_in
from service.posting import (
    COMPACT,
    FORMS,
    JSON,
    Answer,
    make_batch,
    post,
    records_of,
    send,
    wait_until,
    wait_until_published,
)
from unit.javascript.node import run_program

_OLD = make_metric()
_NEW = make_metric(version=2)
_OTHER = make_metric("other", params=make_params(k=8, m=4))
_NARROW = make_metric(params=make_params(k=8))
_TODAY = dt.datetime.now(dt.UTC).date()
_KILLS = 2
_TOKEN, _HASH = generate_secret("admin")
_SETTINGS = {"quarantine_days": 7, "upkeep_seconds": 0.2, "admin_port": 0, "publish_seconds": 0.2}
_CONFIG = f"""
[admin_tokens.all]
sha256 = "{_HASH}"
scopes = ["read", "export", "delete"]
"""
_REPLAYING = """
import asyncio, sys
import numpy as np
from hubbub.protocol.registry import Registry
from hubbub.storage import open_store, quarantine

quarantine._REPORTS_AT_ONCE = 20

async def replay():
    async with open_store(sys.argv[1], create=True) as store:
        everything = lambda _key, records: np.ones(records.reports, dtype=np.bool_)
        async for _ in store.replay_quarantine(Registry.load(sys.argv[2]), everything):
            pass

asyncio.run(replay())
"""


class Served:
    """A collector with a quarantine, and its admin listener."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.url = collector.url
        self._admin = collector.read_admin_url()
        wait_until_published(self._admin, _TOKEN)

    def ask(self, path: str, method: str = "GET") -> Answer:
        return send(self._admin, method, path, headers={"Authorization": f"Bearer {_TOKEN}"})

    def quarantine(self) -> dict[tuple[str, int, int], int]:
        """Return the reports of each metric, version and width, as of now."""
        time.sleep(1.01)  # what is shown may be as old as the last step
        kept = self.ask("/status.json").json["quarantine"]
        return {(it["metric"], it["version"], it["bits_bytes"]): it["reports"] for it in kept}

    def counted(self, family: str) -> float:
        families = text_string_to_metric_families(self.ask("/metrics").body.decode())
        return sum(s.value for found in families for s in found.samples if s.name == family)

    def reload(self, metrics: Path, *registry: Metric) -> None:
        metrics.write_text(registry_toml(*registry), encoding="utf-8")
        self.collector.process.send_signal(signal.SIGHUP)


@contextmanager
def serving(metrics: Path, store: str, **settings: int) -> Iterator[Served]:
    config = metrics.with_name("collector.toml")
    lines = [f"{name} = {value}\n" for name, value in {**_SETTINGS, **settings}.items()]
    config.write_text("".join(lines) + _CONFIG, encoding="utf-8")
    with forked_collector(metrics, store, ["--config", str(config)]) as collector:
        yield Served(collector)


def _mixed(*metrics: Metric, reports: int = 3) -> Batch:
    """Return a batch with some reports of each metric."""
    return Batch(tuple(r for metric in metrics for r in make_batch(reports, metric).reports))


def _fill(url: str, *kept: tuple[QuarantineKey, dt.date, bytes]) -> None:
    """Put records into quarantine."""

    async def run() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([_OLD])
            for key, day, data in kept:
                batch = NewBatch(secrets.token_bytes(16), {}, {key: Records(key.width, data)})
                assert await store.quarantine.append([batch], day, 2**24) == [True]

    asyncio.run(run())


def _kept(url: str) -> list[QuarantineDay]:
    async def run() -> list[QuarantineDay]:
        async with open_store(url, create=False) as store:
            return await store.quarantine.days()

    return asyncio.run(run())


def _short(line: str) -> tuple[str, str]:
    """Return what is left, and the first reason why."""
    what, _, why = line.partition(" bytes of bits: ")
    return what, why.partition(",")[0]


def _program(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_reports_that_the_registry_does_not_know_are_counted_once_it_is_mended(
    metrics_file, sqlite_url, postgresql_url, workers
):
    store = sqlite_url if workers == 1 else postgresql_url
    # The compact form has one width for each version.
    batches = {JSON: _mixed(_OLD, _NEW, _OTHER, _NARROW), COMPACT: _mixed(_OLD, _NEW, _OTHER)}
    with serving(metrics_file, store, workers=workers) as served:

        def send_all() -> list[tuple[int, Any]]:
            answers = [post(served.url, FORMS[form](it), form) for form, it in batches.items()]
            return [(answer.status, answer.json) for answer in answers]

        assert send_all() == [
            (201, {"accepted": 12, "quarantined": 9}),
            (201, {"accepted": 9, "quarantined": 6}),
        ]
        repeats = [(200, {"accepted": each, "duplicate": True}) for each in (12, 9)]
        assert send_all() == repeats
        kept = {("homepage", 1, 1): 3, ("homepage", 2, 16): 6, ("other", 1, 1): 6}
        assert served.quarantine() == kept
        page = served.ask("/").body.decode()
        for words in ("other", "never declared", "16 bytes of bits", "In quarantine, because"):
            assert words in page
        assert served.counted("hubbub_quarantined_reports_total") == sum(kept.values())
        assert served.counted("hubbub_quarantine_reports") == sum(kept.values())
        assert len(stored_in(store)) == 6
        served.reload(metrics_file, _NEW, _OTHER)
        wait_until(lambda: [k.key.width for k in _kept(store)] == [3])
        wait_until(lambda: served.counted("hubbub_replayed_reports_total") == 12)
        assert send_all() == repeats
        assert served.quarantine() == {("homepage", 1, 1): 3}
    for metric in (_NEW, _OTHER):
        expected = 2 * records_of(make_batch(3, metric))
        assert sorted(stored_in(store, metric)) == sorted(expected)
    assert len(stored_in(store)) == 6


def test_clients_of_both_languages_deliver_what_is_quarantined_and_drop_nothing(
    metrics_file, sqlite_url
):
    definition = {"k": 128, "h": 2, "m": 64, "f": 0.5, "p": 0.25, "q": 0.75}
    words = {"description": "What the tests ask", "owner": "privacy@example.com"}
    entry = {"version": 2, "type": "string", "expires": "2099-12-31", **words, **definition}
    registry = {"application": "com.example.browser", "metrics": {"homepage": entry}}
    with serving(metrics_file, sqlite_url) as served:
        sender = HttpSender(served.url)
        assert sender.send(make_batch(3, _NEW)).outcome is Outcome.DELIVERED
        job = {"registry": registry, "endpoint": served.url, "metric": "homepage"}
        sums = run_program("fleet.js", {**job, "clients": {"example.com": 5}})
        assert sums == {"recorded": 5, "delivered": 5, "dropped": 0}
        assert served.quarantine() == {("homepage", 2, 16): 8}
        served.reload(metrics_file, _NEW)
        wait_until(lambda: len(stored_in(sqlite_url, _NEW)) == 8)


def test_what_no_registry_can_mend_is_refused_and_named_alone(metrics_file, sqlite_url):
    """So its sender drops nothing else, and sends the rest again under the same id."""
    metrics_file.write_text(registry_toml(_OLD, _OTHER), encoding="utf-8")
    with serving(metrics_file, sqlite_url):
        pass  # both were declared
    metrics_file.write_text(registry_toml(_OLD), encoding="utf-8")
    good = make_report()
    mendable = make_report(_NEW)
    wrong = [
        make_report(_OTHER),  # was given up
        Report("homepage", 1, 64, bytes(16)),
        Report("homepage", 2, 65_535, bytes(16)),
        Report("homepage", 2**31, 0, bytes(16)),
        Report("homepage", 0, 0, bytes(16)),
        Report("homepage", 2, 0, bytes(513)),
        Report("homepage", 2, 0, b""),
        Report("<script>alert(1)</script>", 1, 0, bytes(16)),
        Report("n" * 65, 1, 0, bytes(16)),
        Report("", 1, 0, bytes(16)),
    ]
    with serving(metrics_file, sqlite_url) as served:
        for fault in wrong:
            batch = Batch((good, mendable, fault, mendable, fault))
            answer = post(served.url, batch)
            assert answer.status == 422
            assert [it["report"] for it in answer.json["errors"]] == [2, 4]
            rest = Batch((good, mendable, mendable), batch.batch_id)
            assert post(served.url, rest).json == {"accepted": 3, "quarantined": 2}
        assert served.quarantine() == {("homepage", 2, 16): 2 * len(wrong)}
        assert len(stored_in(sqlite_url)) == len(wrong)


def test_without_room_batches_are_refused_as_without_a_quarantine(metrics_file, sqlite_url):
    with serving(metrics_file, sqlite_url, quarantine_bytes=2_000, upkeep_seconds=3600) as served:
        first, second = make_batch(30, _NEW), _mixed(_OLD, _NEW, reports=90)
        assert post(served.url, first).status == 201
        for _ in range(2):
            answer = post(served.url, second)
            assert answer.status == 422
            assert [it["report"] for it in answer.json["errors"]] == list(range(90, 180))
            assert "version = 2: must be 1" in answer.json["detail"]
        rest = Batch(second.reports[:90], second.batch_id)
        assert post(served.url, rest).json == {"accepted": 90}
        # What was acknowledged stays so, also in a larger company.
        again = Batch((*first.reports, *second.reports[90:]), first.batch_id)
        assert post(served.url, again).json == {"accepted": 120, "duplicate": True}
        # A stranger's names can be deleted, and make room.
        assert served.ask("/v1/metrics/homepage?version=3", "DELETE").status == 404
        assert served.ask("/v1/metrics/homepage?version=2", "DELETE").json == {"deleted": 30}
        assert post(served.url, make_batch(90, _NEW)).status == 201
    assert len(stored_in(sqlite_url)) == 90


@pytest.mark.long
def test_what_another_collector_knows_is_put_off_and_not_quarantined(
    metrics_file, postgresql_url, tmp_path
):
    newer = tmp_path / "newer.toml"
    newer.write_text(registry_toml(_NEW), encoding="utf-8")
    with (
        serving(metrics_file, postgresql_url) as old,
        forked_collector(newer, postgresql_url) as new,
    ):
        batch = _mixed(_OLD, _NEW)
        assert post(old.url, batch).status == 503
        assert post(new.url, batch).status == 201
        assert post(old.url, batch).status == 503
        assert post(old.url, _mixed(_OLD, _OTHER)).json == {"accepted": 6, "quarantined": 3}
    assert [it.key.metric for it in _kept(postgresql_url)] == ["other"]


@pytest.mark.long_on_postgresql
def test_replay_that_is_killed_loses_and_doubles_nothing(any_store_url, metrics_file):
    chance = random.Random(4)  # noqa: S311
    key = QuarantineKey("homepage", 2, 18)
    wanted = [make_batch(20, _NEW) for _ in range(60)]
    bits = [b"".join(records_of(batch)) for batch in wanted]
    _fill(any_store_url, *[(key, _TODAY, data) for data in bits])

    async def declare():
        async with open_store(any_store_url, create=True) as store:
            await store.declare([_NEW])

    asyncio.run(declare())
    expected = sorted(record for batch in wanted for record in records_of(batch))
    metrics_file.write_text(registry_toml(_NEW), encoding="utf-8")
    command = [sys.executable, "-c", _REPLAYING, any_store_url, str(metrics_file)]
    for _ in range(_KILLS):
        before = len(stored_in(any_store_url, _NEW))
        with subprocess.Popen(command) as process:
            wait_until(lambda before=before: len(stored_in(any_store_url, _NEW)) > before)  # type: ignore[misc]
            time.sleep(0.02 * chance.random())
            process.kill()
        moved = stored_in(any_store_url, _NEW)
        assert len(moved) + sum(it.reports for it in _kept(any_store_url)) == len(expected)
        assert not Counter(moved) - Counter(expected)
    said = _program("replay", "--metrics", metrics_file, "--store", any_store_url)
    assert f"replayed {len(expected) - len(moved):,} reports" in said
    assert sorted(stored_in(any_store_url, _NEW)) == expected
    assert _kept(any_store_url) == []


def test_commands_say_what_is_in_quarantine_and_what_becomes_of_it(
    metrics_file, any_store_url, tmp_path
):
    store = ["--store", any_store_url]
    # No honest report has all bits set, or none.
    plausible = [number.to_bytes(2, "little") + 8 * b"\x5a\xa5" for number in range(66)]
    records = b"".join([*plausible, 5 * (bytes(2) + 16 * b"\xff")])
    _fill(
        any_store_url,
        (QuarantineKey("homepage", 2, 18), _TODAY, records),
        (QuarantineKey("homepage", 1, 10), _TODAY, bytes(70)),
        (QuarantineKey("stranger", 1, 10), _TODAY, bytes(90)),
        (QuarantineKey("ancient", 1, 10), _TODAY - dt.timedelta(days=9), bytes(20)),
    )
    said = _program("export", *store, "--to", tmp_path / "out")
    assert said.endswith("/out; left out in quarantine: 89\n")
    metrics_file.write_text(registry_toml(_NEW), encoding="utf-8")
    config = tmp_path / "collector.toml"
    config.write_text('improbable_reports = "refuse"\n', encoding="utf-8")
    replay = ["replay", *store, "--metrics", metrics_file, "--config", config]
    for replayed in (64, 0):
        lines = _program(*replay).splitlines()
        moved = ["replayed 64 reports of homepage version 2"] if replayed else []
        assert [*lines[: len(moved)], *map(_short, lines[len(moved) : -1])] == [
            *moved,
            ("left 2 reports of ancient version 1 with 8", "the metric was never declared"),
            ("left 7 reports of homepage version 1 with 8", "the version has 16 bytes of bits"),
            ("left 7 reports of homepage version 2 with 16", "in a cohort that doesn't exist"),
            ("left 9 reports of stranger version 1 with 8", "the metric was never declared"),
        ]
        assert lines[-1].startswith(f"replayed {replayed} reports in ")
        assert lines[-1].endswith("; left in quarantine: 25")
    assert sorted(stored_in(any_store_url, _NEW)) == sorted(plausible[:64])
    assert "deleted 9 reports of stranger" in _program("delete", "stranger", "--yes", *store)
    said = _program("delete", "homepage", "--version", 2, "--yes", *store)
    assert "deleted 71 reports of homepage version 2" in said
    assert "deleted 2 reports in quarantine" in _program("maintain", *store, "--quarantine-days", 8)
    assert [it.key for it in _kept(any_store_url)] == [QuarantineKey("homepage", 1, 10)]


def test_no_byte_tells_after_upkeep_which_quarantined_reports_came_together(metrics_file, database):
    """As with reports that are known; P(false alarm) < 1e-12."""
    batches = [
        Batch(tuple(make_report(_NEW, cohort=i, bits=secrets.randbits(128)) for _ in range(3)))
        for i in range(24)
    ]
    with serving(metrics_file, f"sqlite:///{database}", upkeep_seconds=3600) as served:
        for batch in batches:
            assert post(served.url, batch).json == {"accepted": 3, "quarantined": 3}
        served.collector.stop()
    files = list(database.parent.glob(f"{database.name}*"))
    assert files == [database]
    content = database.read_bytes()
    for batch in batches:
        assert content.count(bytes.fromhex(batch.batch_id)) == 1
        assert [content.count(report.bits) for report in batch.reports] == [1, 1, 1]
    with contextlib.closing(sqlite3.connect(database)) as connection:
        ((records,),) = connection.execute("SELECT records FROM quarantine").fetchall()
    cohorts = [records[i] for i in range(0, len(records), 18)]
    assert sorted(cohorts) == sorted(3 * [*range(24)])
    assert cohorts not in (sorted(cohorts), sorted(cohorts)[::-1])
    # Of 71 pairs of neighbours 2 come from one batch, on the average; in the order of coming 48 do.
    assert sum(one == other for one, other in itertools.pairwise(cohorts)) < 24
