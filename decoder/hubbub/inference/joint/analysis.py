"""A table's estimates -> all that is said about it: margins, conditional shares, departures.

This is what joint metrics of every kind, and pairs of google/rappor's reports, have in common.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hubbub.inference.arrays import FloatArray
from hubbub.inference.categories.shares import ShareInterval
from hubbub.inference.joint.independence import (
    Independence,
    Residuals,
    assess_independence,
    residuals,
)
from hubbub.inference.joint.shrinkage import shrunk_cells
from hubbub.inference.joint.table import Conditional, JointEstimates, conditionals


@dataclass(frozen=True, slots=True)
class Margin:
    """Shares of one field's values."""

    name: str  # the field's
    labels: tuple[str, ...]
    share: FloatArray  # shape (n,); unbiased
    std_error: FloatArray
    interval: ShareInterval  # 95% intervals


@dataclass(frozen=True, slots=True)
class TableAnalysis:
    """What a table's estimates say."""

    estimates: JointEstimates
    margins: tuple[Margin, ...]
    refit: FloatArray  # shape (n,); cells drawn towards independence (`shrunk_cells`)
    residuals: Residuals
    conditionals: tuple[Conditional, ...]  # of each field given each other one
    independence: tuple[Independence, ...]  # of each two fields; of three fields also of all


def analyse_table(estimates: JointEstimates) -> TableAnalysis:
    """Say all that can be said about a table of two or three fields.

    Deterministic: the same estimates give the same result.
    """
    axes = range(len(estimates.shape))
    tables = [estimates.margin(*pair) for pair in itertools.combinations(axes, 2)]
    if len(axes) > 2:
        tables.append(estimates)
    return TableAnalysis(
        estimates=estimates,
        margins=tuple(_margin(estimates, axis) for axis in axes),
        refit=shrunk_cells(estimates),
        residuals=residuals(estimates),
        conditionals=conditionals(estimates),
        independence=tuple(map(assess_independence, tables)),
    )


def _margin(estimates: JointEstimates, axis: int) -> Margin:
    field, margin = estimates.fields[axis], estimates.margin(axis)
    return Margin(field.name, field.labels, margin.unbiased, margin.std_error, margin.intervals())
