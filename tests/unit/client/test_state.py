"""The secret and the ledger on disk: made once, never trusted blindly, never silently replaced."""

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from factories import (
    APPLICATION,
    make_metric,
    make_params,
    make_registry,
    make_report,
    registry_toml,
)
from hubbub.client import StateError
from hubbub.client.ledger import ALREADY_REPORTED, Account, AnswerKey, LedgerRow, Verdict
from hubbub.client.outbox import Outbox, spool
from hubbub.client.state import delete_state, erase, open_state, save_account
from hubbub.protocol import ForgottenError, UnavailableError

REGISTRY = make_registry()
HOMEPAGE = REGISTRY["homepage"]
SPENT = HOMEPAGE.epsilon_after(3)
AT_ONCE = """
import sys
from hubbub.client import Registry
from hubbub.client.state import open_state
print(open_state(sys.argv[1], Registry.parse(sys.argv[2]))[0].hex())
"""


def secret_of(folder: Path) -> bytes:
    return open_state(folder, REGISTRY).secret


def ledger_of(folder: Path) -> Account:
    return open_state(folder, REGISTRY).account


def spend_something(folder: Path) -> None:
    with closing(Outbox(folder, APPLICATION)) as outbox, outbox.transaction() as connection:
        answer = AnswerKey("homepage", 1, bytes(16))
        row = LedgerRow(answer, 3, HOMEPAGE.epsilon_report, HOMEPAGE.price, changed=False)
        account = Account(REGISTRY, [row])
        save_account(connection, REGISTRY, Account(REGISTRY), account, [answer])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_secret_is_32_bytes_and_stays(tmp_path):
    secret = secret_of(tmp_path)
    assert len(secret) == 32
    assert secret_of(tmp_path) == secret


@pytest.mark.posix
def test_only_the_owner_can_read_the_state(tmp_path):
    folder = tmp_path / "deep" / "state"
    open_state(folder, REGISTRY)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"secret": 0o600, "client.db": 0o600}


def test_home_directory_may_be_written_as_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    open_state("~/state", REGISTRY)
    assert (tmp_path / "state" / "secret").exists()


def test_any_damage_to_the_secret_is_noticed_not_quoted_and_never_repaired(tmp_path):
    secret = secret_of(tmp_path)
    path = tmp_path / "secret"
    whole = path.read_bytes()
    turned = (whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole)))
    for damaged in (*turned, *(whole[:length] for length in range(len(whole)))):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="damaged") as caught:
            secret_of(tmp_path)
        assert path.read_bytes() == damaged
        assert secret.hex() not in str(caught.value)


@pytest.mark.parametrize("lost", ["secret", "client.db"])
def test_one_file_without_the_other_is_a_loss_and_not_a_new_start(tmp_path, lost):
    secret_of(tmp_path)
    (tmp_path / lost).unlink()
    for _ in range(2):
        with pytest.raises(StateError, match=f"{lost}: missing"):
            open_state(tmp_path, REGISTRY)
        assert lost not in names(tmp_path)


def test_secret_of_another_client_is_noticed(tmp_path):
    secret_of(tmp_path / "a")
    secret_of(tmp_path / "b")
    (tmp_path / "a" / "secret").write_bytes((tmp_path / "b" / "secret").read_bytes())
    with pytest.raises(StateError, match="belongs to another secret"):
        secret_of(tmp_path / "a")


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 4096, 8192, None])
def test_database_that_is_truncated_or_garbage_is_noticed_and_left_alone(tmp_path, keep):
    secret_of(tmp_path)
    path = tmp_path / "client.db"
    whole = path.read_bytes()
    damaged = b"garbage" * 3000 if keep is None else whole[:keep]
    assert damaged != whole
    path.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(StateError, match="nothing is sent"):
            open_state(tmp_path, REGISTRY)
    assert path.read_bytes() == damaged


def test_start_that_was_killed_half_way_is_finished(tmp_path):
    with closing(Outbox(tmp_path, APPLICATION, create=True)):
        pass  # killed after the database, before the secret
    secret = secret_of(tmp_path)
    with closing(Outbox(tmp_path, APPLICATION)) as outbox, outbox.transaction() as connection:
        connection.execute("UPDATE account SET owner = NULL")  # killed before tying them together
    assert secret_of(tmp_path) == secret


@pytest.mark.parametrize("name", ["secret", "client.db"])
def test_file_that_is_a_directory_is_an_error(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(StateError):
        open_state(tmp_path, REGISTRY)


def test_state_directory_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="state directory"):
        open_state(tmp_path / "state", REGISTRY)


def test_processes_that_start_at_once_share_one_secret(tmp_path):
    command = [sys.executable, "-c", AT_ONCE, str(tmp_path), registry_toml()]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(8)]
    secrets = {process.communicate(timeout=60)[0] for process in started}
    assert [process.returncode for process in started] == [0] * 8
    assert secrets == {secret_of(tmp_path).hex().encode() + b"\n"}
    assert names(tmp_path) == {"secret", "client.db"}


def test_open_processes_notice_that_the_database_was_deleted(tmp_path):
    secret = secret_of(tmp_path)
    with closing(Outbox(tmp_path, APPLICATION, secret)) as outbox:
        delete_state(tmp_path, APPLICATION)
        secret_of(tmp_path)  # and begun anew
        with pytest.raises(ForgottenError), outbox.transaction():
            pass


def test_deleted_state_leaves_nothing(tmp_path):
    secret_of(tmp_path)
    delete_state(tmp_path, APPLICATION)
    assert names(tmp_path) == set()
    delete_state(tmp_path, APPLICATION)


def test_other_writers_are_waited_for(tmp_path):
    secret_of(tmp_path)
    with (
        closing(Outbox(tmp_path, APPLICATION)) as one,
        closing(Outbox(tmp_path, APPLICATION)) as other,
    ):
        other.connection.execute("PRAGMA busy_timeout = 50")
        with (
            one.transaction(),
            pytest.raises(UnavailableError, match="locked"),
            other.transaction(),
        ):
            pass
        with other.transaction() as connection:
            assert connection.execute("SELECT owner FROM account").fetchone()[0] is not None


@pytest.mark.posix
def test_directory_and_database_that_others_may_read_are_mended(tmp_path):
    secret_of(tmp_path)
    tmp_path.chmod(0o777)
    (tmp_path / "client.db").chmod(0o666)
    secret_of(tmp_path)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "client.db")]
    assert modes == [0o700, 0o600]


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604])
def test_secret_that_others_may_have_read_is_refused(tmp_path, mode):
    secret_of(tmp_path)
    (tmp_path / "secret").chmod(mode)
    with pytest.raises(StateError, match=f"its mode is {mode:o}, others may have read it"):
        open_state(tmp_path, REGISTRY)
    (tmp_path / "secret").chmod(0o600)
    assert len(secret_of(tmp_path)) == 32


ONCE = make_registry(make_metric("once", params=make_params(p=0.0, q=1.0), one_time=True))


def test_one_time_metric_of_a_restored_backup_counts_as_reported(tmp_path):
    open_state(tmp_path / "original", ONCE)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    account = open_state(tmp_path / "copy", ONCE).account
    assert account.spending().restores == 1
    verdict = account.judge(AnswerKey("once", 1, b"value"), answered=False)
    assert verdict == (Verdict.REFUSED, ALREADY_REPORTED)
    again = open_state(tmp_path / "copy", ONCE).account
    assert again.spending().restores == 1
    original = open_state(tmp_path / "original", ONCE).account
    assert original.spending().restores == 0
    assert original.judge(AnswerKey("once", 1, b"value"), answered=False)[0] is Verdict.NEW


def test_directory_that_is_renamed_is_no_copy(tmp_path):
    open_state(tmp_path / "old", ONCE)
    (tmp_path / "old").rename(tmp_path / "new")
    assert open_state(tmp_path / "new", ONCE).account.spending().restores == 0


def test_cloned_machine_is_noticed(tmp_path, monkeypatch):
    machine = tmp_path / "machine-id"
    monkeypatch.setattr("hubbub.client.state._MACHINE_IDS", (str(machine),))
    machine.write_text("one")
    open_state(tmp_path / "state", ONCE)
    machine.write_text("another")
    assert open_state(tmp_path / "state", ONCE).account.spending().restores == 1


@pytest.mark.parametrize("missing", ["link", "fsync of a directory"])
def test_file_systems_without_links_or_directory_syncs_will_do(tmp_path, monkeypatch, missing):
    def unsupported(*_: object, **_kw: object):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    real_open = os.open

    def no_directories(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir():
            unsupported()
        return real_open(path, flags, mode)

    if missing == "link":
        monkeypatch.setattr(os, "link", unsupported)
    else:
        monkeypatch.setattr(os, "open", no_directories)
    secret = secret_of(tmp_path)
    assert secret_of(tmp_path) == secret


def test_database_of_another_format_is_not_taken_for_damaged(tmp_path):
    secret_of(tmp_path)
    with closing(Outbox(tmp_path, APPLICATION)) as outbox:
        outbox.connection.execute("PRAGMA user_version = 9")
    with pytest.raises(StateError, match="its format is 9: must be 4"):
        open_state(tmp_path, REGISTRY)


@pytest.mark.parametrize("limit", ["open files", "failing disk"])
def test_trouble_that_passes_is_no_damage(tmp_path, monkeypatch, limit):
    secret = secret_of(tmp_path)
    with monkeypatch.context() as patch:
        if limit == "open files":
            patch.setattr(sqlite3, "connect", too_many_open_files)
        else:
            patch.setattr(Path, "read_bytes", failing_disk)
        with pytest.raises(UnavailableError):
            open_state(tmp_path, REGISTRY)
    assert secret_of(tmp_path) == secret


def too_many_open_files(*_: object, **_kw: object) -> None:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorname = "SQLITE_CANTOPEN"
    raise error


def failing_disk(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("left", ["everything", "the database"])
def test_deletion_that_was_killed_half_way_is_finished_by_the_next_start(tmp_path, left):
    before = secret_of(tmp_path)
    spend_something(tmp_path)
    with closing(Outbox(tmp_path, APPLICATION)) as outbox:
        erase(outbox)
    if left == "the database":
        (tmp_path / "secret").unlink()
    assert secret_of(tmp_path) != before
    assert ledger_of(tmp_path).spending().epsilon == 0


def test_copy_leaves_unsent_reports_to_the_original(tmp_path):
    """What is in a batch has an id of its own, by which the collector knows it."""
    open_state(tmp_path / "original", REGISTRY)
    with (
        closing(Outbox(tmp_path / "original", APPLICATION)) as outbox,
        outbox.transaction() as connection,
    ):
        spool(connection, [make_report()] * 5, REGISTRY, "", 0.0)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = open_state(tmp_path / "copy", REGISTRY)
    assert (copy.waiting, copy.discarded) == (0, 5)
    original = open_state(tmp_path / "original", REGISTRY)
    assert (original.waiting, original.discarded) == (5, 0)


@pytest.mark.posix
def test_directory_with_other_files_is_left_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("the app's own")
    tmp_path.chmod(0o755)
    secret_of(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    tmp_path.chmod(0o777)
    with pytest.raises(StateError, match="its mode is 777, others may write there"):
        secret_of(tmp_path)
