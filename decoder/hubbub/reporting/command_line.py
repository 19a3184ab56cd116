"""Shared by commands: lazy loading, files that are written, errors, progress.

A file is written whole or not at all, and known to be possible before the work begins: a reader of
the old one never sees half of a new one. Errors that a command expects are one line on standard
error, and exit code 1.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import click

from hubbub.protocol import HubbubError, OptionError

STDOUT = "-"


def refuse_place(target: Path) -> None:
    """Refuse a file that can't be made; its folder must exist, for its name may be mistyped."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    folder = target.parent
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
    fault = None
    if not folder.is_dir():
        fault = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        fault = errno.EACCES
    if fault is not None:
        raise OSError(fault, os.strerror(fault), str(target))


def check_output_paths(paths: Sequence[str]) -> None:
    """Refuse files that can't be made (OSError), or of which one is named twice (ValueError)."""
    for path in paths:
        if [os.path.normpath(other) for other in paths].count(os.path.normpath(path)) > 1:
            raise ValueError(f"{path!r} is given twice; each result needs a file of its own")
    for path in paths:
        if path != STDOUT:
            refuse_place(Path(path))


def atomic_write(target: Path, write: Callable[[BinaryIO], object]) -> None:
    """Make a file of what a function writes, or leave everything as it was."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
        temporary.replace(target)
    except OSError as error:
        if error.filename in {None, str(temporary)}:  # a full disk names none
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


class LazyGroup(click.Group):
    """A group that imports a command, a "module:name", when it is asked for, so --help stays quick.

    `words`: the help of each; if not given, all are imported for that.
    """

    def __init__(
        self,
        *args: Any,
        commands_in: Mapping[str, str],
        words: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._commands_in = commands_in
        self._words = words

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the commands' names."""
        return list(self._commands_in)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        if self._words is None:
            super().format_commands(context, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl(list(self._words.items()))

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        where = self._commands_in.get(name)
        if where is None:
            return None
        module, _, command = where.partition(":")
        found: click.Command = getattr(import_module(module), command)
        return found


class WithHeadings(click.Command):
    """A command whose --help shows options that few people need last, under headings."""

    def __init__(self, *args: Any, headings: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._headings = headings  # names of options with blanks between them, by heading

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options: those without a heading first."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        shown = {each.name: each.get_help_record(ctx) for each in options}
        below = {title: names.split() for title, names in self._headings.items()}
        later = {name for names in below.values() for name in names}
        first = [name for name in shown if name not in later]
        for title, names in {"Options": first, **below}.items():
            if records := [record for name in names if (record := shown.get(name))]:
                with formatter.section(title):
                    formatter.write_dl(records)


class Number(click.ParamType):  # type: ignore[type-arg]  # a generic only in newer versions of click
    """A number such as 1e6 or 250_000 between two bounds, which are outside; or also inf.

    `whole`: only whole numbers, and the bounds are allowed.
    """

    def __init__(
        self, low: float, high: float, *, whole: bool = False, infinite: bool = False,
        name: str = "number",
    ) -> None:  # fmt: skip
        self.name = name
        self._low, self._high, self._whole, self._infinite = low, high, whole, infinite

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse it by name."""
        if self._infinite and str(value) == "inf":
            return math.inf
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if self._whole:
            fits = self._low <= number <= self._high and number.is_integer()
            expected = f"a whole number of at least {self._low} and at most {self._high:g}"
        else:
            fits, top = self._low < number < self._high, ""
            if not math.isinf(self._high):
                top = f" and below {self._high:g}"
            expected = f"above {self._low:g}{top}"
        if not fits:
            self.fail(f"{value} must be {expected}", param, ctx)
        return int(number) if self._whole else number


def whole_number(least: int) -> Number:
    """Return the type of a whole number such as 100000, 100_000 or 1e5."""
    return Number(least, 1e12, whole=True)


class Day(click.ParamType):  # type: ignore[type-arg]  # as above
    """A UTC day such as 2026-11-01."""

    name = "day"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dt.date:
        """Return the day, or refuse it by name."""
        try:
            return dt.datetime.strptime(str(value), "%Y-%m-%d").replace(tzinfo=dt.UTC).date()
        except ValueError:
            self.fail(f"{value} must be a day of the calendar, as YYYY-MM-DD.", param, ctx)


def only_files(*suffixes: str) -> Callable[..., tuple[str, ...]]:
    """Return a click callback for files that end in one of the suffixes and can be made."""
    *some, last = suffixes

    def check(
        _context: click.Context, _option: click.Parameter, paths: tuple[str, ...]
    ) -> tuple[str, ...]:
        for path in paths:
            if Path(path).suffix not in suffixes:
                raise click.BadParameter(f"{path!r} must end in {', '.join(some)} or {last}")
        try:
            check_output_paths(paths)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        except OSError as error:
            raise click.BadParameter(f"{error.filename}: {error.strerror}") from error
        return paths

    return check


@contextmanager
def cli_errors(
    nameless: str = "standard output", masked: Callable[[str], str] = str
) -> Iterator[None]:
    """Turn what can go wrong on purpose, and failing files, into a message without a traceback.

    `nameless`: what fails if the error names no file. `masked`: takes secrets out of a message.
    """
    try:
        yield
    except OptionError as error:
        raise click.UsageError(error.on_command_line) from error
    except HubbubError as error:
        raise click.ClickException(masked(str(error))) from error
    except BrokenPipeError:
        raise  # whoever reads standard output has seen enough; click ends quietly
    except OSError as error:
        where = error.filename or nameless
        raise click.ClickException(f"{where}: {error.strerror or error}") from error


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the context is open; yields update(done, total)."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - shown only here
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    label_column = TextColumn("{task.description}")
    columns = (label_column, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def pass_counter(label: str) -> Iterator[Callable[[int, float], None]]:
    """Show passes and the gap while the context is open; yields update(passes, gap)."""
    if not sys.stderr.isatty():
        yield lambda _passes, _gap: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.status import Status  # noqa: PLC0415

    with Status(label, console=Console(stderr=True)) as status:
        yield lambda passes, gap: status.update(f"{label}: pass {passes}, duality gap {gap:.3g}")
