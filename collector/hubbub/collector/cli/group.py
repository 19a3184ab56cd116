"""The command `hubbub-collector`.

Each subcommand is imported when it is called: `--help` needs no web framework, and maintaining a
store needs no Parquet.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click


class _Subcommand(NamedTuple):
    module: str
    words: str


_SUBCOMMANDS = {
    "serve": _Subcommand("serve", "Receive reports until SIGTERM."),
    "token": _Subcommand("token", "Make an ingest key or an admin token."),
    "maintain": _Subcommand("upkeep", "Merge segments and forget what is too old."),
    "delete": _Subcommand("upkeep", "Delete the reports of a metric."),
    "export": _Subcommand("exchange", "Write reports as Parquet."),
    "import": _Subcommand("exchange", "Read reports from Parquet or CSV."),
}


class _LateGroup(click.Group):
    """A group that imports a subcommand when it is called, and lists all without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order in which a person meets them."""
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a subcommand."""
        if cmd_name not in _SUBCOMMANDS:
            return None
        module = importlib.import_module(f"hubbub.collector.cli.{_SUBCOMMANDS[cmd_name].module}")
        commands = (found for found in vars(module).values() if isinstance(found, click.Command))
        return next(command for command in commands if command.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, known.words) for name, known in _SUBCOMMANDS.items()])


@click.group(cls=_LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Receive noisy reports over HTTP and store them, unlinkably and durably."""
