"""The tutorial, typed as it stands: an app of one's own, a crowd, a result."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

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
        place = Path(sys.executable).with_name(program)
        return _output([place, *arguments], tmp_path)

    run("hubbub-collector init")
    with forked_collector(tmp_path / "metrics.toml", tmp_path / "hubbub.db") as collector:
        for name, script in scripts.items():
            here = script.replace("http://127.0.0.1:8100", collector.url)
            assert here != script, name
            _output([sys.executable, "-c", here], tmp_path)
    run("hubbub-decoder decode")
    rows = csv.DictReader((tmp_path / "result.csv").read_text(encoding="utf-8").splitlines())
    shares = {row["category"]: float(row["proportion"]) for row in rows}
    assert abs(shares["dark"] - 0.25) < 0.1
    assert "epsilon" in run("hubbub-decoder privacy")


def _output(command: list[str | Path], folder: Path) -> str:
    home = os.environ | {"HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=home, check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout
