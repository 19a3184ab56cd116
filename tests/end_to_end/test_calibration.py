"""`make calibration` measures what tests/statistical only bounds; here, that it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


def test_calibration_prints_a_line_a_case(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "calibration", "--case", "none present, small"]
    command += ["--seeds", "3", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(request.config.rootpath / "tests")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    heading, _rule, line = (x for x in done.stdout.splitlines() if x.startswith("|"))
    assert re.search(r"\| +case +\|.*\| +seeds \| +coverage \|", heading)
    assert re.search(r"\| none present, small +\|.*\| +3 \| 0\.9\d\d ± 0\.0\d\d \|", line)
