"""Where the tests' stores live."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "hubbub.db"


@pytest.fixture
def store_url(database: Path) -> str:
    return f"sqlite:///{database}"
