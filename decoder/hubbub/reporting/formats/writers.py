"""All formats, and a result to wherever it is wanted: files, standard output, the terminal.

The end of a file's name chooses its format. A new format is a module with a function that writes a
result into an open binary file, and its line in one of the tables here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import click

from hubbub.reporting.command_line import STDOUT, atomic_write, check_output_paths
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.data_files import write_csv, write_json, write_parquet
from hubbub.reporting.text import show, stdout_console

Writer = Callable[[Estimates, BinaryIO], None]


def _drawn(function: str) -> Writer:
    def write(result: Estimates, file: BinaryIO) -> None:
        getattr(import_module("hubbub.reporting.formats.html"), function)(result, file)

    return write


DECODED: dict[str, Writer] = {
    ".csv": write_csv,
    ".json": write_json,
    ".parquet": write_parquet,
    ".html": _drawn("write_html"),
}
"""Formats of what is decoded, by suffix."""
PICTURES: dict[str, Writer] = {
    ".png": _drawn("write_png"),
    ".svg": _drawn("write_svg"),
}
"""Formats of results that have a picture."""


def needs_provenance(outputs: Sequence[str]) -> bool:
    """Whether any of the outputs says where the result comes from (CSV has no place for it)."""
    return any(path != STDOUT and not path.endswith(".csv") for path in outputs)


def validate_output_formats(paths: Sequence[str], *, pictures: bool = False) -> None:
    """Refuse files of other formats (ValueError), or that can't be made (OSError)."""
    suffixes = [*DECODED, *(PICTURES if pictures else ())]
    *some, last = suffixes
    for path in paths:
        if path != STDOUT and Path(path).suffix not in suffixes:
            raise ValueError(
                f"{path!r} must end in {', '.join(some)} or {last}, or be - for CSV on stdout"
            )
    check_output_paths(paths)


def check_output_option(paths: Sequence[str], *, pictures: bool = False) -> None:
    """As `validate_output_formats`, for commands: what is wrong is their --output."""
    try:
        validate_output_formats(paths, pictures=pictures)
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
        show(result.blocks(), stdout_console(width))
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
    for path in outputs:
        if path != STDOUT:
            writer = writers.get(Path(path).suffix)
            if writer is None:
                raise ValueError(f"output {path!r}: must end in {' or '.join(writers)}")
            atomic_write(Path(path), partial(writer, result))
