"""Attack what is claimed: python -m evaluation.attacks [--quick] [NAME ...]; fails on a break."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from evaluation import attacks
from evaluation.attacks.outcome import Outcome
from evaluation.measured_table import MeasuredTable
from evaluation.studies.study import OUTPUT, show

_NOT_ATTACKS = {"__main__", "arrival", "outcome"}


def attack_names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(attacks.__path__))
    return sorted(name for name in found if name not in _NOT_ATTACKS)


def outcomes_of(name: str, *, quick: bool) -> Iterator[Outcome]:
    """Run an attack, and yield what it measured beside what is claimed."""
    yield from importlib.import_module(f"evaluation.attacks.{name}").attack(quick=quick)


def make_table(outcomes: Sequence[tuple[str, Outcome]]) -> MeasuredTable:
    """Return a row for each outcome of the named attacks."""
    rows = tuple(
        (
            *(name, outcome.what, f"{outcome.measured:.4g}", f"{outcome.bound:.4g}"),
            "holds" if outcome.holds else "BROKEN",
        )
        for name, outcome in outcomes
    )
    headings = ("attack", "what", "measured", "claimed at most", "")
    return MeasuredTable("What attacks reached, and what is claimed", headings, rows)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(attack_names()))
@click.option("--quick", is_flag=True, help="The short forms, as the tests run them.")
@OUTPUT
def main(names: tuple[str, ...], quick: bool, output: tuple[Path, ...]) -> None:
    """Attack what is claimed: all attacks, or those named."""
    outcomes = [
        (name, outcome)
        for name in names or attack_names()
        for outcome in outcomes_of(name, quick=quick)
    ]
    show(make_table(outcomes), output)
    if broken := sum(not outcome.holds for _, outcome in outcomes):
        sys.exit(f"{broken} claims are broken")


if __name__ == "__main__":
    main()
