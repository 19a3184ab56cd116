"""A service is upgraded, and rolled back, while it serves: nothing acknowledged is lost or doubled.

The next version is this one with one more migration, which adds a column and a table.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from databases import GUARDED
from hubbub.simulations import Collector, running_collector
from service.loads import Accounts, Load, assert_delivered, send_all_again, stored_in
from service.posting import SECONDS, make_batch, post, stored_count
from unit.collector.next_version import NEXT, NOW

pytestmark = pytest.mark.long

_THIS = ("-m", "hubbub.collector")
_NEXT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from unit.collector import next_version

next_version.install()

from hubbub.collector.cli import main

main()
"""


class Versions(NamedTuple):
    """The program of this version, and that of the next one."""

    this: Sequence[str]
    next: Sequence[str]


@pytest.fixture
def versions() -> Versions:
    return Versions(_THIS, ("-c", _NEXT))


def test_nothing_is_lost_or_doubled_by_an_upgrade_and_a_rollback_under_load(
    metrics_file, any_store_url, versions
):
    """Collectors of both versions share a PostgreSQL; they use an SQLite file in turns."""
    accounts, together = Accounts(), not any_store_url.startswith("sqlite")

    def serving(program: Sequence[str]) -> AbstractContextManager[Collector]:
        return running_collector(metrics_file, any_store_url, ["--workers", "1"], program)

    with ExitStack() as stack:
        old = stack.enter_context(serving(versions.this))
        load = stack.enter_context(Load(old.url, accounts, connections=4, pause=0.01))
        load.wait_for(50)

        said = _run(versions.next, "maintain", "--migrate", "--store", any_store_url)
        assert f"migrated from schema {NOW} to {NEXT}; versions of hubbub that know" in said
        assert f"know schema {NOW} can serve it" in said
        load.wait_for(50)

        for program in (versions.next, versions.this, versions.next):
            if not together:
                old.stop()
            new = stack.enter_context(serving(program))
            load.url = new.url
            load.wait_for(50)
            if together:
                old.stop()
            old = new
        assert _run(versions.this, "maintain", "--store", any_store_url).startswith("merged ")
        load.finish()
        assert set(send_all_again(new.url, accounts.made)) == {200}
    _run(versions.next, "maintain", "--store", any_store_url)
    assert_delivered(any_store_url, accounts)


def test_start_makes_what_this_version_needs_and_removes_nothing(
    metrics_file, any_store_url, versions
):
    with running_collector(metrics_file, any_store_url, program=versions.next) as collector:
        assert post(collector.url, make_batch()).status == 201
    with running_collector(metrics_file, any_store_url) as collector:
        assert post(collector.url, make_batch()).status == 201
    said = _run(versions.this, "maintain", "--migrate", "--store", any_store_url)
    assert f"has schema {NEXT}; versions of hubbub that know schema {NOW} can serve it" in said


def test_reader_needs_no_new_rights_after_a_migration(
    metrics_file, postgresql, postgresql_url, versions
):
    user, password = GUARDED
    with running_collector(metrics_file, postgresql_url) as collector:
        assert post(collector.url, make_batch()).status == 201
    tables = "segments, counts, parameters, hubbub_schema"
    postgresql.execute(f"GRANT SELECT ON {tables} TO {user}", url=postgresql_url)
    for _ in range(2):
        _run(versions.next, "maintain", "--migrate", "--store", postgresql_url)
    reading = postgresql_url.replace("//postgres@", f"//{user}:{password}@")
    assert len(stored_in(reading)) == 3


def test_collector_may_refuse_an_old_schema(metrics_file, any_store_url, versions):
    _run(versions.this, "maintain", "--migrate", "--store", any_store_url)
    options = ("--metrics", str(metrics_file), "--store", any_store_url, "--port", "0")
    refused = _start(versions.next, "serve", *options, "--old-schema", "refuse")
    assert refused.returncode == 1
    fault = f"made by an older hubbub (schema {NOW}, expected {NEXT}); migrate it: hubbub-"
    assert fault in refused.stderr
    said = _run(versions.next, "maintain", "--migrate", "--store", any_store_url)
    assert f"from schema {NOW} to {NEXT}" in said
    for program in (versions.next, versions.this):
        refusing = ["--old-schema", "refuse"]
        with running_collector(metrics_file, any_store_url, refusing, program) as collector:
            assert post(collector.url, make_batch()).status == 201


@pytest.mark.parametrize("workers", ["1", "2"])
def test_collector_may_wait_until_somebody_has_migrated(
    metrics_file, any_store_url, versions, workers
):
    _run(versions.this, "maintain", "--migrate", "--store", any_store_url)
    with _waiting(versions.next, metrics_file, any_store_url, workers) as process:
        assert process.stderr
        assert "waiting: store " in process.stderr.readline()
        time.sleep(1.5)
        assert process.poll() is None
        _run(versions.next, "maintain", "--migrate", "--store", any_store_url)
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("listening on ")
        assert post(line.split()[-1], make_batch()).status == 201
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_collector_that_waits_ends_when_it_is_told(metrics_file, sqlite_url, versions):
    _run(versions.this, "maintain", "--migrate", "--store", sqlite_url)
    with _waiting(versions.next, metrics_file, sqlite_url, "1") as process:
        assert process.stderr
        assert "waiting: store " in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_store_can_be_copied_before_it_is_migrated(metrics_file, sqlite_url, versions, tmp_path):
    with running_collector(metrics_file, sqlite_url) as collector:
        assert post(collector.url, make_batch()).status == 201
    copy = tmp_path / "backup.db"
    _run(versions.next, "backup", "--store", sqlite_url, "--to", str(copy))
    said = _run(versions.next, "maintain", "--migrate", "--store", f"sqlite:///{copy}")
    assert f"from schema {NOW} to {NEXT}" in said
    assert stored_count(copy) == 3


def _waiting(
    program: Sequence[str], metrics: Path, url: str, workers: str
) -> subprocess.Popen[str]:
    options = ("--metrics", str(metrics), "--store", url, "--port", "0", "--workers", workers)
    command = [sys.executable, *program, "serve", *options, "--old-schema", "wait"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(program: Sequence[str], *arguments: str) -> str:
    done = _start(program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _start(program: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
