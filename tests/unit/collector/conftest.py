"""Where the tests' stores live."""

from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path) -> Path:
    return tmp_path / "hubbub.db"


@pytest.fixture
def store_url(database) -> str:
    return f"sqlite:///{database}"
