"""The command `keygen`, and files with one private key each, for their owner only."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from hubbub.collector.cli.group import cli_errors
from hubbub.collector.config.sources import toml_value
from hubbub.protocol.errors import SealedError, SwitchError
from hubbub.protocol.hpke import PrivateKey
from hubbub.storage.errors import StoreError

_USUAL_DAYS = 90  # a quarter: long enough to plan, short if the key is stolen
_ONLY_ITS_OWNER = 0o600  # may read and write it
_Key = TypeVar("_Key")


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--last-day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help=f"Last UTC day on which clients seal to it.  [default: in {_USUAL_DAYS} days]",
)
@click.option(
    "--name",
    default="main",
    show_default=True,
    metavar="NAME",
    help="Name of the entry in the collector's configuration.",
)
def keygen(file: Path, last_day: dt.datetime | None, name: str) -> None:
    """Make a key that clients seal reports to.

    The private key goes to FILE, which only its owner can read. Keep it where reports are decoded,
    never on the collector. Standard output gets only the public key, for the app's `sealed_to`;
    standard error gets the lines for the collector's configuration.

    `hubbub-collector open` accepts a key until 30 days after its last day. Then delete the private
    key: nobody can read what was sealed to it after that, wherever copies remain.
    """
    today = dt.datetime.now(dt.UTC).date()
    last = last_day.date() if last_day else today + dt.timedelta(days=_USUAL_DAYS)
    if last < today:
        raise click.UsageError(f"--last-day {last}: must be {today} or later")
    with cli_errors():
        key = PrivateKey.generate(last)
        words = f"# Opens reports sealed to {key.public}. Delete after {key.public.opens_until}."
        write_key(file, words, str(key))
    click.echo(key.public)
    click.echo(f"[sealing_keys.{name}]\npublic = {toml_value(str(key.public))}", err=True)


def write_key(file: Path, words: str, key: str) -> None:
    """Make a file with a key, below a line that says what it is; none is replaced."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_ITS_OWNER)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(f"{words}\n{key}\n")
        opened.flush()
        os.fsync(opened.fileno())


def read_key(file: Path, parse: Callable[[str], _Key]) -> _Key:
    """Return the key in a file; an error names the file and nothing that is in it."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        texts = [line for line in lines if line.strip() and not line.startswith("#")]
        if len(texts) != 1:
            raise SealedError(f"{len(texts)} keys; must be one, and lines that begin with #")
        return parse(texts[0])
    except (SealedError, SwitchError, UnicodeDecodeError) as error:
        fault = "must be text" if isinstance(error, UnicodeDecodeError) else error
        raise StoreError(f"{file}: {fault}") from error
