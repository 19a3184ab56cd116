"""The examples in docs/deploy, given to the real collector."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest

import programs
from deploy_files import (
    FOLDER,
    PLACEHOLDERS,
    alerts,
    dockerfile,
    kubernetes,
    missing_series,
    pod,
    pod_environment,
    series_in,
    unit,
)
from hubbub.collector import generate_secret
from hubbub.protocol import Registry
from hubbub.simulations import Collector
from programs import forked_collector
from service.posting import Answer, make_batch, post, send, wait_until

_TOKEN, _TOKEN_HASH = generate_secret("admin")
_KEY, _KEY_HASH = generate_secret("ingest")
_HASHES = {
    "HUBBUB_COLLECTOR_INGEST_KEYS__BROWSER__SHA256": _KEY_HASH,
    "HUBBUB_COLLECTOR_ADMIN_TOKENS__PROMETHEUS__SHA256": _TOKEN_HASH,
}
_EPHEMERAL = [
    *("--host", "127.0.0.1", "--admin-host", "127.0.0.1", "--admin-port", "0"),
    *("--probe-host", "127.0.0.1", "--probe-port", "0"),
]


@pytest.fixture
def from_pod(tmp_path, database, monkeypatch) -> Iterator[Collector]:
    """Run a pod's configuration, on SQLite and on free ports, with keys that are known here."""
    for name, text in kubernetes()["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
    assert pod_environment().keys() == {"HUBBUB_COLLECTOR_STORE", *_HASHES}
    for name, value in _HASHES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HUBBUB_COLLECTOR_PUBLISH_SECONDS", "0.2")
    options = ["--config", str(tmp_path / "collector.toml"), *_EPHEMERAL]
    with forked_collector(tmp_path / "metrics.toml", database, options) as collector:
        yield collector


@pytest.mark.parametrize("name", ["collector.toml", "container.toml", "kubernetes.yaml"])
def test_collector_takes_the_configuration(name, tmp_path):
    file, environment = FOLDER / name, dict[str, str]()
    if name == "kubernetes.yaml":
        file = tmp_path / "collector.toml"
        file.write_text(kubernetes()["ConfigMap"]["data"]["collector.toml"])
        environment = dict(pod_environment())
    printed = _run("serve", "--config", str(file), "--print-config", environment=environment)
    assert printed.returncode == 0, printed.stderr
    told, given = tomllib.loads(printed.stdout), tomllib.loads(file.read_text())
    assert given.pop("ingest_keys", {}).keys() == told.get("ingest_keys", {}).keys()
    tokens = {"prometheus"} if environment else given.pop("admin_tokens", {}).keys()
    assert told.get("admin_tokens", {}).keys() == tokens
    assert given.items() <= told.items()
    assert "open-sesame" in PLACEHOLDERS["store"]
    assert "open-sesame" not in printed.stdout


def test_pod_answers_its_probes_and_takes_reports(from_pod):
    (container,) = pod()["containers"]
    paths = [
        container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    assert paths == ["/livez", "/livez", "/readyz"]
    from_pod.read_admin_url()
    probes = from_pod.read_probe_url()
    wait_until(lambda: all(send(probes, "GET", path).status == 200 for path in paths))
    assert post(from_pod.url, make_batch()).status == 401
    assert _post(from_pod).status == 201


def test_alerts_use_the_series_that_pods_publish(from_pod):
    """Before the first report, so that none of them waits for a series that only a fault makes."""
    admin, bearer = from_pod.read_admin_url(), {"Authorization": f"Bearer {_TOKEN}"}

    def there() -> dict[str, str]:
        return series_in(send(admin, "GET", "/metrics", headers=bearer).body.decode())

    wait_until(lambda: "hubbub_store_size_bytes" in there())  # what the first look finds
    missing = {each for rule in alerts() for each in missing_series(rule["expr"], there())}
    # A Pod has no certificate, and its keys don't end; slices are counted from the first report on.
    absent = {"hubbub_expiry_timestamp_seconds", "hubbub_slices"}
    assert {each.partition("{")[0] for each in missing} <= absent


def test_health_check_of_the_image_notices_a_dead_collector(metrics_file, database):
    (check,) = [i.command for i in dockerfile() if i.word == "HEALTHCHECK"]
    with forked_collector(metrics_file, database, ["--probe-port", "0"]) as collector:
        address = urlsplit(collector.read_probe_url()).netloc
        command = [sys.executable, *(part.replace("127.0.0.1:8102", address) for part in check[1:])]
        assert address in command[-1]
        assert subprocess.run(command, check=False).returncode == 0
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == 1
    assert b"refused" in done.stderr


def test_configuration_that_cannot_work_is_not_tried_again(tmp_path):
    """Under systemd, by the exit code that the unit names; whatever else happens is."""
    config = tmp_path / "collector.toml"
    config.write_text("max_reports = 0\n")
    done = _run("serve", "--config", str(config))
    assert unit()["Service.RestartPreventExitStatus"] == [str(done.returncode)]
    config.write_text(f'metrics = "{tmp_path}/missing.toml"\n')
    assert _run("serve", "--config", str(config)).returncode == 1
    assert unit()["Service.Restart"] == ["on-failure"]


def _post(collector: Collector) -> Answer:
    registry = Registry.parse(kubernetes()["ConfigMap"]["data"]["metrics.toml"])
    batch = make_batch(metric=registry["homepage"])
    return post(collector.url, batch, headers={"Authorization": f"Bearer {_KEY}"})


def _run(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return programs.run("hubbub.collector", *arguments, environment=environment or {})
