"""The commands on a store: in and out, its schema, a copy of it, and the upkeep by hand."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from hubbub.collector.cli import cli_errors, config_option, configured, setting_flags
from hubbub.protocol import Registry, counted
from hubbub.reporting import progress_bar
from hubbub.storage import (
    Maintenance,
    Store,
    StoreError,
    backup_store,
    export_partitions,
    find_sources,
    import_file,
    mask_address,
    open_store,
    plan_export,
)

_DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.command("export")
@setting_flags("store")
@config_option
@click.option(
    "--to",
    "directory",
    required=True,
    metavar="DIR",
    help="Folder to write to, which is new, empty or from an earlier export: a path, "
    "s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Export only this metric; may be repeated.",
)
@click.option("--since", type=_DAY, metavar="DAY", help="First UTC day, such as 2026-11-01.")
@click.option("--until", type=_DAY, metavar="DAY", help="Last UTC day, inclusive.")
def export(
    store: str | None,
    config: Path | None,
    directory: str,
    metrics: tuple[str, ...],
    since: dt.datetime | None,
    until: dt.datetime | None,
) -> None:
    """Write stored reports as Parquet files that the decoder, DuckDB and Spark read.

    Each day gets a file DIR/metric=NAME/version=N/day=DAY/part-*.parquet with its reports in random
    order; the columns are cohort (uint16) and bits (k/8 bytes; bit j of the report is bit j%8 of
    byte j//8). Days that are kept only as counts get _counts-*.pq instead.

    A day's _manifest.json says how its reports were made, lists its files and is written last, so
    an export that is killed leaves nothing that would be read. Exporting a day again replaces its
    files. Days that the store no longer has stay in DIR: delete them by hand.

    Credentials for object storage come from the environment (AWS_ACCESS_KEY_ID and so on;
    AWS_ENDPOINT_URL for a server other than Amazon's), never from the address.
    """
    if since and until and since > until:
        message = f"{since:%F} is after --until {until:%F}"
        raise click.BadParameter(message, param_hint="--since")
    url = configured(config, store=store).store

    async def run() -> None:
        async with open_store(url, create=False) as opened:
            stored = {declared.metric for declared in await opened.declared()}
            for name in metrics:
                if name not in stored:
                    known = ", ".join(sorted(stored)) or "none"
                    message = f"{name!r} isn't in the store, which has: {known}"
                    raise click.BadParameter(message, param_hint="--metric")
            plan = await plan_export(opened, metrics, _date(since), _date(until))
            files = reports = 0
            with progress_bar("exporting") as progress:
                async for written in export_partitions(opened, directory, plan, progress=progress):
                    of_file = written.reports or 0
                    click.echo(
                        f"{written.path}: {'counts of ' if written.only_counts else ''}"
                        f"{counted(of_file, 'report')}, {counted(written.size or 0, 'byte')}"
                    )
                    files += 1
                    reports += of_file
        click.echo(
            f"exported {counted(reports, 'report')} in {counted(files, 'file')} "
            f"from {mask_address(url)} to {directory}"
        )

    with cli_errors():
        asyncio.run(run())


@click.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@setting_flags("metrics", "store")
@config_option
@click.option(
    "--metric",
    metavar="NAME",
    help="The metric of a file's reports; for a directory, import only this metric.",
)
@click.option(
    "--day",
    type=_DAY,
    metavar="DAY",
    help="The UTC day of a file's reports; for a directory, import only this day.",
)
def import_(
    paths: tuple[str, ...],
    metrics: str | None,
    store: str | None,
    config: Path | None,
    metric: str | None,
    day: dt.datetime | None,
) -> None:
    """Store the reports of exported directories or other Parquet files.

    PATH is an exported directory, a part of one, or a copy of one of its files: these name their
    metric, version and day. With --metric and --day, PATH may also be any Parquet file with the
    columns cohort and bits. The parameters must be the registry's. PATH may be an address in object
    storage, as for export.

    A whole file is checked before any of it is stored. Importing it or a copy again, even after a
    crash, counts nothing twice as long as the store remembers batch ids (14 days, unless configured
    otherwise). The same reports in a different file count again.
    """
    settings = configured(config, store=store, metrics=metrics)

    async def run() -> None:
        registry = Registry.load(settings.metrics)
        sources = find_sources(paths, registry, metric, _date(day))
        new = known = 0
        async with open_store(settings.store, create=True) as opened:
            for source in sources:
                await opened.declare([source.metric])
                with progress_bar(f"importing {source.path.name}") as progress:
                    found = await import_file(opened, source, progress=progress)
                click.echo(
                    f"{source.path}: {'counts of ' if source.only_counts else ''}"
                    f"{counted(found.new, 'report')} of {source.metric.name} version "
                    f"{source.metric.version}, {source.day}"
                    + (f"; imported before: {found.known:,}" if found.known else "")
                )
                new += found.new
                known += found.known
        there_before = f"; there before: {known:,}" if known else ""
        where = mask_address(settings.store)
        click.echo(f"imported {counted(new, 'report')} into {where}{there_before}")

    with cli_errors():
        asyncio.run(run())


@click.command()
@setting_flags("store", "deduplication_days", "retention_days", "report_days")
@config_option
@click.option(
    "--trust-clock",
    is_flag=True,
    help="Delete what is too old even if, by this clock, the last upkeep was more than 7 days ago "
    "or lies in the future.",
)
def maintain(config: Path | None, trust_clock: bool, **flags: str | None) -> None:
    """Merge small segments, count old reports, delete what is too old, and mix closed days.

    Each run also closes one past day, which then takes no more batch ids, or in PostgreSQL a large
    part of today.

    A running collector does this itself; the command is for stores whose collectors are stopped, or
    for cron. After half a minute, it doesn't start mixing another day.

    A clock that jumps forward would expire everything at once. So if the last upkeep was more than
    7 days ago, nothing is deleted because of its age until --trust-clock confirms the date.
    """
    settings = configured(config, **flags)

    async def run() -> None:
        async with _existing_store(settings.store) as opened:
            maintenance = Maintenance(
                opened,
                settings.deduplication_days,
                settings.retention_days,
                seconds=0,
                report_days=settings.report_days,
            )
            today = dt.datetime.now(dt.UTC).date()
            done = await maintenance.run_once(today, trust_clock=trust_clock)
        kept = f", kept only counts of {counted(done.counted, 'report')}"
        counts = kept if settings.report_days else ""
        click.echo(
            f"merged {counted(done.merged, 'segment')}, forgot the batch ids of "
            f"{counted(done.forgotten, 'day')}, deleted {counted(done.dropped, 'old report')}"
            f"{counts}"
        )
        if done.faults:
            faults = [f"failed to {step}: {fault}" for step, fault in done.faults.items()]
            raise StoreError("; ".join(faults))

    with cli_errors():
        asyncio.run(run())


@click.command()
@click.argument("metric")
@setting_flags("store")
@config_option
@click.option("--version", type=click.IntRange(1), help="Only this version's reports.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
def delete(
    metric: str, store: str | None, config: Path | None, version: int | None, yes: bool
) -> None:
    """Delete all reports of METRIC.

    Its version numbers can't be used again, because clients may still hold reports of them. To stop
    collecting, remove the metric from the apps and the registry first.
    """
    what = metric if version is None else f"{metric} version {version}"
    url = configured(config, store=store).store

    async def run() -> None:
        async with _existing_store(url) as opened:
            collected = await opened.declared()
            versions = [it.version for it in collected if it.metric == metric]
            if not versions:
                known = ", ".join(sorted({it.metric for it in collected})) or "none"
                raise StoreError(f"metric {metric!r}: must be one that was collected: {known}")
            if version not in {None, *versions}:
                known = ", ".join(map(str, versions))
                raise StoreError(
                    f"version {version} of {metric}: must be one that was collected: {known}"
                )
            days = [it for it in await opened.overview() if it.metric == metric]
            reports = sum(day.reports for day in days if version in {None, day.version})
            if not yes:
                where = f"{what} from {mask_address(url)}"
                click.confirm(
                    f"Delete {counted(reports, 'report')} of {where} for good?", abort=True
                )
            deleted = await opened.delete(metric, version)
            await opened.database.reclaim_space()
        click.echo(f"deleted {counted(deleted, 'report')} of {what}")

    with cli_errors():
        asyncio.run(run())


@click.command()
@setting_flags("store")
@config_option
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The new file; readable by its owner only.",
)
def backup(store: str | None, config: Path | None, target: Path) -> None:
    """Copy a store while it is in use, as it is at one moment.

    This is for SQLite, where copying the file with `cp` loses acknowledged reports that are still
    in the log next to it. Collectors keep taking reports meanwhile. FILE holds everything that was
    acknowledged before the copy, with its batch ids, so nothing counts twice after a restore. It
    appears only when it is complete and checked. For PostgreSQL, the command prints what to run
    instead and exits with code 1.

    Two backups of the same day show which reports arrived between them. So make one a day, keep it
    as safe as the store, and no longer than its reports may be kept.
    """
    url = configured(config, store=store).store

    with cli_errors():
        asyncio.run(backup_store(url, target))
        click.echo(
            f"copied {counted(target.stat().st_size, 'byte')} from {mask_address(url)} to {target}"
        )


@asynccontextmanager
async def _existing_store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, create=False):
        pass
    async with open_store(url, create=True) as store:
        yield store


def _date(moment: dt.datetime | None) -> dt.date | None:
    return moment.date() if moment else None
