"""Print comparisons, of all groups or those named: python -m evaluation.benchmarks [GROUP ...]."""

from __future__ import annotations

from pathlib import Path

import click

from evaluation.benchmarks import client, collector, decoder, simulated_clients
from evaluation.measured_table import MeasuredTable
from evaluation.studies.study import OUTPUT, show

_GROUPS = {
    "client": client.comparisons,
    "collector": collector.comparisons,
    "decoder": decoder.comparisons,
    "simulated_clients": simulated_clients.comparisons,
}


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice(list(_GROUPS)))
@OUTPUT
def main(groups: tuple[str, ...], output: tuple[Path, ...]) -> None:
    """Compare with baselines: all groups, or those named."""
    rows = tuple(
        (row.what, row.measured, row.baseline, row.baseline_measured, row.verdict)
        for group in groups or _GROUPS
        for row in _GROUPS[group]()
    )
    headings = ("what", "measured", "baseline", "its measure", "verdict")
    show(MeasuredTable("Each figure beside a baseline of the same run", headings, rows), output)


if __name__ == "__main__":
    main()
