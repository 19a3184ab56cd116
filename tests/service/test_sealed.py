"""Sealed reports from real clients through a collector that can't read them to the decoder."""

import asyncio
import contextlib
import datetime as dt
import signal
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import programs
from factories import APPLICATION, make_metric, make_params, make_registry, registry_toml
from http_servers import Answer, ScriptedServer, scripted_server
from hubbub.client import Batch, Registry, Report
from hubbub.client.ledger import NOT_CHOSEN, REPORTED_IN_PERIOD
from hubbub.client.sealing import Sealer
from hubbub.protocol.hpke import Opener as RecordOpener
from hubbub.protocol.hpke import PrivateKey
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.records import Records
from hubbub.protocol.responses import Subset
from hubbub.protocol.sealed import MEDIA_TYPE, OVERHEAD, SealedReport, read_sealed
from hubbub.simulations.simulated_clients.clients import SimulatedClients
from hubbub.storage import MetricVersion, NewBatch, open_store, sealed_key
from programs import forked_collector
from service.drivers import DRIVERS, Opener
from service.posting import make_batch, post, stored_records, wait_until

SECONDS = 120
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
REGISTRY = make_registry(METRIC)
VALUES = ("example.com", "example.org", "example.net")
IN_FORCE = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=2)
ENDED = dt.date(2026, 3, 14)
WIDTH = 6


@pytest.fixture(params=list(DRIVERS.values()), ids=list(DRIVERS))
def opened(request) -> Opener:
    """Open a client, driven by its threads or by an event loop."""
    opener: Opener = request.param
    return opener


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program without a terminal."""
    return programs.run(name.replace("-", "."), *map(str, arguments), timeout=SECONDS)


def said(name: str, *arguments: object) -> str:
    """Return what a program says when all goes well."""
    done = run(name, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Parties:
    """The files of who decodes, and of who collects: a configuration that takes sealed reports."""

    folder: Path
    key: PrivateKey

    @property
    def private(self) -> Path:
        return self.folder / "private.key"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.toml"

    @property
    def opened(self) -> str:
        return f"sqlite:///{self.folder / 'opened.db'}"

    @property
    def config(self) -> Path:
        return self.folder / "collector.toml"

    def open(self, source: object) -> str:
        """Return what `hubbub-collector open` says."""
        options = ("--key", self.private, "--metrics", self.metrics, "--store", self.opened)
        return said("hubbub-collector", "open", "--from", source, *options)


@pytest.fixture
def parties(tmp_path) -> Parties:
    key = PrivateKey.generate(IN_FORCE)
    made = Parties(tmp_path, key)
    made.private.write_text(f"# a comment\n{key}\n", encoding="utf-8")
    made.metrics.write_text(registry_toml(METRIC), encoding="utf-8")
    made.config.write_text(f'[sealing_keys.spring]\npublic = "{key.public}"\n', encoding="utf-8")
    return made


def simulated_reports(count: int) -> list[Report]:
    rng = np.random.default_rng(1)
    fleet = SimulatedClients(VALUES, METRIC.params, rng)
    cohorts, bits = fleet.report(rng.choice(3, count, p=(0.5, 0.3, 0.2)))
    return [
        Report("homepage", 1, int(cohort), row.tobytes())
        for cohort, row in zip(cohorts, bits, strict=True)
    ]


def plain(report: Report) -> bytes:
    return report.cohort.to_bytes(2, "little") + report.bits


async def store_plainly(url: str, reports: list[Report]) -> None:
    """Fill a store as a collector that reads reports would."""
    today = dt.datetime.now(dt.UTC).date()
    records = {MetricVersion("homepage", 1): Records(WIDTH, b"".join(map(plain, reports)))}
    async with open_store(url, create=True) as store:
        await store.declare([METRIC])
        await store.append([NewBatch(bytes(16), records)], today)


def decoded(parties: Parties, store: str) -> str:
    names = parties.folder / "names.txt"
    names.write_text("\n".join([*VALUES, *(f"absent {i}" for i in range(10))]), encoding="utf-8")
    given = ("--metrics", parties.metrics, "--candidates", names, "--store", store)
    return said("hubbub-decoder", "decode", "homepage", *given, "--output", "-")


def test_collector_holds_nothing_readable_and_the_decoder_finds_what_was_reported(
    parties, database
):
    """P(false alarm) < 1e-6: 2,000 reports of 6 bytes in a megabyte of random ones, 2e9 / 2^48."""
    reports, sealer = simulated_reports(2000), Sealer(str(parties.key.public), REGISTRY)
    collectors = parties.folder / "collectors.toml"  # who collects needn't know what is asked
    collectors.write_text(registry_toml(make_metric("something")), encoding="utf-8")
    with forked_collector(collectors, database, ["--config", str(parties.config)]) as collector:
        for start in range(0, len(reports), 100):
            batch = Batch(tuple(reports[start : start + 100]))
            sealed = sealer.seal(batch, bytes(32))
            assert post(collector.url, sealed, MEDIA_TYPE).status == 201
            assert post(collector.url, sealed, MEDIA_TYPE).json == {
                "accepted": 100,
                "duplicate": True,
            }
        kept = b"".join(path.read_bytes() for path in database.parent.glob("hubbub.db*"))
    kept += b"".join(path.read_bytes() for path in database.parent.glob("hubbub.db*"))
    assert parties.key.public.key_id in kept  # so the search finds what is there
    assert b"homepage" not in kept
    places = {kept[i : i + WIDTH] for i in range(len(kept) - WIDTH + 1)}
    # Of zeros and few other bytes there are some in pages, too.
    telling = {record for record in map(plain, reports) if len(set(record) - {0}) > 3}
    assert len(telling) > 1000
    assert len(places & telling) < 5

    out = parties.folder / "out"
    said("hubbub-collector", "export", "--store", f"sqlite:///{database}", "--to", out)
    assert parties.open(out).splitlines() == [
        "homepage version 1: 2,000 reports",
        f"opened 2,000 reports into {parties.opened}",
    ]
    again = parties.open(f"sqlite:///{database}")
    assert again == f"opened 0 reports into {parties.opened}; opened before: 2,000\n"
    asyncio.run(store_plainly(read := f"sqlite:///{parties.folder / 'read.db'}", reports))
    result = decoded(parties, parties.opened)
    assert result == decoded(parties, read)
    assert [line.split(",")[0] for line in result.splitlines()[1:4]] == list(VALUES)


def test_clients_reports_pass_a_real_collector(parties, database, opened):
    key = str(parties.key.public)
    with (
        forked_collector(parties.metrics, database, ["--config", str(parties.config)]) as running,
        opened(REGISTRY, running.url, parties.folder / "state", sealed_to=key) as telemetry,
    ):
        for value in VALUES:
            telemetry.record("homepage", value)
        assert telemetry.flush(30)
        assert telemetry.status().delivered == 3
    assert "homepage version 1: 3 reports" in parties.open(f"sqlite:///{database}")
    assert stored_records(database, METRIC) == []
    assert len(stored_records(parties.folder / "opened.db", METRIC)) == 3


def test_one_sealed_report_a_period_of_one_metric_of_a_group(parties, database, opened):
    metrics = [
        make_metric(
            name, metric_type=EnumType(("red", "green", "blue")), mode="once", period_days=3650,
            response=Subset(3, 2, 0.9),
        )
        for name in ("crash", "mood")
    ]  # fmt: skip
    group = '[groups.health]\nmetrics = ["crash", "mood"]\n'
    parties.metrics.write_text(registry_toml(*metrics) + group, encoding="utf-8")
    registry, key = Registry.load(parties.metrics), str(parties.key.public)
    state = parties.folder / "state"
    with forked_collector(parties.metrics, database, ["--config", str(parties.config)]) as running:
        dropped = Counter[str]()
        for _ in range(2):  # starts of the app
            with opened(registry, running.url, state, sealed_to=key, development=True) as telemetry:
                for metric in metrics * 2:
                    telemetry.record(metric.name, "red")
                assert telemetry.flush(30)
                dropped.update(telemetry.status().dropped)
    assert dropped == {NOT_CHOSEN: 4, REPORTED_IN_PERIOD: 3}
    parties.open(f"sqlite:///{database}")
    records = [stored_records(parties.folder / "opened.db", metric) for metric in metrics]
    (record,) = records[0] + records[1]
    assert int.from_bytes(record[2:], "little").bit_count() == 2


def opened_bodies(server: ScriptedServer, key: PrivateKey) -> list[list[SealedReport]]:
    """Return what is sealed in each request; a request that isn't sealed fails the test."""
    opener, found = RecordOpener([key], APPLICATION), []
    for request in server.received:
        assert request.headers["Content-Type"] == MEDIA_TYPE
        batch = read_sealed(request.body, [key.public.key_id])
        width = batch.payload + OVERHEAD
        starts = range(0, len(batch.records), width)
        found.append(sorted(opener.open(batch.records[i : i + width]) for i in starts))
    return found


def test_each_attempt_is_sealed_anew_with_the_same_numbers_in_every_process(parties, opened):
    """The collector takes it and says nothing; the next process tries again, under another id."""
    state, key = parties.folder / "state", str(parties.key.public)
    with scripted_server(lambda n: Answer(0) if n == 0 else Answer()) as server:
        with opened(REGISTRY, server.url, state, sealed_to=key) as telemetry:
            for value in VALUES:
                telemetry.record("homepage", value)
            telemetry.flush(0.5)
        with opened(REGISTRY, server.url, state, sealed_to=[key]) as telemetry:
            assert telemetry.flush(60)
    bodies = [request.body for request in server.received]
    ids = [body[1:17] for body in bodies]
    assert len(set(ids)) == len(ids) >= 2
    first, *others = opened_bodies(server, parties.key)
    assert first in others
    numbers = {report.number for reports in (first, *others) for report in reports}
    assert len(numbers) == 3


@pytest.mark.parametrize("status", [400, 403, 406, 415, 422])
def test_nothing_is_sent_unsealed_whatever_is_answered(parties, opened, status):
    with (
        scripted_server(lambda _: Answer(status)) as server,
        opened(
            REGISTRY, server.url, parties.folder / "state", sealed_to=str(parties.key.public)
        ) as telemetry,
    ):
        telemetry.record("homepage", "x")
        assert telemetry.flush(30)
        assert sum(telemetry.status().dropped.values()) == 1
    assert len(opened_bodies(server, parties.key)) == 1


def test_sealed_reports_are_refused_together_since_none_can_be_named(parties, opened):
    """The client's first report isn't the first record of a body."""
    named = Answer(422, b'{"errors": [{"report": 0}]}')
    with (
        scripted_server(lambda _: named) as server,
        opened(
            REGISTRY,
            server.url,
            parties.folder / "state",
            sealed_to=str(parties.key.public),
            batch_size=2,  # both reports are in one batch, as nothing is sent before it is full
        ) as telemetry,
    ):
        for value in ("x", "y"):
            telemetry.record("homepage", value)
        wait_until(lambda: not telemetry.status().waiting)
        assert telemetry.flush(30)
        assert telemetry.status().dropped == {"refused by the collector": 2}
        assert len(server.received) == 1


def test_reports_wait_while_no_key_is_in_force(parties, opened):
    state, ended = parties.folder / "state", str(PrivateKey.generate(ENDED).public)
    with scripted_server() as server:
        with opened(REGISTRY, server.url, state, sealed_to=ended) as telemetry:
            telemetry.record("homepage", "x")
            assert not telemetry.flush(0.5)
            error = telemetry.status().last_error
            assert error
            assert (error.kind, error.status) == ("sealing", None)
            assert error.detail == f"no key to seal to: the last one ended on {ENDED}"
            assert telemetry.status().waiting == 1
        assert server.received == []
        keys = [ended, str(parties.key.public)]  # as an update of the app brings them
        with opened(REGISTRY, server.url, state, sealed_to=keys) as telemetry:
            assert telemetry.flush(60)
    assert len(opened_bodies(server, parties.key)) == 1


SMALL_CHUNKS = """
from hubbub.storage import sealed
sealed._CHUNK = 200
from hubbub.collector.cli import main
main()
"""


@pytest.mark.long
def test_killed_opener_goes_on_where_it_was(parties):
    """Killed thrice while it stores, in whatever it is doing then; nothing is lost or doubled."""
    reports, key = simulated_reports(6000), parties.key.public
    body = Sealer(str(key), REGISTRY).seal(Batch(tuple(reports)), bytes(32))
    batch = read_sealed(body, [key.key_id])
    source, target = parties.folder / "sealed.db", parties.folder / "opened.db"

    async def collect():
        async with open_store(f"sqlite:///{source}", create=True) as store:
            await store.declare_sealed()
            records = {sealed_key(64): Records(64 + OVERHEAD, batch.records)}
            await store.append([NewBatch(batch.batch_id, records)], IN_FORCE)

    asyncio.run(collect())

    def count() -> int:
        with contextlib.suppress(sqlite3.Error):
            address = f"file:{target}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
                query = "SELECT sum(reports) FROM segments"
                return int(connection.execute(query).fetchone()[0] or 0)
        return 0

    options = ["--key", parties.private, "--metrics", parties.metrics, "--store", parties.opened]
    arguments = ["open", "--from", f"sqlite:///{source}", *options]
    for more in (1, 900, 1800):
        command = [sys.executable, "-c", SMALL_CHUNKS, *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            wait_until(lambda more=more: count() >= more)  # type: ignore[misc]
            process.kill()
        assert more <= count() < 6000
    known = count()
    assert parties.open(f"sqlite:///{source}").splitlines() == [
        f"homepage version 1: {6000 - known:,} reports",
        f"opened {6000 - known:,} reports into {parties.opened}; opened before: {known:,}",
    ]
    assert Counter(stored_records(target, METRIC)) == Counter(map(plain, reports))


def test_keys_are_added_and_removed_by_a_hangup(parties, database):
    sealer = Sealer(str(parties.key.public), REGISTRY)

    def status() -> int:
        body = sealer.seal(make_batch(2, METRIC), bytes(32))
        return post(collector.url, body, MEDIA_TYPE).status

    other = PrivateKey.generate(IN_FORCE).public
    text = parties.config.read_text(encoding="utf-8")
    parties.config.write_text("", encoding="utf-8")
    options = ["--config", str(parties.config)]
    with forked_collector(parties.metrics, database, options) as collector:
        assert status() == 415
        for config, expected in (
            (text, 201),
            (text.replace(str(parties.key.public), str(other)), 422),
        ):
            parties.config.write_text(config, encoding="utf-8")
            collector.process.send_signal(signal.SIGHUP)
            wait_until(lambda expected=expected: status() == expected)  # type: ignore[misc]
        assert post(collector.url, make_batch(2, METRIC)).status == 201


def test_keygen_makes_a_file_for_its_owner_and_tells_the_public_key(tmp_path):
    file = tmp_path / "spring.key"
    done = run("hubbub-collector", "keygen", file, "--last-day", IN_FORCE, "--name", "spring")
    assert done.returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    comment, text = file.read_text(encoding="utf-8").splitlines()
    key = PrivateKey.parse(text)
    assert key.public.last_day == IN_FORCE
    assert done.stdout == f"{key.public}\n"
    assert done.stderr == f'[sealing_keys.spring]\npublic = "{key.public}"\n'
    assert f"Delete after {key.public.opens_until}" in comment
    assert text not in done.stdout + done.stderr
    again = run("hubbub-collector", "keygen", file)
    assert again.returncode == 1
    assert "File exists" in again.stderr
    assert PrivateKey.parse(file.read_text(encoding="utf-8").splitlines()[1]) == key


def test_open_refuses_what_cannot_work_without_telling_a_key(parties):
    ended = parties.folder / "ended.key"
    ended.write_text(str(PrivateKey.generate(ENDED)), encoding="utf-8")
    public = parties.folder / "public.key"
    public.write_text(str(parties.key.public), encoding="utf-8")
    broken = parties.folder / "broken.key"
    broken.write_text(f"{parties.key}X", encoding="utf-8")
    empty = f"sqlite:///{parties.folder / 'empty.db'}"
    asyncio.run(store_plainly(empty, simulated_reports(1)))
    for file, source, words in (
        (ended, empty, "delete the private key"),
        (public, empty, "must be hub_unseal_"),
        (broken, empty, "must be hub_unseal_"),
        (parties.private, parties.opened, "must be another store than --store"),
        (parties.private, parties.folder / "nowhere", "no such directory"),
    ):
        options = ("--metrics", parties.metrics, "--store", parties.opened)
        done = run("hubbub-collector", "open", "--key", file, "--from", source, *options)
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert str(parties.key)[19:] not in done.stderr


def test_private_key_in_the_collectors_configuration_is_refused_and_not_shown(parties):
    text = f'[sealing_keys.spring]\npublic = "{parties.key}"\n'
    parties.config.write_text(text, encoding="utf-8")
    options = ("--config", parties.config, "--metrics", parties.metrics)
    done = run("hubbub-collector", "serve", *options, "--print-config")
    assert done.returncode == 2
    assert "sealing_keys.spring.public" in done.stderr
    assert str(parties.key)[19:] not in done.stderr + done.stdout


@pytest.mark.parametrize("retention", [None, 90])
def test_collector_warns_of_sealed_records_that_would_stay_for_ever(
    metrics_file, database, tmp_path, capfd, retention
):
    key = PrivateKey.generate(IN_FORCE)
    config = tmp_path / "collector.toml"
    lines = ["report_days = 30", f'[sealing_keys.spring]\npublic = "{key.public}"']
    if retention:
        lines.insert(0, f"retention_days = {retention}")
    config.write_text("\n".join(lines), encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]):
        pass
    assert ("set retention_days" in capfd.readouterr().err) == (retention is None)
