"""`hubbub-decoder decode` and `privacy` on open-string metrics: what makes no sense is named."""

import asyncio
import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from factories import make_metric, make_params, registry_toml
from hubbub.decoder.cli import main
from hubbub.decoder.options import MIN_REPORTS
from hubbub.protocol import Metric, OpenStringType
from hubbub.storage import MetricVersion, NewBatch, open_store
from unit.collector.forgeries import records_of

DAY = dt.date(2026, 11, 1)
STEPS, COHORTS, BITS = (2, 4), 8, 32
NOISE = make_params(f=0.25, p=0.2, q=0.6)
WORDS = make_metric(
    "words", metric_type=OpenStringType(STEPS, COHORTS), params=NOISE._replace(k=BITS)
)


@pytest.fixture
def registry(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(WORDS), encoding="utf-8")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def store_of(folder: Path, metric: Metric, cohorts: Sequence[int]) -> str:
    """Return the address of a store with just enough reports of pure noise, of these cohorts."""
    rng = np.random.default_rng(5)
    bits = rng.random((MIN_REPORTS, metric.params.k)) < metric.params.p_star
    drawn = rng.choice(cohorts, size=MIN_REPORTS)
    key, url = MetricVersion(metric.name, metric.version), f"sqlite:///{folder}/hubbub.db"

    async def fill() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            await store.append([NewBatch(bytes(16), {key: records_of(bits, drawn)})], DAY)

    asyncio.run(fill())
    return url


@pytest.mark.parametrize("silent", range(len(STEPS) + 1))
def test_a_step_without_reports_is_named(registry, tmp_path, silent):
    """Clients draw their step, so an empty one means that something else is wrong."""
    heard = [c for c in range(WORDS.params.m) if c // COHORTS != silent]
    url = store_of(tmp_path, WORDS, heard)
    result = run("decode", "words", "--metrics", registry, "--store", url)
    assert result.exit_code == 1
    what = "whole strings" if silent == len(STEPS) else f"{STEPS[silent]} bytes"
    assert f"step {silent + 1} of 3, {what}: no reports in its cohorts" in result.stderr
    assert result.stdout == ""


def test_privacy_of_open_strings_is_that_of_a_string_with_one_hash(tmp_path):
    """Neither the steps nor the cohorts change what is revealed, after shuffling either."""
    one_hash = make_metric("listed", params=NOISE._replace(k=BITS, h=1, m=COHORTS))
    assert one_hash.params[:2] == WORDS.params[:2]
    path, output = tmp_path / "metrics.toml", tmp_path / "privacy.json"
    path.write_text(registry_toml(WORDS, one_hash), encoding="utf-8")
    result = run("privacy", path, "--reports", "1e5", "--days", "30", "--output", output)
    assert result.exit_code == 0, result.output
    metrics = json.loads(output.read_text(encoding="utf-8"))["metrics"]
    figures, listed = (
        {key: figure["value"] for key, figure in metrics[name].items()}
        for name in ("words", "listed")
    )
    # More cohorts tell more clients apart.
    assert figures.pop("linked_clients") > listed.pop("linked_clients")
    assert {k: v for k, v in figures.items() if not k.startswith("linked")} == (
        {k: v for k, v in listed.items() if not k.startswith("linked")}
    )
    p_star, q_star = 0.25, 0.55  # .2 + (.6 - .2) / 8, .6 - (.6 - .2) / 8
    odds = q_star * (1 - p_star) / (p_star * (1 - q_star))
    assert figures["epsilon_report"] == pytest.approx(np.log(odds))
    assert figures["epsilon_permanent"] == pytest.approx(2 * np.log((1 - 0.125) / 0.125))
    assert 0 < figures["central_epsilon"] < figures["epsilon_report"]
    assert 1 < figures["reports_known_0.5"] < figures["reports_known_0.99"]
