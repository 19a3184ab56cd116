"""Reports of several values that clients randomized one by one, as google/rappor's clients do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.inference.params import DecodingParams

STRING, BOOLEAN = "string", "boolean"


class Variable(NamedTuple):
    """One of the values that a client reports.

    Attributes
    ----------
    name : str
        Its column of the reports.
    type : str
        "string" or "boolean".
    """

    name: str
    type: str

    def width(self, params: DecodingParams) -> int:
        """Return how many bits its reports have: of a boolean, one with the same noise."""
        return params.k if self.type == STRING else 1


@dataclass(frozen=True, slots=True, eq=False)
class AssociationReports:
    """Reports of several variables, sorted by cohort; equal ones are kept once.

    Attributes
    ----------
    starts : int64 array, shape (m + 1,)
        Cohort c has the rows from starts[c] to starts[c + 1].
    bits : tuple of uint8 arrays, shape (n, bits / 8)
        Of each variable, the lowest bit first.
    copies : float64 array, shape (n,)
        Reports behind each row.
    total : int
        Reports in all.
    """

    params: DecodingParams
    variables: tuple[Variable, ...]
    starts: IntArray
    bits: tuple[ByteArray, ...]
    copies: FloatArray
    total: int
