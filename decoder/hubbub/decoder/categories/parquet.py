"""A category decoding as Parquet: the CSV's columns with types."""

from __future__ import annotations

import math
from typing import BinaryIO

from hubbub.decoder.categories.decoding import CategoryDecoding
from hubbub.decoder.categories.output import besides_rows, rows
from hubbub.decoder.output.parquet import write_table
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.reports.scrutiny import Findings


def write_categories(
    file: BinaryIO,
    decoding: CategoryDecoding,
    *,
    detected_only: bool = False,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a row a category, in the registry's order; open edges of buckets are null."""
    types = {name: type(value) for name, value in next(rows(decoding)).items()}
    chosen = list(rows(decoding, detected_only=detected_only))
    columns = {name: [_known(row[name]) for row in chosen] for name in types}
    write_table(file, types, [columns], besides_rows(decoding, findings, provenance))


def _known(value: str | float | bool) -> str | float | bool:
    return math.nan if isinstance(value, float) and math.isinf(value) else value
