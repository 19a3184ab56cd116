"""Print comparisons, of all groups or those named: python -m evaluation.benchmarks [GROUP ...]."""

from __future__ import annotations

import sys

from rich.table import Table

from evaluation.benchmarks import (
    associations,
    client,
    collector,
    decoder,
    filters,
    reading,
    sealing,
    simulated_clients,
    transactions,
)
from hubbub.reporting.formats.terminal import stdout_console

_GROUPS = {
    "associations": associations.comparisons,
    "client": client.comparisons,
    "collector": collector.comparisons,
    "decoder": decoder.comparisons,
    "filters": filters.comparisons,
    "reading": reading.comparisons,
    "sealing": sealing.comparisons,
    "simulated_clients": simulated_clients.comparisons,
    "transactions": transactions.comparisons,
}


def main() -> None:
    """Run the named groups, or all."""
    unknown = sorted(set(sys.argv[1:]) - set(_GROUPS))
    if unknown:
        sys.exit(f"{', '.join(unknown)}: must be some of: {', '.join(_GROUPS)}")
    console = stdout_console(140)
    table = Table(title="Each figure beside a baseline of the same run", title_justify="left")
    for heading in ("what", "measured", "baseline", "measured", "verdict"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for group in sys.argv[1:] or _GROUPS:
        for row in _GROUPS[group]():
            cells = (row.what, row.measured, row.baseline, row.baseline_measured, row.verdict)
            table.add_row(*cells)
    console.print(table)


if __name__ == "__main__":
    main()
