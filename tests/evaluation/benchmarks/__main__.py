"""Print comparisons, of all groups or those named: python -m evaluation.benchmarks [GROUP ...]."""

from __future__ import annotations

import sys

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
from hubbub.simulations.laboratory import MeasuredTable

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
    rows = tuple(
        (row.what, row.measured, row.baseline, row.baseline_measured, row.verdict)
        for group in sys.argv[1:] or _GROUPS
        for row in _GROUPS[group]()
    )
    headings = ("what", "measured", "baseline", "measured", "verdict")
    print(MeasuredTable("Each figure beside a baseline of the same run", headings, rows).text())


if __name__ == "__main__":
    main()
