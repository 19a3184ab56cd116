"""What a curator declares of a table, for good, before anything is asked of it.

All of it is public, and must be chosen without looking at the data: bounds that are taken from the
smallest and largest value publish both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hubbub.protocol.metric_types.base import normal_form
from hubbub.release.errors import LedgerError, QueryError
from hubbub.reporting.text import visible

_MOST_ROWS = 1_000_000  # times a column's largest value, in steps, is far below 2^63


class Excess(StrEnum):
    """What becomes of rows beyond those that a user may have."""

    SAMPLE = "sample"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declared facts of a table."""

    data: Path  # a file, or a directory of files of one form
    user_column: str  # names the person whom a row belongs to
    columns: tuple[str, ...]  # the other columns, those that may be asked for
    rows_per_user: int  # most rows that a user has in what is released
    excess: Excess
    # Ranges of columns of numbers; values are clipped to them.
    bounds: Mapping[str, tuple[float, float]]
    bins: Mapping[str, tuple[str, ...]]  # public keys of columns
    newlines_in_cells: bool = False  # whether quoted cells of CSV files may hold line breaks

    def __post_init__(self) -> None:
        """Refuse what makes no sense (raises QueryError)."""
        if not 1 <= self.rows_per_user <= _MOST_ROWS:
            raise QueryError(
                f"rows_per_user = {self.rows_per_user}: must be from 1 to {_MOST_ROWS:,}"
            )
        for option, named in (("bounds", self.bounds), ("bins", self.bins)):
            for column in named:
                self.require(option, column)
        for column, (low, high) in self.bounds.items():
            if not (low < high and math.isfinite(high - low)):
                raise QueryError(
                    f"bounds of {visible(column)} = {low:g}:{high:g}: must be finite numbers, the "
                    "lower one first"
                )
        for column, keys in self.bins.items():
            if not keys or len(set(keys)) < len(keys):
                raise QueryError(
                    f"bins of {visible(column)}: must be at least one, each there once"
                )

    def require(self, option: str, column: str) -> None:
        """Refuse a column that isn't there (raises QueryError)."""
        if column == self.user_column:
            raise QueryError(f"{option}: {visible(column)} is the column of users")
        if column not in self.columns:
            names = ", ".join(map(visible, sorted(self.columns))) or "none"
            raise QueryError(f"{option}: no column is named {column!r}; there are: {names}")

    def bounds_of(self, column: str) -> tuple[float, float]:
        """Return a column's range (raises QueryError if none was declared)."""
        if column not in self.bounds:
            raise QueryError(
                f"{visible(column)}: has no bounds, which limit what one user can change; declare "
                f"them when the ledger is made: --bounds {visible(column)}=LOW:HIGH"
            )
        return self.bounds[column]

    def as_json(self) -> str:
        """Return the declaration as the ledger keeps it."""
        return json.dumps(
            {
                "data": str(self.data),
                "user_column": self.user_column,
                "columns": list(self.columns),
                "rows_per_user": self.rows_per_user,
                "excess": self.excess.value,
                "bounds": {column: list(ends) for column, ends in self.bounds.items()},
                "bins": {column: list(keys) for column, keys in self.bins.items()},
                "newlines_in_cells": self.newlines_in_cells,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Declaration:
        """Return what a ledger keeps (raises LedgerError if it isn't that)."""
        try:
            facts = json.loads(text)
            return cls(
                data=Path(facts["data"]),
                user_column=facts["user_column"],
                columns=tuple(facts["columns"]),
                rows_per_user=facts["rows_per_user"],
                excess=Excess(facts["excess"]),
                bounds={column: (low, high) for column, (low, high) in facts["bounds"].items()},
                bins={column: tuple(keys) for column, keys in facts["bins"].items()},
                newlines_in_cells=facts["newlines_in_cells"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerError(f"the ledger's declaration can't be read: {error}") from error


def unique(option: str, keys: Sequence[str]) -> tuple[str, ...]:
    """Return public keys in NFC, as those of tables are, each there once.

    Raises `QueryError` if there are none, or one of them can't be a table's.
    """
    found = tuple(dict.fromkeys(map(normal_form, keys)))
    if not found:
        raise QueryError(f"{option}: must name at least one key")
    for key in found:
        if not key:
            raise QueryError(f"{option} = '': must be keys; empty cells are none and don't count")
        if any("\ud800" <= letter <= "\udfff" for letter in key):
            raise QueryError(f"{option} = {key!r}: must be Unicode text without lone surrogates")
    return found
