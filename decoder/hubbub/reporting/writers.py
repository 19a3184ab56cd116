"""Results as data for programs, and all formats to wherever a result is wanted.

CSV has a header and one line per row, with bare line feeds. Strings come back exactly as they were,
unless they are asked to be safe for spreadsheets. Numbers have ten digits, more than the noise
leaves and fewer than differ between linear algebra kernels; nan leaves a cell empty. JSON is the
document, with one object per row where the rows belong, written part by part. Parquet has the CSV's
columns with types, and the rest of the document as metadata.

The end of a file's name chooses its format. A new format is a function that writes a result into an
open binary file, and its line in one of the tables here.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from hubbub.reporting.command_line import STDOUT, atomic_write, check_output_paths
from hubbub.reporting.estimates import ROWS, Columns, Estimates, Types
from hubbub.reporting.text import show, stdout_console
from hubbub.storage import require_pyarrow

_QUOTED = re.compile(r'[",\r\n]')
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""How cells begin that spreadsheets take for formulas, whether quoted or not (OWASP)."""
_encode = json.JSONEncoder(ensure_ascii=False).encode
_ROWS_A_GROUP = 131_072
"""Parquet's readers skip groups: small enough to skip, large enough to pack well."""
_ARROW = {str: "string", float: "float64", bool: "bool_", int: "int64"}


def write_csv(result: Estimates, file: BinaryIO, *, spreadsheet_safe: bool = False) -> None:
    """Write a result's rows; strings that a spreadsheet would run get an apostrophe if asked."""
    types, encode = result.types, _inert_cell if spreadsheet_safe else csv_cell
    file.write((",".join(types) + "\n").encode("utf-8"))
    for part in result.parts():
        rows = zip(*_texts(part, types, encode, _csv_number), strict=True)
        file.writelines((",".join(row) + "\n").encode("utf-8") for row in rows)


def csv_cell(string: str) -> str:
    """Return a string as a cell of a line; quoted where RFC 4180 requires it."""
    return '"' + string.replace('"', '""') + '"' if _QUOTED.search(string) else string


def _inert_cell(string: str) -> str:
    return csv_cell(f"'{string}" if string.startswith(_FORMULA) else string)


def _csv_number(number: float) -> str:
    return "" if number != number else f"{number:.10g}"  # noqa: PLR0124 - nan


def _texts(
    part: Columns, types: Types, encode: Callable[[str], str], show: Callable[[float], str]
) -> Iterator[list[str]]:
    """Yield each column's cells as texts; `show` writes floating-point numbers."""
    for name, kind in types.items():
        values = part[name]
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        if kind is bool:
            yield ["true" if value else "false" for value in listed]
        else:
            write: Any = {str: encode, int: str, float: show}[kind]
            yield [write(value) for value in listed]


def write_json(result: Estimates, file: BinaryIO) -> None:
    """Write a result's document with its rows."""
    separator = "{\n"
    for name, value in result.document().items():
        file.write(f"{separator} {_encode(name)}: ".encode())
        if value is ROWS:
            file.writelines(chunk.encode("utf-8") for chunk in _rows(result))
        else:
            file.write(json_text(value, indent=1).replace("\n", "\n ").encode("utf-8"))
        separator = ",\n"
    file.write(b"\n}\n")


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON; numbers that aren't finite are null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _rows(result: Estimates) -> Iterator[str]:
    types = result.types
    row = "  {\n" + ",\n".join(f"   {_encode(name)}: %s" for name in types) + "\n  }"
    separator = "[\n"
    for part in result.parts():
        lines = [
            row % cells for cells in zip(*_texts(part, types, _encode, _json_number), strict=True)
        ]
        if lines:
            yield separator + ",\n".join(lines)
            separator = ",\n"
    yield "[]" if separator == "[\n" else "\n ]"


def _json_number(number: float) -> str:
    return str(number) if math.isfinite(number) else "null"


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def arrow_batches(result: Estimates) -> Any:
    """Return a pyarrow.RecordBatchReader of a result's rows, with the rest as metadata."""
    arrow = require_pyarrow()
    metadata = {
        f"hubbub.{name}": json_text(value)
        for name, value in result.document().items()
        if value is not ROWS
    }
    fields = [(name, getattr(arrow, _ARROW[kind])()) for name, kind in result.types.items()]
    schema = arrow.schema(fields, metadata=metadata)

    def batch(part: Columns) -> Any:
        arrays = []
        for field in schema:
            if field.type == arrow.float64():
                values = np.asarray(part[field.name], dtype=np.float64)
                arrays.append(arrow.array(values, mask=np.isnan(values)))
            else:
                arrays.append(arrow.array(part[field.name], type=field.type))
        return arrow.record_batch(arrays, schema=schema)

    return arrow.RecordBatchReader.from_batches(schema, map(batch, result.parts()))


def write_parquet(result: Estimates, file: BinaryIO) -> None:
    """Write a result's rows, and the rest of its document."""
    arrow = require_pyarrow()
    batches = arrow_batches(result)
    schema = batches.schema
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        waiting: list[Any] = []
        for batch in batches:
            waiting.append(batch)
            if sum(len(batch) for batch in waiting) >= _ROWS_A_GROUP:
                writer.write_table(arrow.Table.from_batches(waiting, schema))
                waiting = []
        writer.write_table(arrow.Table.from_batches(waiting, schema))


Writer = Callable[[Estimates, BinaryIO], None]


def _drawn(function: str) -> Writer:
    def write(result: Estimates, file: BinaryIO) -> None:
        getattr(import_module("hubbub.reporting.html"), function)(result, file)

    return write


DECODED: dict[str, Writer] = {
    ".csv": write_csv,
    ".json": write_json,
    ".parquet": write_parquet,
    ".html": _drawn("write_html"),
}
"""Formats of what is decoded, by suffix."""
_HAVE_ALL_ROWS = {".csv", ".json", ".parquet"}
PICTURES: dict[str, Writer] = {
    ".png": _drawn("write_png"),
    ".svg": _drawn("write_svg"),
}
"""Formats of results that have a picture."""


def needs_provenance(outputs: Sequence[str]) -> bool:
    """Whether any of the outputs holds the result's provenance (CSV has no place for it)."""
    return any(path != STDOUT and not path.endswith(".csv") for path in outputs)


def check_output_option(paths: Sequence[str], *, pictures: bool = False) -> None:
    """Refuse files of other formats (click.BadParameter), or that can't be made (OSError)."""
    suffixes = [*DECODED, *(PICTURES if pictures else ())]
    *some, last = suffixes
    try:
        for path in paths:
            if path != STDOUT and Path(path).suffix not in suffixes:
                raise ValueError(
                    f"{path!r} must end in {', '.join(some)} or {last}, or be - for CSV on stdout"
                )
        check_output_paths(paths)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--output'") from error


def write_results(
    result: Estimates, outputs: Sequence[str], *, width: int = 120, spreadsheet_safe: bool = False
) -> None:
    """Write every file, then CSV ("-") or what a terminal shows to standard output.

    `width` is that of what is shown where output isn't a terminal.
    """
    csv = partial(write_csv, spreadsheet_safe=spreadsheet_safe)
    write_files(result, outputs, csv)
    if STDOUT not in outputs:
        show(result.view, stdout_console(width))
        return
    csv(result, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    if result.suspicious:
        click.echo(
            "warning: some reports don't look honest; run without --output - for more", err=True
        )


def write_files(result: Estimates, outputs: Sequence[str], csv: Writer = write_csv) -> None:
    """Write every file, and nothing to standard output; otherwise as `write_results`."""
    writers = DECODED | PICTURES | {".csv": csv}
    rows = [path for path in outputs if Path(path).suffix in _HAVE_ALL_ROWS]
    if rows and result.page is not None:
        page = replace(result.page, all_rows=Path(rows[0]).name)
        result = replace(result, page=page)
    for path in outputs:
        if path != STDOUT:
            writer = writers.get(Path(path).suffix)
            if writer is None:
                raise ValueError(f"output {path!r}: must end in {' or '.join(writers)}")
            atomic_write(Path(path), partial(writer, result))
