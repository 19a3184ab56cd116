"""A command of the collector's, run to its end."""

import subprocess
import sys

from service.posting import SECONDS


def run_collector_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `hubbub-collector` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "hubbub.collector", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
