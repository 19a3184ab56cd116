"""The errors that commands expect: one line on standard error, and exit code 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from hubbub.collector.errors import StoreError
from hubbub.decoder.errors import DecoderError
from hubbub.protocol.errors import HubbubError


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn what can go wrong on purpose, and failing files, into a message without a traceback.

    Raises
    ------
    click.ClickException
    """
    try:
        yield
    except (HubbubError, StoreError, DecoderError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # whoever reads standard output has seen enough; click ends quietly
    except OSError as error:
        where = error.filename or "standard output"
        raise click.ClickException(f"{where}: {error.strerror}") from error
