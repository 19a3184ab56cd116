"""Results as Parquet: the CSV's columns with types, and the rest of the document as metadata.

Rows are written in groups, nulls stand where the data can't tell, and the same result gives the
same bytes. The file's schema metadata holds JSON under "hubbub.<name>", such as "hubbub.summary".
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from hubbub.collector.exchange.parquet import require_pyarrow
from hubbub.decoder.formats.json_file import json_text
from hubbub.decoder.results.result import ROWS, Columns, Result

_ROWS_A_GROUP = 131_072
_ARROW = {str: "string", float: "float64", bool: "bool_", int: "int64"}


def write_parquet(result: Result, file: BinaryIO) -> None:
    """Write a result's rows, and what its document says besides.

    Raises
    ------
    StoreError
        If pyarrow isn't installed.
    """
    arrow = require_pyarrow()
    metadata = {
        f"hubbub.{name}": json_text(value)
        for name, value in result.document().items()
        if value is not ROWS
    }
    fields = [(name, getattr(arrow, _ARROW[kind])()) for name, kind in result.types.items()]
    schema = arrow.schema(fields, metadata=metadata)
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        waiting: list[Any] = []
        for part in result.parts():
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
