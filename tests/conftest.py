"""Fixtures that every level of test shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from factories import registry_toml

# Timing on a busy machine is not what the properties are about.
settings.register_profile("hubbub", deadline=None, print_blob=True)
settings.load_profile("hubbub")


@pytest.fixture
def rng() -> np.random.Generator:
    """Give every test the same seed: a statistical test then passes always or never."""
    return np.random.default_rng(20140814)


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    """Write a metrics.toml with one metric, homepage."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(), encoding="utf-8")
    return path
