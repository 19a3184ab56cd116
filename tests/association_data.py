"""Reports of two or three variables side by side, made up, and google/rappor's files of them.

Nothing of hubbub's decoder makes them: bits are drawn from the published probabilities, and written
as google/rappor writes them, the highest bit first.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray, PositionArray
from hubbub.inference.association.reports import BOOLEAN, STRING, AssociationReports, Variable
from hubbub.inference.candidates import Candidates, mapped
from hubbub.inference.params import DecodingParams
from hubbub.rappor.association_files import pack_reports

METRIC = "pages"


@dataclass(frozen=True)
class PairPopulation:
    """What clients have: cells of a table whose last variable's values change fastest.

    Attributes
    ----------
    variables : tuple of Variable
        String values are v1, v2, ...
    listed : tuple of int
        How many of a string's values, the first ones, have a place in its map.
    shares : float64 array
        In the table's shape.
    """

    variables: tuple[Variable, ...]
    listed: tuple[int, ...]
    shares: FloatArray

    @property
    def cells(self) -> FloatArray:
        """The shares, those of strings that aren't listed added up at the end."""
        table = self.shares
        for axis, (variable, n) in enumerate(zip(self.variables, self.listed, strict=True)):
            if variable.type == STRING:
                known, others = np.split(table, [n], axis=axis)
                table = np.concatenate([known, others.sum(axis=axis, keepdims=True)], axis=axis)
        return table


class AssociationCase(NamedTuple):
    """So many reports of a population."""

    name: str
    population: PairPopulation
    params: DecodingParams
    reports: int


class AssociationData(NamedTuple):
    """Single reports, and the bits of every string.

    Attributes
    ----------
    cohorts : int64 array, shape (n,)
    bits : tuple of bool arrays, shape (n, bits)
    positions : tuple of int16 arrays, shape (strings, m, h), or None
    """

    population: PairPopulation
    params: DecodingParams
    cohorts: IntArray
    bits: tuple[BoolArray, ...]
    positions: tuple[PositionArray | None, ...]

    @property
    def candidates(self) -> dict[str, Candidates]:
        """The strings that are listed."""
        return {
            variable.name: mapped(names(n), positions[:n], self.params)
            for variable, n, positions in zip(
                self.population.variables, self.population.listed, self.positions, strict=True
            )
            if positions is not None
        }


def names(n: int) -> list[str]:
    return [f"v{i + 1}" for i in range(n)]


def strings_and_flags(
    shares: npt.ArrayLike, flagged: npt.ArrayLike, absent: int = 0, unlisted: Sequence[int] = ()
) -> PairPopulation:
    """Return strings of which a part has a flag; some are absent, some not in the map.

    Parameters
    ----------
    unlisted : sequence of int
        Indices of strings that the map doesn't have.
    """
    share, part = np.asarray(shares, np.float64), np.asarray(flagged, np.float64)
    table = np.column_stack([share * (1 - part), share * part]) / share.sum()
    hidden = np.isin(np.arange(len(share)), list(unlisted))
    table = np.concatenate([table[~hidden], np.zeros((absent, 2)), table[hidden]])
    listed = len(share) - len(unlisted) + absent
    return PairPopulation((Variable("page", STRING), Variable("flag", BOOLEAN)), (listed, 2), table)


def draw(
    population: PairPopulation,
    params: DecodingParams,
    n_reports: int,
    rng: np.random.Generator,
    positions: tuple[PositionArray | None, ...] | None = None,
) -> AssociationData:
    """Let clients report; strings get random positions if none are given."""
    shape = population.shares.shape
    held = np.unravel_index(
        rng.choice(population.shares.size, n_reports, p=population.shares.ravel()), shape
    )
    cohorts = rng.integers(params.m, size=n_reports)
    if positions is None:
        positions = tuple(
            rng.integers(params.k, size=(n, params.m, params.h), dtype=np.int16)
            if variable.type == STRING
            else None
            for variable, n in zip(population.variables, shape, strict=True)
        )
    bits = []
    for values, own in zip(held, positions, strict=True):
        if own is None:
            true = values[:, None] == 1
        else:
            true = np.zeros((n_reports, params.k), dtype=np.bool_)
            np.put_along_axis(true, own[values, cohorts].astype(np.int64), True, axis=1)
        chance = np.where(true, params.q_star, params.p_star)
        bits.append(rng.random(true.shape) < chance)
    return AssociationData(population, params, cohorts, tuple(bits), positions)


def write_files(folder: Path, data: AssociationData) -> None:
    """Write rappor-vars.csv, pages_params.csv, reports.csv, and a map of each string variable."""
    population, params = data.population, data.params
    schema = [["metric", "var", "var_type", "params"]]
    schema += [[METRIC, each.name, each.type, "pages_params"] for each in population.variables]
    _write(folder / "rappor-vars.csv", schema)
    numbers = [str(getattr(params, name)) for name in "khmpqf"]
    _write(folder / "pages_params.csv", [list("khmpqf"), numbers])
    columns = [
        ["".join(row) for row in np.where(own, "1", "0")[:, ::-1].tolist()] for own in data.bits
    ]
    rows = [
        [f"c{i}", str(cohort), *bits]
        for i, (cohort, bits) in enumerate(
            zip(data.cohorts.tolist(), zip(*columns, strict=True), strict=True)
        )
    ]
    header = ["client", "cohort", *(each.name for each in population.variables)]
    _write(folder / "reports.csv", [header, *rows])
    first = 1 + params.k * np.arange(params.m)[:, None]
    for variable, n, own in zip(
        population.variables, population.listed, data.positions, strict=True
    ):
        if own is not None:
            numbered = (own[:n] + first).reshape(n, -1).tolist()
            lines = [[name, *map(str, row)] for name, row in zip(names(n), numbered, strict=True)]
            _write(folder / f"{variable.name}_map.csv", lines)


def reports_of(data: AssociationData) -> AssociationReports:
    """Return the reports as the decoder keeps them."""
    return pack_reports(data.cohorts, data.bits, data.population.variables, data.params)


def _write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
