"""The command `hubbub-collector`: its subcommands, its settings, its keys, what it logs."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib

import programs
from service.posting import SECONDS


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
