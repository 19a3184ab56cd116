"""Results as Parquet: the CSV's columns with types, and what the summary says as metadata.

Rows are written in chunks, nulls stand where the data can't tell, and the same result gives the
same bytes. The file's schema metadata holds JSON under "hubbub.<name>", such as "hubbub.summary".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from hubbub.collector.exchange.parquet import require_pyarrow
from hubbub.decoder.decoding import Decoding
from hubbub.decoder.output.cells import finite_fields
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.strings import COLUMNS, NUMBERS, chunks
from hubbub.decoder.reports.scrutiny import Findings

_ROWS_A_GROUP = 131_072
Columns = Mapping[str, Sequence[Any]]
Types = Mapping[str, type]
_ARROW = {str: "string", float: "float64", bool: "bool_", int: "int64"}


def write_strings(
    file: BinaryIO,
    decoding: Decoding,
    *,
    detected_only: bool = False,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a decoding of candidate strings, a row a candidate."""
    types = {"string": str, **dict.fromkeys(NUMBERS, float), "detected": bool}
    metadata = {
        "summary": finite_fields(asdict(decoding.summary)),
        "scrutiny": findings and findings.as_json(),
        "provenance": provenance and provenance.as_json(),
    }
    write_table(file, types, _string_columns(decoding, detected_only=detected_only), metadata)


def _string_columns(decoding: Decoding, *, detected_only: bool) -> Iterator[Columns]:
    for chunk in chunks(decoding, detected_only=detected_only):
        columns = [chunk.strings, *chunk.numbers, chunk.detected]
        yield dict(zip(COLUMNS, columns, strict=True))


def write_table(
    file: BinaryIO, types: Types, parts: Iterable[Columns], metadata: Mapping[str, object]
) -> None:
    """Write columns that come in parts.

    Parameters
    ----------
    file : binary file
    types : mapping of str to type
        Of each column, in order: str, float, bool or int.
    parts : iterable of mapping of str to sequence
        nan becomes null.
    metadata : mapping of str to object
        Kept as JSON, each under "hubbub." and its name.

    Raises
    ------
    StoreError
        If pyarrow isn't installed.
    """
    arrow = require_pyarrow()
    said = {
        f"hubbub.{name}": json.dumps(value, ensure_ascii=False, allow_nan=False)
        for name, value in metadata.items()
    }
    fields = [(name, getattr(arrow, _ARROW[kind])()) for name, kind in types.items()]
    schema = arrow.schema(fields, metadata=said)
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        waiting: list[Any] = []
        for part in parts:
            waiting.append(_record_batch(arrow, part, schema))
            if sum(len(batch) for batch in waiting) >= _ROWS_A_GROUP:
                writer.write_table(arrow.Table.from_batches(waiting, schema))
                waiting = []
        writer.write_table(arrow.Table.from_batches(waiting, schema))


def _record_batch(arrow: Any, part: Columns, schema: Any) -> Any:
    arrays = []
    for field in schema:
        if field.type == arrow.float64():
            values = np.asarray(part[field.name], dtype=np.float64)
            arrays.append(arrow.array(values, mask=np.isnan(values)))
        else:
            arrays.append(arrow.array(part[field.name], type=field.type))
    return arrow.record_batch(arrays, schema=schema)
