"""The secret on disk: created once, never trusted blindly, never silently replaced."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from hubbub.client import StateError
from hubbub.client.state import load_or_create_secret


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_secret_is_32_bytes_and_stays(tmp_path: Path) -> None:
    secret = load_or_create_secret(tmp_path)
    assert len(secret) == 32
    assert load_or_create_secret(tmp_path) == secret


def test_two_directories_have_two_secrets(tmp_path: Path) -> None:
    assert load_or_create_secret(tmp_path / "a") != load_or_create_secret(tmp_path / "b")


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    load_or_create_secret(folder)
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_but_the_secret_is_left_in_the_directory(tmp_path: Path) -> None:
    load_or_create_secret(tmp_path)
    assert names(tmp_path) == ["secret"]


def test_home_directory_may_be_written_as_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    load_or_create_secret("~/state")
    assert (tmp_path / "state" / "secret").exists()


def test_any_single_damaged_byte_is_noticed_and_never_repaired(tmp_path: Path) -> None:
    load_or_create_secret(tmp_path)
    path = tmp_path / "secret"
    whole = path.read_bytes()
    for index in range(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="damaged"):
            load_or_create_secret(tmp_path)
        assert path.read_bytes() == damaged


def test_truncated_secret_is_noticed(tmp_path: Path) -> None:
    load_or_create_secret(tmp_path)
    path = tmp_path / "secret"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StateError, match="damaged"):
            load_or_create_secret(tmp_path)


def test_error_does_not_quote_the_secret(tmp_path: Path) -> None:
    secret = load_or_create_secret(tmp_path)
    path = tmp_path / "secret"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError) as caught:
        load_or_create_secret(tmp_path)
    assert secret.hex() not in str(caught.value)


def test_state_directory_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="state directory"):
        load_or_create_secret(tmp_path / "state")


def test_secret_that_is_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    with pytest.raises(StateError, match="Is a directory"):
        load_or_create_secret(tmp_path)


def test_processes_that_start_at_once_share_one_secret(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        secrets = pool.map(load_or_create_secret, [tmp_path] * 16, chunksize=1)
        pool.close()
        pool.join()
    assert len(set(secrets)) == 1
    assert names(tmp_path) == ["secret"]
