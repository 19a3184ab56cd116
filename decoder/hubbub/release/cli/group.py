"""The command `hubbub-release`."""

from __future__ import annotations

import click

from hubbub.release.cli.account import init, ledger
from hubbub.release.cli.queries import QUERIES


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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
    """  # noqa: D301 - click keeps the lines after a backspace as they are


main.add_command(init)
main.add_command(ledger)
for query in QUERIES:
    main.add_command(query)
