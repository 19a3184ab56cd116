"""Dimensions over real HTTP: two apps, a collector, its upkeep, an export, and the decoder."""

from __future__ import annotations

import json

import pytest

from factories import make_metric, make_params, registry_toml
from hubbub.client import Telemetry
from hubbub.decoder import decode_metric
from hubbub.protocol import EnumType, MetricError
from programs import forked_collector
from service.commands import run_collector_command

# Hardly any noise, so that few reports tell what was recorded.
_PARAMS = make_params(f=1e-13, p=1e-13, q=1 - 1e-13)
_CLIENTS = 10


@pytest.fixture
def registry(tmp_path):
    metric = make_metric(
        "crash", metric_type=EnumType(("none", "gpu")), params=_PARAMS, max_values=1
    )
    application, rest = registry_toml(metric).split("\n", 1)
    path = tmp_path / "metrics.toml"
    path.write_text(
        f'{application}\n[dimensions]\nplatform = ["mac", "linux"]\n{rest}'
        f'dimensions = ["platform"]\nmin_reports = {_CLIENTS}\n',
        encoding="utf-8",
    )
    return path


def _shares(estimates) -> dict[tuple[str, str], float]:
    rows = zip(estimates["platform"], estimates["category"], estimates["proportion"], strict=True)
    return {(platform, category): round(share, 6) for platform, category, share in rows}


def test_dimensions_are_decoded_apart(registry, database, tmp_path):
    with forked_collector(registry, database) as collector:
        for number in range(3 * _CLIENTS):
            platform = ("mac", "linux", "beos")[number % 3]
            state = tmp_path / f"state {number}"
            dimensions = {"platform": platform}
            with Telemetry(registry, collector.url, state, dimensions=dimensions) as telemetry:
                assert f"platform={platform}" in telemetry.preview("crash", "gpu").words or (
                    platform == "beos"
                )
                telemetry.record("crash", "gpu" if platform == "mac" else "none")
                telemetry.flush(30)
            assert telemetry.status().delivered == 1
    store = f"sqlite:///{database}"
    options = {"metrics": registry, "min_reports": 1, "by": "platform"}
    expected = {
        (platform, category): float((platform == "mac") == (category == "gpu"))
        for platform in ("mac", "linux", "other")
        for category in ("none", "gpu")
    }
    assert _shares(decode_metric("crash", store=store, **options)) == expected
    out = tmp_path / "out"
    exported = run_collector_command("export", "--store", store, "--to", str(out))
    assert exported.returncode == 0, exported.stderr
    [manifest] = out.rglob("_manifest.json")
    files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    assert sorted(file.get("slice", "") for file in files) == ["", "platform=linux", "platform=mac"]
    assert _shares(decode_metric("crash", store=f"parquet:{out}", **options)) == expected


def test_mistyped_values_raise_in_development(registry, tmp_path):
    with pytest.raises(MetricError, match=r"dimensions\.platform = 'Mac': must be mac, linux"):
        Telemetry(
            registry, "http://127.0.0.1:9", tmp_path, dimensions={"platform": "Mac"},
            development=True,
        )  # fmt: skip
