"""Files that other programs read: workflows, dependabot, the citation, Compose."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_file_has_the_form_that_its_reader_expects(schema, pattern):
    files = sorted(ROOT.glob(pattern))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_workflows_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = set()
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            run |= set(job.get("strategy", {}).get("matrix", {}).get("target", []))
            for step in job["steps"]:
                for words in re.findall(r"\bmake ([a-z- ]+)", step.get("run", "")):
                    run |= set(words.split())
    assert run - targets - {"docs"} == set()
    assert {"lint", "test", "attacks", "dist", "test-lowest"} <= run


def test_workflows_test_each_python_that_the_package_names():
    pyproject = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'Python :: (3\.\d+)"', pyproject)
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    for job in ("test", "dist"):
        assert jobs[job]["strategy"]["matrix"]["python"] == named
