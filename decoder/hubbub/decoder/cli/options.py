"""What commands share: which files they write, and how errors are shown.

Errors that a command expects are one line on standard error, and exit code 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hubbub.decoder.errors import DecoderError, OptionError
from hubbub.decoder.formats.files import check_output_paths
from hubbub.protocol.errors import HubbubError
from hubbub.storage.errors import StoreError


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
def cli_errors() -> Iterator[None]:
    """Turn what can go wrong on purpose, and failing files, into a message without a traceback."""
    try:
        yield
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except (HubbubError, StoreError, DecoderError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # whoever reads standard output has seen enough; click ends quietly
    except OSError as error:
        where = error.filename or "standard output"
        raise click.ClickException(f"{where}: {error.strerror}") from error
