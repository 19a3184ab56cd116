"""What the site says: commands that exist, words that are plain."""

import re
import shlex
from pathlib import Path

import click
import pytest

from hubbub.collector.cli import main as collector
from hubbub.decoder.cli import main as decoder
from hubbub.protocol.keys import METRIC
from hubbub.release.cli import main as release
from hubbub.simulations.cli import main as simulate
from website.tables import registry_keys, type_keys

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS: dict[str, click.Command] = {
    "hubbub-collector": collector,
    "hubbub-decoder": decoder,
    "hubbub-release": release,
    "hubbub-simulate": simulate,
}


def documented_commands() -> list[str]:
    """Return each indented command of our programs, as often as it stands anywhere."""
    lines = "\n".join(page.read_text() for page in PAGES).replace("\\\n", " ").splitlines()
    starts = tuple(f"    {program} " for program in PROGRAMS)
    return sorted({" ".join(line.split()) for line in lines if line.startswith(starts)})


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_and_their_options_exist(line):
    program, *words = shlex.split(re.sub(r"\s[>|].*", "", line), comments=True)
    command = PROGRAMS[program]
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group):
        word = words.pop(0)
        found = command.get_command(context, word)
        assert found is not None, word
        command, context = found, click.Context(found, info_name=word, parent=context)
    words = [word for word in words if word != "..."]
    command.make_parser(context).parse_args(args=words)


def test_many_commands_are_documented():
    assert len(documented_commands()) > 50


def test_every_key_of_a_metric_is_explained():
    shown = registry_keys() + type_keys()
    assert all(f"`{key}`" in shown for key in METRIC)
