"""Print every comparison: python -m benchmarks [client] [collector] [decoder]."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from benchmarks import client, collector, decoder

_GROUPS = {
    "client": client.comparisons,
    "collector": collector.comparisons,
    "decoder": decoder.comparisons,
}


def main() -> None:
    """Run the named groups, or all."""
    console = Console() if sys.stdout.isatty() else Console(width=140)
    table = Table(title="Speed (ratio above 1: faster than the baseline)", title_justify="left")
    for heading in ("what", "a second", "baseline", "a second", "ratio"):
        table.add_column(heading, justify="left" if heading in {"what", "baseline"} else "right")
    for group in sys.argv[1:] or _GROUPS:
        for row in _GROUPS[group]():
            table.add_row(
                row.what,
                f"{row.rate:,.0f} {row.unit}",
                row.baseline,
                f"{row.baseline_rate:,.0f} {row.unit}",
                f"{row.ratio:.2f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
