"""The commands of README and guides: what a reader is told to type works as it stands."""

import ast
import asyncio
import datetime as dt
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import programs
from hubbub.client.testing import RecordingTelemetry
from hubbub.protocol import Metric, OpenStringType, Records, Registry, record_width
from hubbub.simulations import SimulatedClients, as_records
from hubbub.storage import MetricVersion, NewBatch, open_store
from programs import forked_collector

FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def readme(request) -> str:
    return (request.config.rootpath / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def guides(request, readme) -> str:
    folder = request.config.rootpath / "docs" / "do"
    names = ("decode.md", "joint.md", "publish.md")
    return "\n".join([readme, *((folder / name).read_text(encoding="utf-8") for name in names)])


@pytest.fixture
def folder(request, tmp_path) -> Path:
    """Return a folder with the example's metrics.toml and some names."""
    example = request.config.rootpath / "docs" / "examples" / "metrics.toml"
    (tmp_path / "metrics.toml").write_bytes(example.read_bytes())
    names = ["search.example.org", *(f"site{i}.example.org" for i in range(20))]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return tmp_path


def command(readme: str, words: str) -> list[str]:
    text = readme.replace("\\\n", " ")
    (line,) = (x for x in text.splitlines() if x.startswith(f"    {words} "))
    return shlex.split(line)[1:]


def test_client_example_collector_and_decoder_work_together(readme, folder):
    (example,) = FENCE.findall(readme)
    serve = command(readme, "hubbub-collector")
    assert serve[:5] == ["serve", "--metrics", "metrics.toml", "--store", "sqlite:///hubbub.db"]
    with forked_collector(folder / "metrics.toml", folder / "hubbub.db") as collector:
        script = example.replace("https://telemetry.example.com", collector.url)
        assert script != example
        run = [sys.executable, "-c", script]
        home = os.environ | {"HOME": str(folder)}
        subprocess.run(run, cwd=folder, env=home, check=True, timeout=60)
    decode = command(readme, "hubbub-decoder decode search_engine")
    few = os.environ | {"HUBBUB_MIN_REPORTS": "1"}
    programs.run("hubbub.decoder", *decode, folder=folder, environment=few).check_returncode()
    lines = (folder / "result.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 22
    assert lines[1].startswith("search.example.org,")


def test_guides_record_values_that_their_registry_accepts(guides, folder):
    calls = [ast.parse(line.strip()) for line in guides.splitlines() if "telemetry.record(" in line]
    telemetry = RecordingTelemetry(folder / "metrics.toml")
    for call in calls:
        (statement,) = call.body
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        metric, value = map(ast.literal_eval, statement.value.args)
        telemetry.record(metric, value)
    assert len(telemetry.calls) == len(calls) >= 3
    refused = telemetry.status().dropped.keys() - {
        "already reported (one-time metric)",
        "already reported in this period",
    }
    assert not refused


def test_entries_that_guides_show_are_those_of_its_registry(guides, folder):
    """Each shows a part of the entry: what it shows is there."""
    text = (folder / "metrics.toml").read_text(encoding="utf-8")
    blocks = re.findall(
        r"(?:^    .*\n)+", re.sub(r"(?m)^\n(?=    )", "    \n", guides), re.MULTILINE
    )
    shown = [tomllib.loads(entry) for block in blocks for entry in _entries(block)]
    assert len(shown) >= 2
    for document in shown:
        for name, entry in document["metrics"].items():
            whole = tomllib.loads(text)["metrics"][name]
            assert {key: whole.get(key) for key in entry} == entry


def _entries(block: str) -> list[str]:
    lines = [line.strip() for line in block.splitlines()]
    if not any(line.startswith("[metrics.") for line in lines):
        return []
    entry = [line for line in lines if re.match(r"\[|\w+ = ", line)]
    return ["\n".join(entry)]


@pytest.mark.long
def test_open_strings_are_decoded_as_guides_say(guides, folder):
    """Everybody holds the one string, so each step sees it beyond any doubt."""
    metric = Registry.load(folder / "metrics.toml")["typed_words"]
    open_type = cast("OpenStringType", metric.type)
    rng = np.random.Generator(np.random.SFC64(7))
    clients = SimulatedClients(("kathmandu",), metric.params, rng, open_type)
    reports = clients.report(np.zeros(20_000, dtype=np.int64))
    store(folder, metric, as_records(*reports))
    assert "kathmandu" in decoded(guides, "typed_words", folder)


def test_joint_values_are_decoded_as_guides_say(guides, folder):
    """Everybody holds the one pair, so it is detected beyond any doubt."""
    metric = Registry.load(folder / "metrics.toml")["crash_by_driver"]
    params, rng = metric.params, np.random.default_rng(8)
    cohorts = rng.integers(0, params.m, 5_000)
    value = {"ended": "out of memory", "driver": "nvidia 535"}
    bits = rng.random((len(cohorts), params.k)) < params.p_star
    for row, cohort in zip(bits, cohorts.tolist(), strict=True):
        row[metric.type.bits(value, cohort, params).bit_length() - 1] = rng.random() < params.q_star
    packed = np.packbits(bits, axis=1, bitorder="little")
    store(folder, metric, as_records(cohorts, packed))
    drivers = "nvidia 535\nmesa 24.1\nintel 31\n"
    (folder / "drivers.txt").write_text(drivers, encoding="utf-8")
    shown = decoded(guides, "crash_by_driver", folder)
    (found,) = (line for line in shown.splitlines() if line.rstrip(" │").endswith("yes"))
    assert "out of memory" in found
    assert "nvidia 535" in found


def store(folder: Path, metric: Metric, data: bytes) -> None:
    """Make the store of the README's commands, with records of one metric."""
    records = Records(record_width(metric.params.k), data)
    key = MetricVersion(metric.name, metric.version)

    async def fill() -> None:
        async with open_store(f"sqlite:///{folder}/hubbub.db", create=True) as opened:
            await opened.declare([metric])
            await opened.append([NewBatch(bytes(16), {key: records})], dt.date(2026, 11, 1))

    asyncio.run(fill())


def decoded(readme: str, metric: str, folder: Path) -> str:
    """Return what the README's command for a metric prints."""
    decode = command(readme, f"hubbub-decoder decode {metric}")
    wide = os.environ | {"COLUMNS": "200"}
    done = programs.run("hubbub.decoder", *decode, folder=folder, environment=wide)
    done.check_returncode()
    return done.stdout


@pytest.mark.long
def test_a_table_is_published_as_guides_say(guides, folder):
    """The homepage that all but one have is released, and his isn't: P(alarm) < 1e-6."""
    homes = ["search.example.org"] * 1_999 + ["only.example.org"]
    users, minutes = [f"u{i}" for i in range(2_000)], [i % 60 for i in range(2_000)]
    table = {"user": users, "minutes": minutes, "homepage": homes}
    parquet.write_table(pa.table(table), folder / "visits.parquet")
    program = Path(sys.executable).with_name("hubbub-release")
    for words in ("init", "mean", "histogram", "ledger", "candidates"):
        line = command(guides, f"hubbub-release {words}")
        arguments, _, names = " ".join(line).partition(" > ")
        run: list[str | Path] = [program, *arguments.split()]
        done = subprocess.run(run, cwd=folder, check=True, capture_output=True, timeout=60)
        if names:
            (folder / names).write_bytes(done.stdout)
    lines = (folder / "homepages.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["search.example.org"]
    assert (folder / "names.txt").read_text(encoding="utf-8") == "search.example.org\n"
