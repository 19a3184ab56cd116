"""JavaScript clients, the real collector and the real decoder: what went in is found again."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import programs
from hubbub.simulations import Collector
from programs import forked_collector
from unit.javascript.node import CLIENT, run_node, run_program

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
# The rarest value's count is 12 to 20 standard errors; one of 6 or so would be detected.
STANDARD_ERRORS = 6


# What a page has and Node hasn't: a localStorage, and its own files by a relative address.
PAGE = """
import { readFileSync } from "node:fs";
const kept = new Map();
Object.defineProperty(globalThis, "localStorage", { value: {
  getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text),
  removeItem: (key) => kept.delete(key) } });
const network = globalThis.fetch;
globalThis.fetch = async (address, init) =>
  init ? network(address, init) : new Response(readFileSync(address));
"""


def metrics_toml() -> str:
    """Return the same registry as the collector and the decoder read it."""
    entry = REGISTRY["metrics"]["homepage"]
    lines = [f'application = "{REGISTRY["application"]}"', "[metrics.homepage]"]
    for key, value in entry.items():
        plain = not isinstance(value, str) or key == "expires"
        lines.append(f"{key} = {value}" if plain else f'{key} = "{value}"')
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "metrics.toml").write_text(metrics_toml(), encoding="utf-8")
    names = "".join(f"{name}\n" for name in [*CLIENTS, *DECOYS])
    (tmp_path / "names.txt").write_text(names, encoding="utf-8")
    return tmp_path


@pytest.fixture
def collector_url(folder) -> Iterator[str]:
    with forked_collector(folder / "metrics.toml", folder / "hubbub.db") as collector:
        yield collector.url


def report(collector: Collector) -> dict[str, int]:
    job = {"registry": REGISTRY, "endpoint": collector.url, "metric": "homepage"}
    return dict(run_program("fleet.js", {**job, "clients": CLIENTS}))


def decode(folder: Path) -> dict[str, dict[str, str]]:
    """Return the decoder's row of each candidate."""
    command = ["decode", "homepage", "--metrics", "metrics.toml", "--store", "sqlite:///hubbub.db"]
    command += ["--candidates", "names.txt", "--output", "result.csv"]
    command += ["--alpha", "1e-7", "--correction", "bonferroni", "--method", "regression"]
    programs.run("hubbub.decoder", *command, folder=folder).check_returncode()
    with (folder / "result.csv").open(encoding="utf-8", newline="") as file:
        return {row["string"]: row for row in csv.DictReader(file)}


def test_collector_takes_and_decoder_finds_what_javascript_clients_report(folder):
    """3,000 clients with secrets of their own, 4 values among 104 candidates, nothing seeded.

    P(false alarm) < 1e-6: a count misses by 6 standard errors with probability 2e-9, a decoy is
    detected with at most 1e-7, and a value goes undetected only if its p-value is above 1e-9: the
    rarest one's had at most 1.4e-19 in 1,789 simulated runs, and its logarithm to 10 an sd of 1.6.
    """
    with forked_collector(folder / "metrics.toml", folder / "hubbub.db") as collector:
        total = sum(CLIENTS.values())
        assert report(collector) == {"recorded": total, "delivered": total, "dropped": 0}
    rows = decode(folder)
    assert {name for name, row in rows.items() if row["detected"] == "true"} == set(CLIENTS)
    for name, count in CLIENTS.items():
        row = {key: float(rows[name][key]) for key in ("count", "std_error")}
        assert abs(row["count"] - count) < STANDARD_ERRORS * row["std_error"]
        assert row["std_error"] < 0.15 * count, "too few clients for a test that could fail"


def example(title: str) -> str:
    text = (CLIENT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"\*\*{title}\*\*.*?```js\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def run_example(script: str, folder: Path) -> dict[str, Any]:
    """Run it where the package is installed and metrics.json lies; return the status at its end."""
    (folder / "metrics.json").write_text(json.dumps(REGISTRY), encoding="utf-8")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "hubbub-client").symlink_to(CLIENT)
    (folder / "hubbub-client").symlink_to(CLIENT)
    program = folder / "app.mjs"
    program.write_text(f"{script}\nconsole.log(JSON.stringify(telemetry.status()));\n", "utf-8")
    done = run_node(program, folder=folder)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_readmes_example_for_node_delivers(folder, collector_url):
    script = example("In Node").replace("https://telemetry.example.com", collector_url)
    status = run_example(script, folder)
    assert (status["recorded"], status["delivered"], status["dropped"]) == (1, 1, {})
    (kept,) = (folder / "state").iterdir()
    assert kept.name.startswith("hubbub.com.example.browser.")
    assert "news.example.org" not in (kept / "text").read_text("utf-8")


def test_readmes_example_for_browsers_delivers(folder, collector_url):
    script = example("In a browser").replace("/telemetry", collector_url)
    status = run_example(f"{PAGE}\n{script}\nawait telemetry.flush();", folder)
    assert (status["recorded"], status["delivered"], status["dropped"]) == (1, 1, {})
