"""How a command's process begins, and ends."""

import subprocess
import sys

# Its object is in a cycle, which only a collection finds; standard error is unbuffered.
SCRIPT = """
import sys
from hubbub.protocol.commands import begin_command
class Own:
    def __init__(self):
        self.own = self
    def __del__(self, write=sys.stderr.write):
        write("collected")
{}
own = Own()
"""


def words_of(first_line: str) -> str:
    script = SCRIPT.format(first_line)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return found.stderr.decode()


def test_a_command_ends_without_a_last_collection():
    assert words_of("") == "collected"
    assert words_of('begin_command("decoder")') == ""
