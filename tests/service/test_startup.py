"""The command: it starts, or says in one line why it doesn't."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import programs
from factories import make_metric, make_params, registry_toml
from hubbub.client import Metric
from hubbub.collector import main
from hubbub.simulations import running_collector
from programs import forked_collector
from service.posting import SECONDS, make_batch, post, stored_count

_IMPORTED_LATE = {
    "asyncpg",
    "jinja2",
    "multiprocessing",
    "pyarrow",
    "rich",
    "scipy",
    "sqlalchemy.dialects.postgresql",
}
"""The libraries that made most of a start's CPU time, before they were imported by need."""


@pytest.mark.parametrize("command", ["hubbub-collector", "hubbub-decoder", "hubbub-simulate"])
def test_programs_are_installed(command):
    done = subprocess.run(
        [Path(sys.executable).with_name(command), "--help"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: {command}" in done.stdout


def test_collector_listens_before_it_imports_what_few_need(metrics_file, database, capfd):
    """A new store in a file, no admin listener, no variables: the start that is most frequent."""
    program = ("-X", "importtime", "-m", "hubbub.collector")
    with running_collector(metrics_file, database, program=program):
        lines = capfd.readouterr().err.splitlines()
    imported = {line.split("|")[-1].strip() for line in lines if line.startswith("import time:")}
    assert {"hubbub.collector.serving.server", "sqlalchemy.dialects.sqlite"} <= imported
    assert not imported & _IMPORTED_LATE


def test_ipv6_address_is_announced_as_a_url(metrics_file, database):
    with forked_collector(metrics_file, database, ["--host", "::1"]) as collector:
        assert collector.url.startswith("http://[::1]:")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "can't be read"),
        ("application = ", "not valid TOML"),
        ('application = "com.example.browser"', "metrics: must be at least one table"),
        (registry_toml().replace("k = 128", "k = 100"), "metrics.homepage.k = 100"),
        (registry_toml() + "colour = 1", "unknown key 'colour'"),
    ],
)
def test_bad_registry_is_explained(tmp_path, database, content, fault):
    metrics = tmp_path / "bad.toml"
    if content is not None:
        metrics.write_text(content, encoding="utf-8")
    assert fault in _refusal_at_once(metrics, f"sqlite:///{database}")
    assert not database.exists()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root@localhost/hubbub",
        "hubbub.db",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///hubbub.db?timeout=never",
    ],
)
def test_store_of_another_kind_is_refused(metrics_file, url):
    assert f"store {url!r}: must be sqlite:///PATH" in _refusal_at_once(metrics_file, url)


def test_store_in_a_missing_folder_is_explained(metrics_file, tmp_path):
    url = f"sqlite:///{tmp_path}/missing/hubbub.db"
    told = _refusal(metrics_file, url)
    assert f"store {url!r}: unable to open database file; does {tmp_path}/missing exist" in told


def test_store_that_is_no_database_is_explained_and_left_alone(metrics_file, tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, " * 100, encoding="utf-8")
    assert "file is not a database" in _refusal(metrics_file, f"sqlite:///{letter}")
    assert letter.read_text(encoding="utf-8") == "Dear reader, " * 100


def test_port_in_use_is_explained(metrics_file, database):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = _refusal(metrics_file, f"sqlite:///{database}", "--port", port)
    assert f"--port {port}" in message
    assert "address already in use" in message


@pytest.mark.long
def test_port_of_another_collector_with_workers_is_not_shared(metrics_file, database, tmp_path):
    with forked_collector(metrics_file, database, ["--workers", "2"]) as collector:
        port = collector.url.rpartition(":")[2]
        options = ("--workers", "2", "--port", port)
        assert "Address already in use" in _refusal(
            metrics_file, f"sqlite:///{tmp_path}/other.db", *options
        )


def test_parameters_changed_under_the_same_version_are_refused(metrics_file, database):
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch()).status == 201
    usual = metrics_file.read_text(encoding="utf-8")
    metrics_file.write_text(usual.replace("f = 0.5", "f = 0.25"))
    message = _refusal(metrics_file, f"sqlite:///{database}")
    assert "metrics.homepage: version 1" in message
    assert "f from 0.5 to 0.25" in message
    assert "need a new version" in message
    metrics_file.write_text(usual)
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch()).status == 201
    assert stored_count(database) == 6


def test_changed_parameters_under_a_new_version_are_stored_apart(metrics_file, database):
    old, new = make_metric(), make_metric(version=2, params=make_params(k=64))
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch(3, old)).status == 201
    metrics_file.write_text(registry_toml(new))
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch(5, new)).status == 201
    assert _counts(database, old, new) == [3, 5]
    metrics_file.write_text(registry_toml(old))
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch(3, old)).status == 201
    assert _counts(database, old, new) == [6, 5]


def _counts(database: Path, *metrics: Metric) -> list[int]:
    return [stored_count(database, metric) for metric in metrics]


def _refusal_at_once(metrics: Path, store: str, *options: str) -> str:
    """Return what is said of settings that are refused before anything is opened."""
    given = ["serve", "--metrics", str(metrics), "--store", store, "--port", "0", *options]
    said = CliRunner().invoke(main, given)
    assert said.exit_code not in {0, None}
    assert isinstance(said.exception, SystemExit)
    assert said.stdout == ""
    assert "Error: " in said.stderr
    return said.stderr


def _refusal(metrics: Path, store: str, *options: str) -> str:
    """Start a collector that can't start; return the message, which must be one for people."""
    given = ("--metrics", str(metrics), "--store", store, "--port", "0", *options)
    done = programs.run("hubbub.collector", "serve", *given, timeout=SECONDS)
    assert done.returncode not in {0, None}
    assert "listening" not in done.stdout
    assert "Traceback" not in done.stderr
    assert "Error: " in done.stderr
    return done.stderr
