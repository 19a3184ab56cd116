"""A result to wherever the command line wants it: files, standard output, the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import click

from hubbub.decoder.output.files import STDOUT, Rendering, write_rendered


def needs_provenance(outputs: Sequence[str]) -> bool:
    """Whether any of the outputs says where the result comes from (CSV has no place for it)."""
    return any(path != STDOUT and not path.endswith(".csv") for path in outputs)


def give_out(
    outputs: Sequence[str],
    renderings: Mapping[str, Rendering],
    show: Callable[[], None],
    *,
    suspicious: bool,
) -> None:
    """Write every file, then CSV or the table to standard output.

    Parameters
    ----------
    outputs : sequence of str
        Files, and "-" if CSV is wanted in place of the table.
    renderings : mapping of str to Rendering
        By suffix.
    show : callable
        Prints the table.
    suspicious : bool
        Whether reports don't look honest, which CSV can't tell.

    Raises
    ------
    OSError
        If something can't be written.
    """
    for path in outputs:
        if path != STDOUT:
            write_rendered(path, renderings)
    if STDOUT not in outputs:
        show()
        return
    renderings[".csv"](sys.stdout.buffer)
    sys.stdout.buffer.flush()
    if suspicious:
        click.echo(
            "warning: some reports don't look honest; run without --output - for more", err=True
        )
