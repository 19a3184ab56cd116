"""The secret and the ledger on disk: made once, never trusted blindly, never silently replaced."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from factories import make_registry, registry_toml
from hubbub.client import StateError
from hubbub.client.errors import BusyError
from hubbub.client.ledger import Ledger, Price, Row, Spend
from hubbub.client.state import delete_state, open_state, replace_secret
from hubbub.client.storage import Storage, save_rows

REGISTRY = make_registry()
SPEND = Spend("homepage", 1, bytes(16))
PRICE = Price(REGISTRY["homepage"].epsilon_report, REGISTRY["homepage"].epsilon_permanent)
AT_ONCE = """
import sys
from hubbub.client import Registry
from hubbub.client.state import open_state
print(open_state(sys.argv[1], Registry.parse(sys.argv[2]))[0].hex())
"""


def secret_of(folder: Path) -> bytes:
    return open_state(folder, REGISTRY)[0]


def ledger_of(folder: Path) -> Ledger:
    return open_state(folder, REGISTRY)[1]


def spend_something(folder: Path) -> None:
    with closing(Storage(folder)) as storage, storage.transaction() as connection:
        save_rows(connection, [Row(SPEND, 3, PRICE)])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_secret_is_32_bytes_and_stays(tmp_path: Path) -> None:
    secret = secret_of(tmp_path)
    assert len(secret) == 32
    assert secret_of(tmp_path) == secret


def test_two_directories_have_two_secrets(tmp_path: Path) -> None:
    assert secret_of(tmp_path / "a") != secret_of(tmp_path / "b")


def test_only_the_owner_can_read_the_state(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    open_state(folder, REGISTRY)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"secret": 0o600, "client.db": 0o600}


def test_home_directory_may_be_written_as_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_state("~/state", REGISTRY)
    assert (tmp_path / "state" / "secret").exists()


def test_any_single_damaged_byte_of_the_secret_is_noticed_and_never_repaired(
    tmp_path: Path,
) -> None:
    secret_of(tmp_path)
    path = tmp_path / "secret"
    whole = path.read_bytes()
    for index in range(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="damaged"):
            secret_of(tmp_path)
        assert path.read_bytes() == damaged


def test_truncated_secret_is_noticed(tmp_path: Path) -> None:
    secret_of(tmp_path)
    path = tmp_path / "secret"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StateError, match="damaged"):
            secret_of(tmp_path)


def test_error_does_not_quote_the_secret(tmp_path: Path) -> None:
    secret = secret_of(tmp_path)
    path = tmp_path / "secret"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError) as caught:
        secret_of(tmp_path)
    assert secret.hex() not in str(caught.value)


@pytest.mark.parametrize("lost", ["secret", "client.db"])
def test_one_file_without_the_other_is_a_loss_and_not_a_new_start(
    tmp_path: Path, lost: str
) -> None:
    secret_of(tmp_path)
    (tmp_path / lost).unlink()
    for _ in range(2):
        with pytest.raises(StateError, match=f"{lost}: missing"):
            open_state(tmp_path, REGISTRY)
        assert lost not in names(tmp_path)


def test_secret_of_another_client_is_noticed(tmp_path: Path) -> None:
    secret_of(tmp_path / "a")
    secret_of(tmp_path / "b")
    (tmp_path / "a" / "secret").write_bytes((tmp_path / "b" / "secret").read_bytes())
    with pytest.raises(StateError, match="belongs to another secret"):
        secret_of(tmp_path / "a")


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 4096, 8192])
def test_truncated_database_is_noticed_and_left_alone(tmp_path: Path, keep: int) -> None:
    secret_of(tmp_path)
    path = tmp_path / "client.db"
    whole = path.read_bytes()
    assert len(whole) > keep
    path.write_bytes(whole[:keep])
    for _ in range(2):
        with pytest.raises(StateError, match="nothing is sent"):
            open_state(tmp_path, REGISTRY)
    assert path.read_bytes() == whole[:keep]


def test_database_of_garbage_is_noticed(tmp_path: Path) -> None:
    secret_of(tmp_path)
    (tmp_path / "client.db").write_bytes(b"garbage" * 3000)
    with pytest.raises(StateError, match="nothing is sent"):
        open_state(tmp_path, REGISTRY)


def test_start_that_was_killed_half_way_is_finished(tmp_path: Path) -> None:
    with closing(Storage(tmp_path, create=True)):
        pass  # killed after the database, before the secret
    secret = secret_of(tmp_path)
    with closing(Storage(tmp_path)) as storage, storage.transaction() as connection:
        connection.execute("UPDATE account SET owner = NULL")  # killed before tying them together
    assert secret_of(tmp_path) == secret


@pytest.mark.parametrize("name", ["secret", "client.db"])
def test_file_that_is_a_directory_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(StateError):
        open_state(tmp_path, REGISTRY)


def test_state_directory_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="state directory"):
        open_state(tmp_path / "state", REGISTRY)


def test_processes_that_start_at_once_share_one_secret(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_ONCE, str(tmp_path), registry_toml()]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(8)]
    secrets = {process.communicate(timeout=60)[0] for process in started}
    assert [process.returncode for process in started] == [0] * 8
    assert secrets == {secret_of(tmp_path).hex().encode() + b"\n"}
    assert {"secret", "client.db"} <= names(tmp_path) <= {
        "secret", "client.db", "client.db-wal", "client.db-shm"
    }  # fmt: skip


def test_replaced_secret_keeps_the_ledger_and_is_counted(tmp_path: Path) -> None:
    before = secret_of(tmp_path)
    spend_something(tmp_path)
    replace_secret(tmp_path)
    after, ledger = open_state(tmp_path, REGISTRY)
    assert after != before
    assert ledger.spending().resets == 1
    assert ledger.spending().epsilon == PRICE.of(3)
    assert names(tmp_path) == {"secret", "client.db"}


def test_replacement_that_was_killed_half_way_keeps_the_old_secret(tmp_path: Path) -> None:
    before = secret_of(tmp_path)
    with closing(Storage(tmp_path)) as storage:
        storage.release()
    assert secret_of(tmp_path) == before
    assert ledger_of(tmp_path).spending().resets == 1


def test_deleted_state_leaves_nothing(tmp_path: Path) -> None:
    secret_of(tmp_path)
    delete_state(tmp_path)
    assert names(tmp_path) == set()
    delete_state(tmp_path)


def test_ledger_survives(tmp_path: Path) -> None:
    secret_of(tmp_path)
    spend_something(tmp_path)
    (metric,) = ledger_of(tmp_path).spending().metrics
    assert (metric.metric, metric.reports, metric.epsilon) == ("homepage", 3, PRICE.of(3))


def test_other_writers_are_waited_for(tmp_path: Path) -> None:
    secret_of(tmp_path)
    with closing(Storage(tmp_path)) as one, closing(Storage(tmp_path)) as other:
        other._connection.execute("PRAGMA busy_timeout = 50")
        with one.transaction(), pytest.raises(BusyError, match="locked"):
            other.owner()
        assert other.owner() is not None
