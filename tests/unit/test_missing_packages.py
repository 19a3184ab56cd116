"""A command whose extra wasn't installed: one line that says how to install it."""

import subprocess
import sys

import pytest

WITHOUT = """
import importlib, sys
sys.modules[{missing!r}] = None
main = importlib.import_module("hubbub.{package}.cli").main
main({arguments!r}, prog_name="hubbub")
"""

ANSWERS = ["--application", "a.b", "--name", "c", "--values", "yes/no", "--clients", "1e5"]


@pytest.mark.parametrize(
    ("package", "missing", "arguments", "extra"),
    [
        ("collector", "click", [], "collector"),
        ("collector", "pydantic", ["serve", "--help"], "collector"),
        ("collector", "scipy", ["init", *ANSWERS], "collector,decoder"),
        ("decoder", "click", [], "decoder"),
        ("decoder", "numpy", ["privacy", "docs/examples/metrics.toml"], "decoder"),
        ("release", "click", [], "release"),
        ("simulations", "click", [], "simulations"),
    ],
)
def test_command_names_the_extra_that_it_lacks(package, missing, arguments, extra, request):
    program = WITHOUT.format(package=package, missing=missing, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    line = f"Error: the package {missing} is missing: pip install 'hubbub[{extra}]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)
