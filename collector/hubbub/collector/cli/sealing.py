"""The commands of the opener of sealed reports: `keygen` makes a key, `open` uses it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from pathlib import Path

import click

from hubbub.collector.cli.group import cli_errors
from hubbub.collector.cli.key_files import read_key, write_key
from hubbub.collector.cli.stores import configured, metrics_option, progress_bar, store_options
from hubbub.collector.config.sources import toml_value
from hubbub.protocol.hpke import PrivateKey
from hubbub.protocol.plurals import counted
from hubbub.protocol.registry import Registry
from hubbub.storage import DATABASES, Store, open_store
from hubbub.storage.errors import StoreError, mask_address
from hubbub.storage.files.reader import SCHEME, ParquetReader
from hubbub.storage.sealed import OpenResult, open_reports

_USUAL_DAYS = 90  # a quarter: long enough to plan, short if the key is stolen


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


@click.command("open")
@click.option(
    "--key",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A private key made by `keygen`; may be repeated: give all that you haven't deleted.",
)
@click.option(
    "--from",
    "source",
    required=True,
    metavar="STORE|ADDRESS",
    help="Where sealed reports are: a directory that `export` made, or a collector's database.",
)
@metrics_option
@store_options
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that open records.  [default: one per core]",
)
def open_(
    files: tuple[Path, ...],
    source: str,
    metrics: str | None,
    store: str | None,
    config: Path | None,
    jobs: int | None,
) -> None:
    """Open sealed reports, away from the collector.

    Reports are checked as a collector checks them and go into --store, a separate database that
    `hubbub-decoder` reads. It must not be the collector's: whoever opens reports shouldn't see
    addresses, and the collector shouldn't see reports.

    Run it again for new records, when an export has grown, or after a crash: each report counts
    once. The store remembers what was opened until the last of the given keys has expired.
    """
    settings = configured(config, store=store, metrics=metrics)

    async def run(keys: list[PrivateKey]) -> OpenResult:
        registry = Registry.load(settings.metrics)
        async with open_store(settings.store, create=True) as into:

            async def open_from(reader: ParquetReader | Store) -> OpenResult:
                with progress_bar("opening") as progress:
                    return await open_reports(
                        reader, into, registry, keys, jobs=jobs or _cores(), progress=progress
                    )

            if source.partition(":")[0] not in DATABASES:
                return await open_from(ParquetReader(source.removeprefix(SCHEME)))
            async with open_store(source, create=False) as reader:
                return await open_from(reader)

    with cli_errors():
        if source == settings.store:
            raise StoreError(f"--from {mask_address(source)}: must be another store than --store")
        result = asyncio.run(run([read_key(file, PrivateKey.parse) for file in files]))
    for key, reports in sorted(result.new.items()):
        click.echo(f"{key.metric} version {key.version}: {counted(reports, 'report')}")
    for reason, records in result.left_out.most_common():
        click.echo(f"left out {counted(records, 'record')} {reason}")
    again = f"; opened before: {result.known:,}" if result.known else ""
    opened = counted(result.new.total(), "report")
    click.echo(f"opened {opened} into {mask_address(settings.store)}{again}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
