"""The command `open`, of those who hold the keys of sealed reports."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from hubbub.collector.cli.group import cli_errors
from hubbub.collector.cli.key_files import read_key
from hubbub.collector.cli.stores import configured, metrics_option, progress_bar, store_options
from hubbub.protocol.hpke import PrivateKey
from hubbub.protocol.plurals import counted
from hubbub.protocol.registry import Registry
from hubbub.storage import DATABASES, Store, open_store
from hubbub.storage.errors import StoreError, mask_address
from hubbub.storage.files.reader import SCHEME, ParquetReader
from hubbub.storage.sealed import OpenResult, open_reports


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
