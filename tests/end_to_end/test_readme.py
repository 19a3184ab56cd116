"""The README's words in the README's order: what it tells a reader to type works as it stands."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from hubbub.collector.store import MetricVersion, NewBatch, open_store
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.records import Records, record_width
from hubbub.protocol.registry import Registry
from hubbub.simulations.experiments.processes import running_collector
from hubbub.simulations.simulated_clients.clients import SimulatedClients, as_records

FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def readme(request: pytest.FixtureRequest) -> str:
    return (request.config.rootpath / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with the example's metrics.toml and some names."""
    example = request.config.rootpath / "docs" / "examples" / "metrics.toml"
    (tmp_path / "metrics.toml").write_bytes(example.read_bytes())
    names = ["news.example.org", *(f"site{i}.example.org" for i in range(20))]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return tmp_path


def command(readme: str, words: str) -> list[str]:
    """Return the one indented command that begins with these words, as an argument list."""
    text = readme.replace("\\\n", " ")
    (line,) = (x for x in text.splitlines() if x.startswith(f"    {words} "))
    return shlex.split(line)[1:]


def test_client_example_collector_and_decoder_work_together(readme: str, folder: Path) -> None:
    (example,) = FENCE.findall(readme)
    serve = command(readme, "hubbub-collector")
    assert serve[:5] == ["serve", "--metrics", "metrics.toml", "--store", "sqlite:///hubbub.db"]
    with running_collector(folder / "metrics.toml", folder / "hubbub.db") as collector:
        script = example.replace("https://telemetry.example.com", collector.url)
        assert script != example
        run = [sys.executable, "-c", script]
        home = os.environ | {"HOME": str(folder)}
        subprocess.run(run, cwd=folder, env=home, check=True, timeout=60)
    decode = [
        sys.executable,
        "-m",
        "hubbub.decoder",
        *command(readme, "hubbub-decoder decode homepage"),
    ]
    few = os.environ | {"HUBBUB_MIN_REPORTS": "1"}
    subprocess.run(decode, cwd=folder, env=few, check=True, capture_output=True, timeout=60)
    lines = (folder / "result.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 22
    assert lines[1].startswith("news.example.org,")


def test_open_strings_are_decoded_as_the_readme_says(readme: str, folder: Path) -> None:
    """Everybody holds the one string, so each step sees it beyond any doubt."""
    metric = Registry.load(folder / "metrics.toml")["typed_words"]
    open_type = cast("OpenStringType", metric.type)
    rng = np.random.Generator(np.random.SFC64(7))
    clients = SimulatedClients(("kathmandu",), metric.params, rng, open_type)
    reports = clients.report(np.zeros(20_000, dtype=np.int64))
    records = Records(record_width(metric.params.k), as_records(*reports))
    key = MetricVersion(metric.name, metric.version)

    async def fill() -> None:
        async with open_store(f"sqlite:///{folder}/hubbub.db", create=True) as store:
            await store.declare([metric])
            await store.append([NewBatch(bytes(16), {key: records})], dt.date(2026, 11, 1))

    asyncio.run(fill())
    decode = command(readme, "hubbub-decoder decode typed_words")
    run = [sys.executable, "-m", "hubbub.decoder", *decode]
    done = subprocess.run(run, cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    assert "kathmandu" in done.stdout


@pytest.mark.parametrize("job", ["plan", "privacy"])
def test_parameters_are_chosen_as_the_readme_says(readme: str, folder: Path, job: str) -> None:
    run = [sys.executable, "-m", "hubbub.decoder", *command(readme, f"hubbub-decoder {job}")]
    done = subprocess.run(run, cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    assert {"plan": "[metrics.example]", "privacy": "homepage"}[job] in done.stdout


def test_make_targets_that_the_readme_names_exist(
    readme: str, request: pytest.FixtureRequest
) -> None:
    makefile = (request.config.rootpath / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
    named = {
        t for line in re.findall(r"^    make ([a-z ]+)", readme, re.MULTILINE) for t in line.split()
    }
    assert {"demo", "test"} <= named <= targets


def test_links_lead_somewhere(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    pages = [*root.glob("*.md"), *root.glob("[a-z]*/*.md"), *root.glob("docs/**/*.md")]
    assert len(pages) > 10
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
