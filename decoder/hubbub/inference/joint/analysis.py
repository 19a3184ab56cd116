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
    """Shares of one field's values.

    Attributes
    ----------
    name : str
        The field's.
    labels : tuple of str, length n
    share, std_error : float64 array, shape (n,)
        Unbiased.
    interval : ShareInterval
        95% intervals.
    """

    name: str
    labels: tuple[str, ...]
    share: FloatArray
    std_error: FloatArray
    interval: ShareInterval


@dataclass(frozen=True, slots=True)
class TableAnalysis:
    """What a table's estimates say.

    Attributes
    ----------
    refit : float64 array, shape (n,)
        Cells drawn towards independence (`shrunk_cells`).
    conditionals : tuple of Conditional
        Of each field given each other one.
    independence : tuple of Independence
        Of each two fields; of three fields also of all.
    """

    estimates: JointEstimates
    margins: tuple[Margin, ...]
    refit: FloatArray
    residuals: Residuals
    conditionals: tuple[Conditional, ...]
    independence: tuple[Independence, ...]


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
