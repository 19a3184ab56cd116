"""Examples in docstrings are true: each runs, and returns what it says."""

import asyncio
import doctest
import importlib
import shutil
from pathlib import Path

import pytest

from sample_store import REGISTRY, fill

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ">>> "


@pytest.fixture(scope="module")
def examples_folder(tmp_path_factory) -> Path:
    """Return a folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copy(REGISTRY, folder)
    asyncio.run(fill(f"sqlite:///{folder / 'hubbub.db'}"))
    people = "".join(f"{number},{20 + number % 50}\n" for number in range(1_050))
    (folder / "people.csv").write_text("user,age\n" + people)
    return folder


def modules_with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        for folder in sorted(ROOT.glob("*/hubbub"))
        for path in sorted(folder.rglob("*.py"))
        if EXAMPLE in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_a_module_are_true(name, examples_folder, monkeypatch):
    monkeypatch.chdir(examples_folder)
    monkeypatch.delenv("DO_NOT_TRACK", raising=False)
    done = doctest.testmod(importlib.import_module(name))
    assert done.attempted > 0
    assert done.failed == 0


def test_public_names_have_examples():
    assert {
        "hubbub.client.encoder",
        "hubbub.client.telemetry",
        "hubbub.client.testing",
        "hubbub.decoder.comparing",
        "hubbub.decoder.pipeline",
        "hubbub.inference.categories.decoding",
        "hubbub.inference.counts",
        "hubbub.inference.decoding",
        "hubbub.inference.testing.multiple_testing",
        "hubbub.inference.trends.changes",
        "hubbub.protocol.records",
        "hubbub.protocol.params",
        "hubbub.protocol.registry",
        "hubbub.release.dataset",
        "hubbub.reporting.estimates",
    } <= set(modules_with_examples())
