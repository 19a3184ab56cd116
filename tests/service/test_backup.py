"""A store that is in use is copied whole, and what is restored counts nothing twice."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from programs import forked_collector
from service.commands import run_collector_command
from service.loads import Accounts, Load, send_all_again, stored_in
from service.posting import make_batch, post, stored_count

_FOR_OTHERS = 0o007


@pytest.mark.long
def test_backup_under_load_has_all_that_was_acknowledged_before(metrics_file, database, tmp_path):
    accounts, copy = Accounts(reports=10), tmp_path / "backup.db"
    with (
        forked_collector(metrics_file, database) as collector,
        Load(collector.url, accounts) as load,
    ):
        load.wait_for(300)
        before = set(accounts.acknowledged)
        said = run_collector_command(
            "backup", "--store", f"sqlite:///{database}", "--to", str(copy)
        )
        assert said.returncode == 0, said.stderr
        load.wait_for(300)
        load.finish()
    kept = stored_in(f"sqlite:///{copy}")
    accounts.acknowledged = before
    accounts.assert_kept(kept)
    size = copy.stat().st_size
    assert said.stdout == f"copied {size:,} bytes from sqlite:///{database} to {copy}\n"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("backup*")] == ["backup.db"]


@pytest.mark.long
@pytest.mark.parametrize("disaster", ["file lost", "back to an earlier moment"])
def test_restored_backup_recognises_its_batches_and_takes_the_others_once(
    metrics_file, database, tmp_path, disaster
):
    """As docs/do/operate.md says: the log of what was there must not stay beside the backup."""
    accounts, copy = Accounts(), tmp_path / "backup.db"
    with forked_collector(metrics_file, database) as collector:
        with Load(collector.url, accounts) as load:
            load.wait_for(100)
            run_collector_command("backup", "--store", f"sqlite:///{database}", "--to", str(copy))
            load.wait_for(100)
            load.finish()
        collector.process.kill()
        collector.process.wait()
    if disaster == "file lost":
        database.unlink()
    for path in tmp_path.glob("hubbub.db*"):
        path.rename(path.with_name(f"before-{path.name}"))
    shutil.copy(copy, database)
    _assert_each_counts_once_again(metrics_file, f"sqlite:///{database}", accounts)


@pytest.mark.long
def test_restored_dump_recognises_its_batches_and_takes_the_others_once(
    metrics_file, postgresql, postgresql_url, tmp_path
):
    accounts, dump = Accounts(), tmp_path / "hubbub.dump"
    with (
        forked_collector(metrics_file, postgresql_url) as collector,
        Load(collector.url, accounts) as load,
    ):
        load.wait_for(100)
        postgresql.run("pg_dump", "--format=custom", f"--file={dump}", postgresql_url)
        load.wait_for(100)
        load.finish()
    with postgresql.new_database() as restored:
        options = ("--exit-on-error", "--single-transaction", f"--dbname={restored}")
        postgresql.run("pg_restore", *options, dump)
        _assert_each_counts_once_again(metrics_file, restored, accounts)


def test_backup_of_postgresql_says_what_to_use(metrics_file, postgresql_url, tmp_path):
    with forked_collector(metrics_file, postgresql_url):
        pass
    address = postgresql_url.replace("postgres@", "postgres:open-sesame@")
    said = run_collector_command(
        "backup", "--store", address, "--to", str(tmp_path / "hubbub.dump")
    )
    assert said.returncode == 1
    assert f"pg_dump --format=custom --file={tmp_path}/hubbub.dump 'postgresql://" in said.stderr
    assert "pg_restore" in said.stderr
    assert "open-sesame" not in said.stderr


@pytest.mark.long
def test_backup_overwrites_nothing_and_leaves_nothing_that_is_not_whole(
    collector, database, tmp_path
):
    assert post(collector.url, make_batch()).status == 201
    there = tmp_path / "there.db"
    there.write_text("dear", encoding="utf-8")
    options = ("--store", f"sqlite:///{database}", "--to")
    refused = run_collector_command("backup", *options, str(there))
    assert (refused.returncode, there.read_text(encoding="utf-8")) == (1, "dear")
    assert "already exists" in refused.stderr
    refused = run_collector_command("backup", *options, str(tmp_path / "nowhere" / "backup.db"))
    assert refused.returncode == 1
    assert "No such file or directory" in refused.stderr
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE recipes (dish TEXT)")
    refused = run_collector_command(
        "backup", "--store", f"sqlite:///{other}", "--to", str(tmp_path / "backup.db")
    )
    assert (refused.returncode, "is no store of hubbub's" in refused.stderr) == (1, True)
    half = tmp_path / "backup.db.partial"
    half.write_bytes(b"of an attempt that was killed" * 1000)
    assert run_collector_command("backup", *options, str(tmp_path / "backup.db")).returncode == 0
    assert not half.exists()
    assert stored_count(tmp_path / "backup.db") == 3


def test_damaged_store_makes_no_backup(metrics_file, database, tmp_path):
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch(2000)).status == 201
    with closing(sqlite3.connect(database)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    with database.open("r+b") as file:
        for page in range(4, pages):
            file.seek(4096 * page)
            file.write(bytes(range(256)) * 2)
    said = run_collector_command(
        "backup", "--store", f"sqlite:///{database}", "--to", str(tmp_path / "backup.db")
    )
    assert said.returncode == 1
    assert "Error: " in said.stderr
    assert not list(tmp_path.glob("backup.db*"))


@pytest.mark.parametrize(
    "umask",
    [0o022, *(pytest.param(other, marks=pytest.mark.long) for other in (0o002, 0o000, 0o077))],
)
def test_no_file_is_for_everyone(metrics_file, database, tmp_path, umask):
    usual = os.umask(umask)
    try:
        with forked_collector(metrics_file, database) as collector:
            assert post(collector.url, make_batch()).status == 201
            store = f"sqlite:///{database}"
            assert (
                run_collector_command(
                    "export", "--store", store, "--to", str(tmp_path / "out")
                ).returncode
                == 0
            )
            kept = [*database.parent.glob("hubbub.db*"), *(tmp_path / "out").rglob("*")]
            assert len(kept) > 5
            modes = {path: path.stat().st_mode & 0o777 for path in kept}
    finally:
        os.umask(usual)
    assert [path for path, mode in modes.items() if mode & (_FOR_OTHERS | umask)] == []


def _assert_each_counts_once_again(metrics: Path, url: str, accounts: Accounts) -> None:
    """Serve what was restored, and send every batch again as clients would that have no answer."""
    restored = set(stored_in(url))
    known = [parcel for parcel in accounts.made if restored.issuperset(parcel.records)]
    others = [parcel for parcel in accounts.made if parcel not in known]
    assert known
    assert others
    with forked_collector(metrics, url) as collector:
        assert set(send_all_again(collector.url, known)) == {200}
        assert set(send_all_again(collector.url, others)) == {201}
        assert set(send_all_again(collector.url, accounts.made)) == {200}
    accounts.assert_all_counted_once(stored_in(url))
