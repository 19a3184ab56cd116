"""Examples in docstrings are true: each runs, and returns what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ">>> "


def modules_with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        for folder in sorted(ROOT.glob("*/hubbub"))
        for path in sorted(folder.rglob("*.py"))
        if EXAMPLE in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_a_module_are_true(name):
    done = doctest.testmod(importlib.import_module(name))
    assert done.attempted > 0
    assert done.failed == 0


def test_what_users_call_most_has_examples():
    assert {
        "hubbub.inference.categories.decoding",
        "hubbub.inference.counts",
        "hubbub.inference.decoding",
        "hubbub.inference.testing.multiple_testing",
        "hubbub.inference.trends.changes",
        "hubbub.protocol.counts",
        "hubbub.protocol.params",
        "hubbub.reporting.trends",
    } <= set(modules_with_examples())
