"""The calibration's result as a Markdown table, each mean with its standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich import box
from rich.table import Table

from calibration.trials import Case, Trial
from hubbub.decoder.arrays import FloatArray

_COLUMNS = {
    "coverage": "coverage",
    "coverage_detected": "of detected",
    "false_share": "false share (BH)",
    "any_false": "any false (Bonf.)",
    "found": "found (BH)",
    "found_strictly": "found (Bonf.)",
}


def make_table(results: Mapping[Case, Sequence[Trial]]) -> Table:
    """Return a table with a line a case."""
    table = Table(box=box.MARKDOWN)
    table.add_column("case")
    for heading in ("k, h, m", "f, p, q", "reports", "seeds", *_COLUMNS.values()):
        table.add_column(heading, justify="right")
    for case, trials in results.items():
        params = case.params
        table.add_row(
            case.name,
            f"{params.k}, {params.h}, {params.m}",
            f"{params.f:g}, {params.p:g}, {params.q:g}",
            f"{case.reports:,}",
            str(len(trials)),
            *(mean_and_error([getattr(trial, name) for trial in trials]) for name in _COLUMNS),
        )
    return table


def mean_and_error(values: Sequence[float]) -> str:
    """Return "mean ± standard error" over the runs that have a value."""
    known: FloatArray = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return "-"
    digits = 1 if known.mean() >= 2 else 3
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    error = float(known.std(ddof=1)) / math.sqrt(len(known))
    return f"{known.mean():.{digits}f} ± {error:.{digits}f}"
