"""Real collectors, each with a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from factories import registry_toml
from hubbub.simulations import Collector
from hubbub.storage import locations
from programs import forked_collector

if TYPE_CHECKING:
    from service.operators import Operator
    from service.s3_server import Proxy


@pytest.fixture
def database(tmp_path) -> Path:
    return tmp_path / "hubbub.db"


@pytest.fixture
def collector(metrics_file, database) -> Iterator[Collector]:
    """Serve the metric homepage into `database`."""
    with forked_collector(metrics_file, database) as running:
        yield running


@pytest.fixture(scope="module")
def untouched(tmp_path_factory) -> Iterator[tuple[Collector, Path]]:
    """Serve into a database that stays empty, for all the requests that are to be refused."""
    folder = tmp_path_factory.mktemp("untouched")
    metrics = folder / "metrics.toml"
    metrics.write_text(registry_toml(), encoding="utf-8")
    with forked_collector(metrics, folder / "hubbub.db") as running:
        yield running, folder / "hubbub.db"


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """Run an S3 server, for all tests of a process."""
    from service.s3_server import s3_server

    with s3_server() as url:
        yield url


@pytest.fixture
def s3(s3_url, monkeypatch) -> Iterator[Proxy]:
    """Run a proxy before it; what is read or written in this process goes past it."""
    from service.s3_server import proxy_before

    with proxy_before(s3_url) as proxy:
        for name, value in (proxy.environment | {"AWS_ENDPOINT_URL": s3_url}).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def through_proxy(s3, monkeypatch) -> Iterator[Proxy]:
    """Let what is read or written in this process go through the proxy, and be tried twice."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.setattr(locations, "ATTEMPTS", 2)
    locations._remote.cache_clear()
    yield s3
    locations._remote.cache_clear()


@pytest.fixture
def operator(tmp_path, s3) -> Operator:
    """Return somebody with a store and a folder of their own in the server's bucket."""
    from service.operators import Operator

    return Operator(tmp_path, s3)
