"""What `make dist` has built, and the interpreters of this machine in which it is tried."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unit.javascript.node import NODE

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
BUILDER = ROOT / "out" / "build" / "bin" / "python"
"""What has built it, of build-requirements.txt alone."""
PYTHONS = [
    name
    for name in (f"python3.{minor}" for minor in range(11, 15))
    # A shim of pyenv is found and may not run: PYENV_VERSION=3.11:3.12 names what it starts.
    if shutil.which(name)
    and subprocess.run([name, "-V"], capture_output=True, check=False).returncode == 0
]
NODES = [str(NODE), *filter(None, [shutil.which("node")])]


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Run a program, which must succeed; return what it prints."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def built(pattern: str) -> Path:
    """Return the one file of dist/ that matches."""
    (path,) = DIST.glob(pattern)
    return path


def install(python: str, folder: Path, wanted: str) -> Path:
    """Install what is wanted in an empty environment; return its interpreter."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    pip = (inside, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    run(*pip, wanted)
    return inside


@pytest.fixture(scope="session")
def all_extras(tmp_path_factory) -> Path:
    """Return the interpreter of an environment with every extra that users install."""
    folder = tmp_path_factory.mktemp("extras") / "venv"
    return install(sys.executable, folder, f"{built('*.whl')}[all]")
