"""The command `hubbub-release`."""

from __future__ import annotations

from hubbub.protocol import begin_command

begin_command("release")  # before the imports that take longest

import click

from hubbub.release.cli.commands import GROUPS


class _Grouped(click.Group):
    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{each.name}", each.get_short_help_str(60)) for each in commands]
                )


@click.group(cls=_Grouped, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Publish facts about a table of raw data, with differential privacy for the people in it.

    \b
      hubbub-release init DATA --user-column ID --epsilon 3 --delta 1e-6 --ledger L.db
      hubbub-release histogram city --ledger L.db --epsilon 0.5 --delta 1e-7 --output cities.csv
      hubbub-release ledger L.db

    Every query spends part of the ledger's budget before it is answered. The curator of the data
    must be trusted; the readers of what is published needn't be. docs/understand/mechanisms.md
    explains all of it.
    """


for commands in GROUPS.values():
    for command in commands:
        main.add_command(command)
