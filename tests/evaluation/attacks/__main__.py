"""Attack what is claimed: python -m evaluation.attacks [--quick] [NAME ...]; fails on a break."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click
from rich.table import Table

from evaluation import attacks
from hubbub.reporting.formats.terminal import stdout_console

_NOT_ATTACKS = {"__main__", "arrival", "outcome"}


def attack_names() -> list[str]:
    """Return the modules of this package that have an `attack`."""
    found = (module.name for module in pkgutil.iter_modules(attacks.__path__))
    return sorted(name for name in found if name not in _NOT_ATTACKS)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(attack_names()))
@click.option("--quick", is_flag=True, help="The short forms, as the tests run them.")
def main(names: tuple[str, ...], quick: bool) -> None:
    """Attack what is claimed: all attacks, or those named."""
    table = Table(title="What attacks reached, and what is claimed", title_justify="left")
    for heading in ("attack", "what", "measured", "claimed at most", ""):
        table.add_column(
            heading, justify="right" if heading in {"measured", "claimed at most"} else "left"
        )
    broken = 0
    for name in names or attack_names():
        for outcome in importlib.import_module(f"evaluation.attacks.{name}").attack(quick=quick):
            verdict = "holds" if outcome.holds else "BROKEN"
            broken += not outcome.holds
            table.add_row(
                name, outcome.what, f"{outcome.measured:.4g}", f"{outcome.bound:.4g}", verdict
            )
    stdout_console(150).print(table)
    if broken:
        sys.exit(f"{broken} claims are broken")


if __name__ == "__main__":
    main()
