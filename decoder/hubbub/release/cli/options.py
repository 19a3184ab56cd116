"""Types of options that commands share, and the options of all queries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import click

from hubbub.reporting import cli_errors

Command = Callable[..., None]
_Function = TypeVar("_Function", bound=Callable[..., Any])
LEDGER = ".ledger.db"
"""At the end of a ledger's name that wasn't chosen, after the data's."""


class ExactNumber(click.ParamType):  # type: ignore[type-arg]  # a generic only in newer versions of click
    """An exact number of at least 0: 0.1, 1e-6 or 1/3."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Fraction:
        """Return the fraction, or refuse it by name."""
        from hubbub.release.errors import QueryError
        from hubbub.release.noise import fraction

        try:
            return fraction("number", value)
        except QueryError:
            self.fail(f"{value!r} must be a finite number of at least 0", param, ctx)


class Range(click.ParamType):  # type: ignore[type-arg]  # as above
    """LOW:HIGH."""

    name = "low:high"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return both ends, or refuse them by name."""
        low, colon, high = str(value).partition(":")
        try:
            if not colon:
                raise ValueError
            return float(low), float(high)
        except ValueError:
            self.fail(f"{value!r} must be LOW:HIGH, such as 0:120", param, ctx)


def by_column(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the texts of COLUMN=TEXT by column."""
    found: dict[str, str] = {}
    for text in texts:
        column, equals, rest = text.partition("=")
        if not (equals and column and rest):
            raise click.BadParameter(f"{text!r} must be COLUMN=...", param_hint=option)
        if column in found:
            raise click.BadParameter(f"{column} is given twice", param_hint=option)
        found[column] = rest
    return found


def keys_of(text: str) -> tuple[str, ...]:
    """Return the keys of a,b,c, or those of @FILE, one per line."""
    if not text.startswith("@"):
        return tuple(text.split(","))
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise click.ClickException(f"bins: {text[1:]}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{text[1:]}: must be UTF-8, one key per line") from error
    return tuple(line.removesuffix("\r") for line in lines if line.strip())


ledger_option = click.option(
    "--ledger", required=True, metavar="FILE", help="The ledger that `init` made."
)
data_option = click.option(
    "--data", metavar="PATH", help="Where the data are now, if they were moved."
)
epsilon_option = click.option(
    "--epsilon",
    required=True,
    type=ExactNumber(),
    help="What the query costs; an exact number, such as 0.1 or 1/3.",
)


def delta_of(meaning: str) -> Callable[[_Function], _Function]:
    """Return a query's --delta, and what it is for."""
    return click.option("--delta", default="0", show_default=True, type=ExactNumber(), help=meaning)


delta_option = delta_of("Delta that the query costs; above 0, the noise is Gaussian.")
delta_option_of_keys = delta_of("Delta that the query costs; keys that aren't public need it.")


def _output_to(formats: str) -> Callable[[_Function], _Function]:
    return click.option(
        "--output",
        "files",
        multiple=True,
        metavar="FILE",
        help=f"Also write the release to FILE.csv, {formats}; - writes CSV to stdout instead of "
        "the table. May be repeated.",
    )


output_option = _output_to(".json, .parquet or .html")
drawn_output_option = _output_to(".json, .parquet, .html, .svg or .png")
spreadsheet_option = click.option(
    "--spreadsheet-safe",
    is_flag=True,
    help="In CSV, put ' before keys that a spreadsheet would run as a formula.",
)


def with_errors(command: Command) -> Command:
    """Return a command whose expected errors are one line."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        with cli_errors():
            command(**options)

    return run
