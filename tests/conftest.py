"""Fixtures that every level of test shares."""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from databases import PostgresqlServer, running_postgresql
from factories import registry_toml
from hubbub.protocol import SECONDS_A_DAY
from hubbub.storage import DATABASES

if TYPE_CHECKING:
    import numpy as np

# The threads of linear algebra spin while they wait for each other, and tests run side by side.
# Set before anything imports numpy, for this process and for those that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Databases, outboxes and registries of thousands of tests are made, synced and deleted, and on a
# disk most of what they wait for is that. `make test` holds up to .6 GB there. Some tests install
# programs, and run them.
_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes folders in it that only its user reads
_ENOUGH_BYTES = 4 << 30
if os.access(_MEMORY, os.W_OK):
    _space = os.statvfs(_MEMORY)
    if _space.f_bavail * _space.f_frsize >= _ENOUGH_BYTES and not _space.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("TMPDIR", str(_MEMORY))
        # pytest has asked for the folder before.
        tempfile.tempdir = None

# `make test-long` looks at four times as many examples. Timing on a busy machine is not what the
# properties are about.
for name, examples in (("quick", 25), ("thorough", 100)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")


_TEST_SECONDS = 30  # what nearly all tests take at most, with what they share

# A sixth of the time in which tests are collected went to looking for garbage, of which there is
# none among them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long on PostgreSQL, and quick on SQLite."""
    for item in items:
        if item.get_closest_marker("long_on_postgresql") and "[postgresql" in item.name:
            item.add_marker(pytest.mark.long)


def pytest_runtest_setup() -> None:
    """Wait for the next day if this one is nearly over: a test then runs within one day.

    What a test calls today, a collector that it runs must call today, too.
    """
    left = SECONDS_A_DAY - time.time() % SECONDS_A_DAY
    if left < _TEST_SECONDS:
        time.sleep(left)


@pytest.fixture
def rng() -> np.random.Generator:
    """Give every test the same seed: a statistical test then passes always or never."""
    import numpy as np

    return np.random.default_rng(20140814)


@pytest.fixture
def coins() -> Callable[[int], bytes]:
    """Give a client in a test random bytes, several times as fast as `rng.bytes`."""
    return random.Random(20140814).randbytes  # noqa: S311


@pytest.fixture
def metrics_file(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """Run one server for all tests of this process."""
    with running_postgresql() as server:
        yield server


@pytest.fixture
def postgresql(postgresql_server) -> Iterator[PostgresqlServer]:
    """Give a test the server to stop and start; it runs again for the next one."""
    yield postgresql_server
    postgresql_server.start()


@pytest.fixture
def sqlite_url(tmp_path) -> str:
    """Return the address of an SQLite store, not yet made."""
    return f"sqlite:///{tmp_path / 'hubbub.db'}"


@pytest.fixture
def postgresql_url(postgresql_server) -> Iterator[str]:
    """Return the address of a new, empty PostgreSQL database."""
    with postgresql_server.new_database() as url:
        yield url


@pytest.fixture(params=DATABASES)
def any_store_url(request) -> str:
    """Run a test on every kind of database: the address of a store, not yet made."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
