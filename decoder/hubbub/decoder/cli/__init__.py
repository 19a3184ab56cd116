"""The command `hubbub-decoder`.

Commands import what they need inside of their functions: numpy, SciPy and the store's drivers take
a second to import, and a person who asks for --help shouldn't wait for them.
"""

from __future__ import annotations

from hubbub.protocol import begin_command

begin_command("decoder")  # before the imports that take longest

import gc
import os

import click

from hubbub.reporting import LazyGroup

_ALLOCATIONS = 50_000  # more than all imports make


@click.group(
    cls=LazyGroup,
    commands_in={
        "compare": "hubbub.decoder.cli.decode:compare",
        "decode": "hubbub.decoder.cli.decode:decode",
        "plan": "hubbub.planning.cli.plan:plan",
        "privacy": "hubbub.planning.cli.privacy:privacy",
        "watch": "hubbub.decoder.cli.watch:watch",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="hubbub")
def main() -> None:
    """Find which values noisy reports hold, and how often."""
    # Linear algebra takes one thread (`hubbub.decoder.cli.decode`); others would wait for work, and
    # waiting takes the processor's time, too. It is read once, when numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports leave no garbage, but make the collector look for it some hundred times.
    gc.set_threshold(_ALLOCATIONS)
