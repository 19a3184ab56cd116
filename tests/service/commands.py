"""A command of the collector's, run to its end."""

import subprocess

import programs
from service.posting import SECONDS


def run_collector_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return programs.run("hubbub.collector", *arguments, timeout=SECONDS)


def collector_output(*arguments: object) -> str:
    """Run `hubbub-collector` with these arguments, which must work; return what it prints."""
    done = run_collector_command(*map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout
