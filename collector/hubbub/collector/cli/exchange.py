"""The commands `export` and `import` of hubbub-collector."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from hubbub.collector.cli.errors import cli_errors
from hubbub.collector.exchange.exporting import export_partitions, plan_export
from hubbub.collector.exchange.importing import find_sources, import_file
from hubbub.collector.store import open_store
from hubbub.protocol.registry import Registry

_DAY = click.DateTime(formats=["%Y-%m-%d"])
_store_option = click.option(
    "--store", default="sqlite:///hubbub.db", show_default=True, metavar="URL", help="The database."
)


@click.command("export")
@_store_option
@click.option(
    "--format",
    "_format",
    default="parquet",
    show_default=True,
    type=click.Choice(["parquet"]),
    help="What to write.",
)
@click.option(
    "--to",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="New, empty, or an earlier export's.",
)
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Only this one; repeatable."
)
@click.option("--since", type=_DAY, metavar="DAY", help="First UTC day, such as 2026-11-01.")
@click.option("--until", type=_DAY, metavar="DAY", help="Last UTC day, included.")
def export(
    store: str,
    _format: str,
    directory: Path,
    metrics: tuple[str, ...],
    since: dt.datetime | None,
    until: dt.datetime | None,
) -> None:
    """Write stored reports as Parquet files that the decoder, DuckDB and Spark read.

    A file DIR/metric=NAME/version=N/day=DAY/part-0.parquet for each day, with the columns cohort
    (uint16) and bits (k/8 bytes; bit j of the report is bit j%8 of byte j//8), in random order, and
    a _definition.json for each version. A day that is exported again replaces its file. Days that
    the store no longer has stay where they are: delete them by hand.
    """
    with cli_errors():
        asyncio.run(_export(store, directory, metrics, _date(since), _date(until)))


async def _export(
    url: str,
    directory: Path,
    metrics: tuple[str, ...],
    since: dt.date | None,
    until: dt.date | None,
) -> None:
    async with open_store(url, create=False) as store:
        stored = {declared.metric for declared in await store.declared()}
        for name in metrics:
            if name not in stored:
                known = ", ".join(sorted(stored)) or "none"
                message = f"{name!r} isn't in the store, which has: {known}"
                raise click.BadParameter(message, param_hint="--metric")
        plan = await plan_export(store, metrics, since, until)
        files = reports = 0
        with _bar("exporting") as progress:
            async for written in export_partitions(store, directory, plan, progress=progress):
                click.echo(f"{written.path}: {written.reports:,} reports, {written.size:,} bytes")
                files += 1
                reports += written.reports
    click.echo(f"exported {reports:,} reports in {files:,} files to {directory}")


@click.command("import")
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="PATH...",
    type=click.Path(exists=True, path_type=Path),
)
@click.option("--metrics", required=True, metavar="FILE", help="The registry, metrics.toml.")
@_store_option
@click.option(
    "--metric", metavar="NAME", help="Whose reports a file holds; of a directory: only these."
)
@click.option("--day", type=_DAY, metavar="DAY", help="Their UTC day, likewise.")
@click.option(
    "--column", default="irr", show_default=True, metavar="NAME", help="Column of bits in a CSV."
)
def import_(
    paths: tuple[Path, ...],
    metrics: str,
    store: str,
    metric: str | None,
    day: dt.datetime | None,
    column: str,
) -> None:
    """Store the reports of exported directories, Parquet files, or google/rappor's CSVs.

    PATH is an exported directory or a part of it, whose names say which metric, version and day it
    holds; or, with --metric and --day, a Parquet file with columns cohort and bits, or a CSV
    (.csv, .csv.gz) as google/rappor's clients write it, of which the cohort and one column of bits
    are read. Parameters must be those of the registry, and k a multiple of 8.

    google/rappor hashes strings in another way than hubbub, so string reports of its clients are
    decoded with its map of candidates instead of a list: hubbub-decoder decode METRIC --map FILE.

    A file is checked to its end before anything of it is stored. Importing it again, also after a
    crash, counts nothing twice, as long as the store remembers ids of batches (14 days, unless
    configured otherwise); the same reports in another file count again.
    """
    with cli_errors():
        registry = Registry.load(metrics)
        asyncio.run(_import(paths, registry, store, metric, _date(day), column))


async def _import(
    paths: tuple[Path, ...],
    registry: Registry,
    url: str,
    metric: str | None,
    day: dt.date | None,
    column: str,
) -> None:
    sources = find_sources(paths, registry, metric, day, column)
    new = known = 0
    async with open_store(url, create=True) as store:
        for source in sources:
            await store.declare([source.metric])
            with _bar(f"importing {source.path.name}") as progress:
                found = await import_file(store, source, progress=progress)
            click.echo(
                f"{source.path}: {found.new:,} reports of {source.metric.name} version "
                f"{source.metric.version}, {source.day}"
                + (f"; {found.known:,} were imported before" if found.known else "")
            )
            new += found.new
            known += found.known
    click.echo(f"imported {new:,} reports" + (f"; {known:,} were there before" if known else ""))


def _date(moment: dt.datetime | None) -> dt.date | None:
    return moment.date() if moment else None


@contextlib.contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal's standard error; yields update(done, total)."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def update(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield update
