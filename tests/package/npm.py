"""npm and what it installs, with the Node that the tests install: `python -m package.npm ci`."""

import os
import subprocess
import sys
from pathlib import Path

from unit.javascript.node import CLIENT, NODE, SECONDS

REFUSALS = {"DO_NOT_TRACK", "HUBBUB_DISABLED"}
_NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
# npm's scripts look for node in PATH. Whoever runs the tests may have told apps not to track.
_ENVIRONMENT = {
    **{name: text for name, text in os.environ.items() if name not in REFUSALS},
    "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}",
}
if not os.access(Path.home(), os.W_OK):
    _ENVIRONMENT["npm_config_cache"] = str(CLIENT.parents[1] / "out" / "npm")


def npm(*arguments: str | Path, folder: Path) -> str:
    """Run npm, which must succeed; return what it prints."""
    return run(NODE, _NPM, *arguments, folder=folder)


def run(*command: str | Path, folder: Path) -> str:
    """Run a program, which must succeed; return what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    print(npm(*sys.argv[1:], folder=CLIENT))
