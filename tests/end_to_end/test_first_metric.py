"""The tutorial, typed as it stands: an app of one's own, a crowd, a result."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import programs
from programs import forked_collector

PAGE = Path(__file__).parents[2] / "docs" / "learn" / "first-metric.md"


def test_first_metric_is_reported_and_decoded(tmp_path):
    """A quarter of 5,000 like it dark: further off than 10 points with P < 1e-6 (8 deviations)."""
    text = PAGE.read_text(encoding="utf-8").replace(" \\\n", "")
    scripts = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL))
    assert list(scripts) == ["app.py", "crowd.py"]

    def run(words: str) -> str:
        (line,) = (x for x in text.splitlines() if x.startswith(f"    {words} "))
        program, *arguments = shlex.split(line)
        done = programs.run(program.replace("-", "."), *arguments, folder=tmp_path)
        done.check_returncode()
        return done.stdout

    run("hubbub-collector init")
    with forked_collector(tmp_path / "metrics.toml", tmp_path / "hubbub.db") as collector:
        for name, script in scripts.items():
            here = script.replace("http://127.0.0.1:8100", collector.url)
            assert here != script, name
            home = os.environ | {"HOME": str(tmp_path)}
            run_python = [sys.executable, "-c", here]
            subprocess.run(run_python, cwd=tmp_path, env=home, check=True, timeout=120)
    run("hubbub-decoder decode")
    rows = csv.DictReader((tmp_path / "result.csv").read_text(encoding="utf-8").splitlines())
    shares = {row["category"]: float(row["proportion"]) for row in rows}
    assert abs(shares["dark"] - 0.25) < 0.1
    assert "epsilon" in run("hubbub-decoder privacy")
