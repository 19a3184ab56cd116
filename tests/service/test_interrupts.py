"""Ctrl-C at random moments, while a command imports its libraries or soon after: no traceback."""

import random
import signal
import subprocess
import sys
import time

import pytest

from parameters import number_of_runs

TRIALS = number_of_runs(9)
# As the installed script is, but it says when Python has got as far as to our first line; and it
# takes Ctrl-C as on a terminal, though shells let what runs in the background ignore it.
SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from hubbub.protocol.commands import quiet_interrupts
quiet_interrupts()
print("here", flush=True)
from hubbub.{}.cli import main
main()
"""


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("decoder", ("decode", "homepage", "--metrics", "{1}", "--candidates", "-")),
        ("simulations", ("run", "--reports", "1e11", "--output", "{0}/new")),
        ("collector", ("export", "homepage", "--store", "sqlite:///{0}/none.db")),
    ],
)
def test_ctrl_c_during_imports_is_quiet(tmp_path, metrics_file, package, command):
    """The first two wait for ever if nobody interrupts them; the third may be over before."""
    arguments = [argument.format(tmp_path, metrics_file) for argument in command]
    moments = random.Random(len(package))  # noqa: S311 - delays, not secrets
    for _ in range(TRIALS):
        started = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(package), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with started as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "here\n"
            time.sleep(moments.uniform(0, 1.2))
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130 or package == "collector"
            assert "Traceback" not in process.stderr.read()
