"""The command `hubbub-collector`: its subcommands, its settings, its keys, what it logs."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib

import programs
from hubbub.client import Telemetry
from programs import forked_collector
from service.posting import SECONDS, make_batch, post, stored_count


def run(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    environ = {**os.environ, "COLUMNS": "80", **(environment or {})}
    return programs.run("hubbub.collector", *arguments, environment=environ, timeout=SECONDS)


def new_key(*arguments: str) -> tuple[str, str]:
    """Return a new secret and the lines for the configuration."""
    made = run("token", *arguments)
    assert made.returncode == 0, made.stderr
    return made.stdout.removesuffix("\n"), made.stderr


def test_help_lists_the_subcommands_without_importing_them():
    program = (
        "import sys; from hubbub.collector.cli import main"
        "; main(['--help'], standalone_mode=False)"
        "; heavy = {'aiohttp', 'sqlalchemy', 'pydantic', 'numpy', 'pyarrow'} & sys.modules.keys()"
        "; assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_token_prints_the_secret_alone_and_only_its_hash_for_the_configuration():
    secret, lines = new_key("--ingest", "--name", "browser", "--expires", "2027-12-31")
    assert re.fullmatch(r"hub_ingest_[A-Za-z0-9_-]{43}", secret)
    assert secret not in lines
    entry = tomllib.loads(lines)["ingest_keys"]["browser"]
    assert entry["sha256"] == hashlib.sha256(secret.encode()).hexdigest()
    assert entry["expires"].isoformat() == "2027-12-31"


def test_admin_token_is_told_from_a_key():
    secret, lines = new_key("--admin")
    assert secret.startswith("hub_admin_")
    assert tomllib.loads(lines)["admin_tokens"].keys() == {"main"}


def test_a_key_is_needed_and_two_work_at_once(metrics_file, database, tmp_path, capfd):
    old, old_lines = new_key("--name", "old")
    new, new_lines = new_key("--name", "new")
    expired, expired_lines = new_key("--name", "expired", "--expires", "2020-01-01")
    file = tmp_path / "collector.toml"
    file.write_text(old_lines + new_lines + expired_lines, encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(file)]) as collector:
        for key in (old, new):
            headers = {"Authorization": f"Bearer {key}"}
            assert post(collector.url, make_batch(2), headers=headers).status == 201
        for headers in ({}, {"Authorization": f"Bearer {expired}"}, {"Authorization": "Bearer x"}):
            assert post(collector.url, make_batch(2), headers=headers).status == 401
        with_key = Telemetry(metrics_file, collector.url, tmp_path / "one", ingest_key=new)
        without = Telemetry(metrics_file, collector.url, tmp_path / "two")
        for telemetry in (with_key, without):
            telemetry.record("homepage", "example.com")
            assert telemetry.flush(SECONDS)
            telemetry.close()
        collector.stop()
    assert with_key.status().delivered == 1
    assert without.status().dropped == {"refused by the collector: ingest key": 1}
    assert stored_count(database) == 2 * 2 + 1
    said = capfd.readouterr().err
    for key in (old, new, expired):
        assert key[11:] not in said


def test_logs_are_json_without_times(metrics_file, database, capfd):
    capfd.readouterr()
    with forked_collector(metrics_file, database, ["--log-level", "debug"]) as collector:
        assert post(collector.url, make_batch()).status == 201
        assert post(collector.url, b"nonsense").status == 400
        collector.stop()
    for line in capfd.readouterr().err.splitlines():
        said = json.loads(line)
        assert {"event", "level"} <= said.keys()
        assert "time" not in said
