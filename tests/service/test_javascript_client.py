"""JavaScript clients, the real collector and the real decoder: what went in is found again."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hubbub.simulations.processes import Collector, running_collector
from unit.javascript.node import run_program

REGISTRY: dict[str, Any] = {
    "application": "com.example.browser",
    "metrics": {
        "homepage": {
            "version": 3,
            "type": "string",
            "description": "Home pages",
            "owner": "privacy@example.com",
            "expires": "2099-12-31",
            "k": 128,
            "h": 2,
            "m": 8,
            "f": 0.2,
            "p": 0.1,
            "q": 0.9,
        }
    },
}
CLIENTS = {"news.example.org": 1200, "example.com": 800, "Zürich \u65e5\u672c": 600, "": 400}
DECOYS = [f"site {i}.example.net" for i in range(100)]
# The rarest value's count is above 12 standard errors; its decoded count has p* = 0.18, q* = 0.82.
STANDARD_ERRORS = 6


def metrics_toml() -> str:
    """Return the same registry as the collector and the decoder read it."""
    entry = REGISTRY["metrics"]["homepage"]
    lines = [f'application = "{REGISTRY["application"]}"', "[metrics.homepage]"]
    for key, value in entry.items():
        plain = not isinstance(value, str) or key == "expires"
        lines.append(f"{key} = {value}" if plain else f'{key} = "{value}"')
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metrics.toml").write_text(metrics_toml(), encoding="utf-8")
    names = "".join(f"{name}\n" for name in [*CLIENTS, *DECOYS])
    (tmp_path / "names.txt").write_text(names, encoding="utf-8")
    return tmp_path


def report(collector: Collector) -> dict[str, int]:
    job = {"registry": REGISTRY, "endpoint": collector.url, "metric": "homepage"}
    return dict(run_program("fleet.js", {**job, "clients": CLIENTS}))


def decode(folder: Path) -> dict[str, dict[str, str]]:
    """Return the decoder's row of each candidate."""
    command = [sys.executable, "-m", "hubbub.decoder", "decode", "homepage"]
    command += ["--metrics", "metrics.toml", "--store", "sqlite:///hubbub.db"]
    command += ["--candidates", "names.txt", "--output", "result.csv"]
    command += ["--alpha", "1e-7", "--correction", "bonferroni"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    with (folder / "result.csv").open(encoding="utf-8", newline="") as file:
        return {row["string"]: row for row in csv.DictReader(file)}


def test_collector_takes_and_decoder_finds_what_javascript_clients_report(folder: Path) -> None:
    """3,000 clients with secrets of their own, 4 values among 104 candidates, nothing seeded.

    P(false alarm) < 1e-6: a count misses by 6 standard errors with probability 2e-9, a decoy is
    detected with at most 1e-7, and a value goes undetected only if its count misses by as much.
    """
    with running_collector(folder / "metrics.toml", folder / "hubbub.db") as collector:
        total = sum(CLIENTS.values())
        assert report(collector) == {"recorded": total, "delivered": total, "dropped": 0}
    rows = decode(folder)
    assert {name for name, row in rows.items() if row["detected"] == "true"} == set(CLIENTS)
    for name, count in CLIENTS.items():
        row = {key: float(rows[name][key]) for key in ("count", "std_error")}
        assert abs(row["count"] - count) < STANDARD_ERRORS * row["std_error"]
        assert row["std_error"] < 0.1 * count, "too few clients for a test that could fail"
