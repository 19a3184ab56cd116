"""A service is upgraded, and rolled back, while it serves: nothing acknowledged is lost or doubled.

The next version is this one with two more migrations: one adds a column and a table, which this
version can live with; the other removes a table that the next version doesn't need.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from databases import GUARDED, PostgresqlServer
from hubbub.collector.errors import StoreError
from hubbub.collector.store import open_store
from hubbub.collector.store.schema import REVISIONS
from hubbub.simulations.experiments.processes import Collector, running_collector
from service.loads import Accounts, Load, assert_delivered, send_all_again, stored_in
from service.posting import SECONDS, make_batch, post
from unit.collector.test_store_migrations import execute, make_oldest

_NOW = REVISIONS[-1]
_THIS = ("-m", "hubbub.collector")
_EXPANDING = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9001", "{_NOW}"

def upgrade():
    op.add_column("segments", sa.Column("region", sa.Text))
    op.create_table("regions", sa.Column("name", sa.Text, primary_key=True))
"""
_CONTRACTING = """
from alembic import op

revision, down_revision = "9002", "9001"

def upgrade():
    op.drop_table("regions")
"""
_NEXT = f"""
import sys
from hubbub.collector.store import schema

schema.REVISIONS += ("9001", "9002")
schema.SERVED_BY |= {{"9001": "{_NOW}", "9002": "9001"}}
schema._MIGRATIONS = %r

from hubbub.collector.cli import main

main()
"""


class Versions(NamedTuple):
    """The program of this version, and that of the next one."""

    this: Sequence[str]
    next: Sequence[str]


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    folder = tmp_path / "migrations"
    with importlib.resources.as_file(
        importlib.resources.files("hubbub.collector.store") / "migrations"
    ) as migrations:
        shutil.copytree(migrations, folder)
    (folder / "versions" / "v9001_expanding.py").write_text(_EXPANDING, encoding="utf-8")
    (folder / "versions" / "v9002_contracting.py").write_text(_CONTRACTING, encoding="utf-8")
    return Versions(_THIS, ("-c", _NEXT % str(folder)))


def test_nothing_is_lost_or_doubled_by_an_upgrade_and_a_rollback_under_load(
    metrics_file: Path, any_store_url: str, versions: Versions
) -> None:
    """Collectors of both versions share a PostgreSQL; they use an SQLite file in turns."""
    accounts, together = Accounts(), not any_store_url.startswith("sqlite")

    def serving(program: Sequence[str]) -> AbstractContextManager[Collector]:
        return running_collector(metrics_file, any_store_url, ["--workers", "1"], program)

    with ExitStack() as stack:
        old = stack.enter_context(serving(versions.this))
        load = stack.enter_context(Load(old.url, accounts, connections=4, pause=0.01))
        load.wait_for(50)

        said = _run(versions.next, "migrate", "--store", any_store_url)
        assert f"migrated from schema {_NOW} to 9001; versions of hubbub that know" in said
        assert f"know schema {_NOW} can serve it" in said
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

        said = _run(versions.next, "migrate", "--contract", "--store", any_store_url)
        assert "migrated from schema 9001 to 9002" in said
        assert "know schema 9001 can serve it" in said
        load.wait_for(50)
        load.finish()
        assert set(send_all_again(new.url, accounts.made)) == {200}
        refused = _start(versions.this, "maintain", "--store", any_store_url)
        assert refused.returncode == 1
        assert "made by a newer hubbub (schema 9001" in refused.stderr
    _run(versions.next, "maintain", "--store", any_store_url)
    # So that this program may look into it.
    update = "UPDATE hubbub_schema SET version_num = :version"
    asyncio.run(execute(any_store_url, update, version=_NOW))
    assert_delivered(any_store_url, accounts)


def test_start_makes_what_this_version_needs_and_removes_nothing(
    metrics_file: Path, any_store_url: str, versions: Versions
) -> None:
    with running_collector(metrics_file, any_store_url, program=versions.next) as collector:
        assert post(collector.url, make_batch()).status == 201
    with running_collector(metrics_file, any_store_url) as collector:
        assert post(collector.url, make_batch()).status == 201
    said = _run(versions.this, "migrate", "--store", any_store_url)
    assert f"has schema 9001; versions of hubbub that know schema {_NOW} can serve it" in said


def test_reader_needs_no_new_rights_after_an_expansion(
    metrics_file: Path,
    postgresql: PostgresqlServer,
    postgresql_url: str,
    versions: Versions,
) -> None:
    user, password = GUARDED
    with running_collector(metrics_file, postgresql_url) as collector:
        assert post(collector.url, make_batch()).status == 201
    tables = "segments, counts, parameters, hubbub_schema"
    postgresql.execute(f"GRANT SELECT ON {tables} TO {user}", url=postgresql_url)
    for _ in range(2):
        _run(versions.next, "migrate", "--store", postgresql_url)
        _run(versions.next, "migrate", "--contract", "--store", postgresql_url)
    update = "UPDATE hubbub_schema SET version_num = :version"
    asyncio.run(execute(postgresql_url, update, version=_NOW))
    reading = postgresql_url.replace("//postgres@", f"//{user}:{password}@")
    assert len(stored_in(reading)) == 3


def test_collector_may_refuse_an_old_schema(metrics_file: Path, any_store_url: str) -> None:
    asyncio.run(make_oldest(any_store_url))
    options = ("--metrics", str(metrics_file), "--store", any_store_url, "--port", "0")
    refused = _start(_THIS, "serve", *options, "--old-schema", "refuse")
    assert refused.returncode == 1
    fault = f"made by an older hubbub (schema 0001, expected {_NOW}); migrate it: hubbub-collector"
    assert fault in refused.stderr
    with pytest.raises(StoreError, match="schema 0001"):
        asyncio.run(_read(any_store_url))
    assert f"from schema 0001 to {_NOW}" in _run(_THIS, "migrate", "--store", any_store_url)
    with running_collector(metrics_file, any_store_url, ["--old-schema", "refuse"]) as collector:
        assert post(collector.url, make_batch()).status == 201


@pytest.mark.parametrize("workers", ["1", "2"])
def test_collector_may_wait_until_somebody_has_migrated(
    metrics_file: Path, any_store_url: str, workers: str
) -> None:
    asyncio.run(make_oldest(any_store_url))
    with _waiting(metrics_file, any_store_url, workers) as process:
        assert process.stderr
        assert "waiting: store " in process.stderr.readline()
        time.sleep(1.5)
        assert process.poll() is None
        _run(_THIS, "migrate", "--store", any_store_url)
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("listening on ")
        assert post(line.split()[-1], make_batch()).status == 201
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_collector_that_waits_ends_when_it_is_told(metrics_file: Path, sqlite_url: str) -> None:
    asyncio.run(make_oldest(sqlite_url))
    with _waiting(metrics_file, sqlite_url, "1") as process:
        assert process.stderr
        assert "waiting: store " in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def _waiting(metrics: Path, url: str, workers: str) -> subprocess.Popen[str]:
    options = ("--metrics", str(metrics), "--store", url, "--port", "0", "--workers", workers)
    command = [sys.executable, *_THIS, "serve", *options, "--old-schema", "wait"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def _read(url: str) -> None:
    async with open_store(url, create=False):
        pass


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
