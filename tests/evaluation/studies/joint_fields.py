"""What it costs to report fields side by side instead of as one value, at the same total epsilon.

A report's estimate of a category is (bit - p*) / (q* - p*); the noise of a category that the client
doesn't hold is that estimate's variance. Fields that are reported apart share epsilon, and the
estimate of a cell is the product of its categories' estimates, so their noises multiply
(docs/understand/proofs.md).
"""

from __future__ import annotations

import math
from pathlib import Path

import click

from evaluation.measured_table import MeasuredTable
from evaluation.studies.study import OUTPUT, show
from hubbub.protocol import RapporParams

EPSILONS = (1, 2, 4, 8)


def noise(epsilon: float) -> float:
    """Return the variance of one one-time report's estimate of a category that isn't held."""
    params = RapporParams(8, 1, 1, 0.0, 1 / (math.exp(epsilon) + 1), 0.5)
    variance = params.p_star * (1 - params.p_star)
    return variance / (params.q_star - params.p_star) ** 2


def side_by_side(epsilon: float, fields: int) -> float:
    return math.prod([noise(epsilon / fields)] * fields)


def table() -> MeasuredTable:
    """Return the noise of a cell in the three ways, and the ratios to that of one value."""
    rows = []
    for epsilon in EPSILONS:
        one = noise(epsilon)
        two, three = side_by_side(epsilon, 2), side_by_side(epsilon, 3)
        cells = (epsilon, one, two, two / one, three, three / one)
        rows.append(tuple(f"{float(f'{cell:.3g}'):,.5g}" for cell in cells))
    headings = ("epsilon", "one value", "two fields apart", "times, two",
                "three fields apart", "times, three")  # fmt: skip
    return MeasuredTable("Noise of a cell, by how its fields are reported", headings, tuple(rows))


@click.command("joint-fields")
@OUTPUT
def main(output: tuple[Path, ...]) -> None:
    """Print the noise of a cell in three ways to report its fields."""
    show(table(), output)
