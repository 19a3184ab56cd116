"""What goes wrong in a command, as a message for people."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from hubbub.collector.config.masking import mask
from hubbub.collector.errors import StoreError
from hubbub.protocol.errors import HubbubError


@contextlib.contextmanager
def cli_errors() -> Iterator[None]:
    """Turn expected errors into messages, without secrets, and exit code 1."""
    try:
        yield
    except (HubbubError, StoreError) as error:
        raise click.ClickException(mask(str(error))) from error
    except BrokenPipeError:
        raise  # standard output has been closed; click ends quietly
    except OSError as error:
        where = error.filename or "file"
        raise click.ClickException(f"{where}: {error.strerror or error}") from error
