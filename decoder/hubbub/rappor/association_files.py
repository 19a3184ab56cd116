"""google/rappor's association files: what its `decode-assoc` takes.

Each row of the reports is one client's: its cohort, and for every variable a column of bits. The
schema names the variables of a metric, their types, and the file of their parameters.

Invariant: strings of bits begin with the highest bit, so the last character is bit 0, which the
map calls position 1 of its cohort.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hubbub.inference.arrays import BoolArray, ByteArray, IntArray
from hubbub.inference.association.reports import (
    BOOLEAN,
    STRING,
    AssociationReports,
    Variable,
)
from hubbub.inference.errors import InputError
from hubbub.inference.params import DecodingParams
from hubbub.rappor.csv_files import CsvRow, read_cells, read_rows, shown

SCHEMA_HEADER = ("metric", "var", "var_type", "params")
# Two or three: the cells of more have too few reports each, and google/rappor takes two.
_VARIABLES = range(2, 4)
# Rows at once: bounds memory; speed alone depends on it.
_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class AssociationSchema:
    """The variables of one metric.

    Attributes
    ----------
    metric : str
    variables : tuple of Variable
        2 or 3.
    params : Path
        The file that the schema names, beside it.
    """

    metric: str
    variables: tuple[Variable, ...]
    params: Path


def read_schema(path: Path, metric: str | None = None) -> AssociationSchema:
    """Read which variables a metric has; the only one, if none is named.

    Raises
    ------
    InputError
        If the metric isn't there, or hasn't 2 or 3 variables of known types with the same
        parameters.
    OSError
        If it can't be read.
    """
    rows = [CsvRow(row.path, row.line, [cell.strip() for cell in row.cells])
            for row in read_rows(path)]  # fmt: skip
    if not rows:
        raise InputError(f"{path}: empty; expected the header {','.join(SCHEMA_HEADER)}")
    header, *rest = rows
    if tuple(header.cells) != SCHEMA_HEADER:
        found = shown(",".join(header.cells))
        header.refuse(None, found, f"the header {','.join(SCHEMA_HEADER)}")
    for row in rest:
        row.require(len(SCHEMA_HEADER), ",".join(SCHEMA_HEADER))
    metrics = list(dict.fromkeys(row.cells[0] for row in rest))
    if metric is None and len(metrics) != 1:
        names = ", ".join(map(shown, metrics)) or "none"
        raise InputError(f"{path}: metrics {names}; expected METRIC to say which one")
    metric = metrics[0] if metric is None else metric
    own = [row for row in rest if row.cells[0] == metric]
    if not own:
        names = ", ".join(map(shown, metrics)) or "none"
        raise InputError(f"{path}: no metric {shown(metric)}; expected one of: {names}")
    if len(own) not in _VARIABLES:
        raise InputError(f"{path}: metric {shown(metric)}: {len(own)} variables; expected 2 or 3")
    variables: list[Variable] = []
    for row in own:
        _, name, of_type, params = row.cells
        if not name or name in {"client", "cohort", *(each.name for each in variables)}:
            row.refuse(2, f"var = {shown(name)}", "a column's name, each variable's its own")
        if of_type not in {STRING, BOOLEAN}:
            row.refuse(3, f"var_type = {shown(of_type)}", f"{STRING} or {BOOLEAN}")
        if params != own[0].cells[3]:
            first = f"{shown(own[0].cells[3])}, as of {shown(own[0].cells[1])}"
            row.refuse(4, f"params = {shown(params)}", f"{first}: one client has one cohort")
        if not params or Path(params).name != params:
            row.refuse(4, f"params = {shown(params)}", "the name of a file beside this one")
        variables.append(Variable(name, of_type))
    return AssociationSchema(metric, tuple(variables), path.parent / f"{own[0].cells[3]}.csv")


def read_reports(
    path: Path, variables: Sequence[Variable], params: DecodingParams
) -> AssociationReports:
    """Read reports: a header with the columns cohort and each variable's name, one row per client.

    Other columns aren't read: client names stay where they are.

    Raises
    ------
    InputError
        At the first row that isn't a report of these variables and parameters.
    OSError
        If it can't be read.
    """
    rows = read_cells(path)
    first = next(rows, None)
    names = ("cohort", *(variable.name for variable in variables))
    if first is None:
        raise InputError(f"{path}: empty; expected a header with {', '.join(names)}")
    header = CsvRow(path, *first)
    titles = [cell.strip() for cell in header.cells]
    for name in names:
        if titles.count(name) != 1:
            found = shown(",".join(titles))
            header.refuse(None, f"the header {found}", f"one column {shown(name)}")
    columns = [titles.index(name) for name in names]
    widths = [variable.width(params) for variable in variables]
    codes: list[ByteArray] = []
    while chunk := list(itertools.islice(rows, _ROWS)):
        codes.append(_packed(path, chunk, columns, widths, params.m, len(titles), variables))
        if len(codes) > 1:
            codes = [np.concatenate(codes)]
    if not codes:
        raise InputError(f"{path}: no reports below the header; expected one row per client")
    return _grouped(codes[0], tuple(variables), widths, params)


def pack_reports(
    cohorts: IntArray,
    bits: Sequence[BoolArray],
    variables: Sequence[Variable],
    params: DecodingParams,
) -> AssociationReports:
    """Return reports that a program has in memory.

    Parameters
    ----------
    cohorts : int64 array, shape (n,)
        From 0, below m.
    bits : sequence of bool arrays, shape (n, bits)
        Of each variable, the lowest bit first.
    variables : sequence of Variable
        Each variable's name and type, in the order of `bits`.
    params : DecodingParams
        The parameters under which the reports were made.
    """
    parts = [cohorts.astype(">u2").view(np.uint8).reshape(-1, 2)]
    parts += [np.packbits(own, axis=1, bitorder="little") for own in bits]
    widths = [variable.width(params) for variable in variables]
    return _grouped(np.concatenate(parts, axis=1), tuple(variables), widths, params)


_Cells = tuple[int, list[str]]
"""A row's last line, and what it holds."""


def _packed(
    path: Path,
    rows: list[_Cells],
    columns: list[int],
    widths: list[int],
    m: int,
    n_columns: int,
    variables: Sequence[Variable],
) -> ByteArray:
    """Return the cohort in two bytes, highest first, and each variable's bits, lowest first."""
    for line, row in rows:
        if len(row) != n_columns:
            CsvRow(path, line, row).require(n_columns, "as the header has")
    parts = [_cohorts(path, rows, columns[0], m)]
    for column, width, variable in zip(columns[1:], widths, variables, strict=True):
        cells = [row[column] for _, row in rows]
        text = "".join(cells)
        if set(map(len, cells)) != {width} or not set(text) <= {"0", "1"}:
            _refuse_bits(path, rows, column, width, variable)
        bits = np.frombuffer(text.encode("ascii"), dtype=np.uint8).reshape(-1, width) & 1
        parts.append(np.packbits(bits[:, ::-1], axis=1, bitorder="little"))
    return np.concatenate(parts, axis=1)


def _cohorts(path: Path, rows: list[_Cells], column: int, m: int) -> ByteArray:
    known = {str(cohort): cohort for cohort in range(m)}
    cohorts = np.empty(len(rows), dtype=">u2")
    for place, (line, row) in enumerate(rows):
        cohort = known.get(row[column])
        if cohort is None:
            found, expected = shown(row[column]), f"an integer from 0 to {m - 1} (m = {m})"
            CsvRow(path, line, row).refuse(column + 1, f"cohort = {found}", expected)
        cohorts[place] = cohort
    return cohorts.view(np.uint8).reshape(-1, 2)


def _refuse_bits(
    path: Path, rows: list[_Cells], column: int, width: int, variable: Variable
) -> None:
    of_type = "k = " if variable.type == STRING else "a boolean's "
    expected = f"{of_type}{width} character{'s' if width > 1 else ''}, each 0 or 1"
    for line, row in rows:
        cell = row[column]
        if len(cell) != width or cell.strip("01"):
            CsvRow(path, line, row).refuse(column + 1, f"{variable.name} = {shown(cell)}", expected)


def _grouped(
    codes: ByteArray, variables: tuple[Variable, ...], widths: list[int], params: DecodingParams
) -> AssociationReports:
    """Sort reports and keep equal ones once."""
    total, width = codes.shape
    whole = np.ascontiguousarray(codes).view(np.dtype((np.void, width))).ravel()
    distinct, copies = np.unique(whole, return_counts=True)
    table = distinct.view(np.uint8).reshape(-1, width)
    cohorts = table[:, 0].astype(np.int64) << 8 | table[:, 1]
    starts = np.searchsorted(cohorts, np.arange(params.m + 1))
    ends = np.cumsum([2, *(-(-bits // 8) for bits in widths)]).tolist()
    return AssociationReports(
        params,
        variables,
        starts,
        tuple(table[:, first:last] for first, last in itertools.pairwise(ends)),
        copies.astype(np.float64),
        total,
    )
