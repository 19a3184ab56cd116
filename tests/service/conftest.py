"""Real collectors, each with a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from factories import registry_toml
from hubbub.simulations.experiments.processes import Collector, running_collector


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return where the collector is to make its database."""
    return tmp_path / "hubbub.db"


@pytest.fixture
def collector(metrics_file: Path, database: Path) -> Iterator[Collector]:
    """Serve the metric homepage into `database`."""
    with running_collector(metrics_file, database) as running:
        yield running


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Path]]:
    """Serve into a database that stays empty, for all the requests that are to be refused."""
    folder = tmp_path_factory.mktemp("untouched")
    metrics = folder / "metrics.toml"
    metrics.write_text(registry_toml(), encoding="utf-8")
    with running_collector(metrics, folder / "hubbub.db") as running:
        yield running, folder / "hubbub.db"
