"""What the site says: commands that exist, and tables with their origins."""

import csv
import datetime as dt
import re
import runpy
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from hubbub.collector import main as collector
from hubbub.decoder.cli import main as decoder
from hubbub.release.cli import main as release
from hubbub.simulations import main as simulate
from website.tables import MEASURED, origins

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS: dict[str, click.Command] = {
    "hubbub-collector": collector,
    "hubbub-decoder": decoder,
    "hubbub-release": release,
    "hubbub-simulate": simulate,
}


def with_subcommands(command: click.Command) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return [command]
    context = click.Context(command)
    below = [command.get_command(context, name) for name in command.list_commands(context)]
    return [command, *(each for sub in below if sub for each in with_subcommands(sub))]


def help_text(command: click.Command) -> str:
    """Return what a command's help says, without its usage and its subcommands'."""
    words = [getattr(option, "help", None) for option in command.params]
    return "\n".join([command.help or "", *filter(None, words)])


COMMANDS = [each for program in PROGRAMS.values() for each in with_subcommands(program)]


MODULE = "PYTHONPATH=tests .venv/bin/python -m "


def documented_commands(programs: Iterable[str] = PROGRAMS) -> list[str]:
    """Return each indented command of some programs, in pages and in help, and of tables, once."""
    texts = [*(page.read_text() for page in PAGES), *map(help_text, COMMANDS)]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    lines += [f"    {command}" for each in origins().values() for command in each["commands"]]
    starts = tuple(f"{indent}{program} " for program in programs for indent in ("    ", "  "))
    return sorted({" ".join(line.split()) for line in lines if line.startswith(starts)})


def find_command(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command that words begin with, its context, and the other words."""
    program, *words = words
    command = PROGRAMS[program]
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group) and words:
        word = words.pop(0)
        found = command.get_command(context, word)
        assert found is not None, word
        command, context = found, click.Context(found, info_name=word, parent=context)
    return command, context, words


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_and_their_options_exist(line):
    words = shlex.split(re.sub(r"\s[>|].*", "", line), comments=True)
    command, context, words = find_command(words)
    words = [word for word in words if word != "..."]
    command.make_parser(context).parse_args(args=words)


@pytest.mark.parametrize("line", documented_commands([MODULE.strip()]))
def test_documented_modules_and_their_options_exist(line, monkeypatch, capsys):
    module, *words = shlex.split(line.removeprefix(MODULE), comments=True)
    named = [word for word in words[:1] if not word.startswith(("-", "["))]
    monkeypatch.setattr(sys, "argv", [module, *named, "--help"])
    monkeypatch.delitem(sys.modules, f"{module}.__main__", raising=False)  # runpy would warn
    with pytest.raises(SystemExit) as left:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert not left.value.code
    known = set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out))
    assert known.issuperset(re.findall(r"(?<!\S)\[?(--[a-z][\w-]*)", " ".join(words)))


@pytest.mark.parametrize("line", documented_commands(["make"]))
def test_documented_targets_exist(line):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in line.split("#")[0].split()[1:]:
        assert "=" in target or f"\n{target}:" in makefile


def test_measured_tables_are_on_a_page_and_say_what_measured_them():
    tables = {path.stem: path for path in (ROOT / "docs/measured/data").glob("*.csv")}
    linked = [link for page in PAGES for link in MEASURED.findall(page.read_text())]
    assert sorted(Path(link).stem for link in linked) == sorted(tables) == sorted(origins())
    for name, path in tables.items():
        head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
        assert len(set(head)) == len(head), name
        assert {len(row) for row in rows} == {len(head)}, name
        assert isinstance(origins()[name]["date"], dt.date), name
        assert origins()[name]["commands"], name


def flags(command: click.Command) -> set[str]:
    """Return the names of a command's options, and of those below it."""
    options = [option for each in with_subcommands(command) for option in each.params]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_commands_and_options_that_help_names_exist(command):
    text, known = help_text(command), flags(command)
    for mention in re.findall(rf"`((?:{'|'.join(PROGRAMS)}) [^`]+)`", text):
        named, _, words = find_command(mention.split())
        assert flags(named).issuperset(word for word in words if word.startswith("--"))
        known |= flags(named)
    assert known.issuperset(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def test_links_into_the_site_lead_to_headings():
    """Those of pages outside of docs; `make docs` follows the others."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("client/*/README.md")]:
        text = page.read_text(encoding="utf-8")
        for path, heading in re.findall(r"\]\((?!https?:)([^)\s#]+)#?([^)\s]*)\)", text):
            target = page.parent / path
            assert target.exists(), f"{page.name}: {path}"
            assert not heading or heading in _headings(target), f"{page.name}: {path}#{heading}"


def _headings(page: Path) -> set[str]:
    found = re.findall(r"(?m)^#+ (.*)", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in found}
