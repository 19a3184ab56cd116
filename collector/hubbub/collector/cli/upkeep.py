"""The commands `maintain` and `delete`: upkeep of a store by hand, or by cron."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from hubbub.collector.cli.errors import cli_errors
from hubbub.collector.store import Store, open_store
from hubbub.collector.store.upkeep import Upkeep

_store_option = click.option(
    "--store", required=True, metavar="URL", help="sqlite:///PATH or postgresql://..."
)


@click.command()
@_store_option
@click.option(
    "--deduplication-days",
    default=14,
    show_default=True,
    type=click.IntRange(1, 36_500),
    help="Forget ids of batches after so many days; a batch sent again later counts again.",
)
@click.option(
    "--retention-days",
    type=click.IntRange(1, 36_500),
    help="Delete reports after so many days; kept for ever by default.",
)
def maintain(store: str, deduplication_days: int, retention_days: int | None) -> None:
    """Merge small segments, and forget what is too old.

    A running collector does so by itself; this is for stores whose collectors are stopped, and for
    whoever prefers cron.
    """

    async def run() -> None:
        async with _existing_store(store) as opened:
            upkeep = Upkeep(opened, deduplication_days, retention_days, seconds=0)
            done = await upkeep.run_once(dt.datetime.now(dt.UTC).date())
        click.echo(
            f"merged {done.merged:,} segments, forgot {done.forgotten:,} ids of batches, "
            f"deleted {done.dropped:,} old reports"
        )

    with cli_errors():
        asyncio.run(run())


@click.command()
@click.argument("metric")
@_store_option
@click.option("--version", type=click.IntRange(1), help="Only this version's reports.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
def delete(metric: str, store: str, version: int | None, yes: bool) -> None:
    """Delete all reports of METRIC.

    Its versions stay taken: clients may still hold what they made under them. To stop collecting,
    remove the metric from the registry first.
    """
    what = metric if version is None else f"{metric} version {version}"

    async def count() -> int:
        async with open_store(store, create=False) as opened:
            days = await opened.overview()
        return sum(
            day.reports for day in days if day.metric == metric and version in {None, day.version}
        )

    async def delete_reports() -> int:
        async with _existing_store(store) as opened:
            deleted = await opened.delete(metric, version)
            await opened.tidy()
            return deleted

    with cli_errors():
        if not yes:
            click.confirm(
                f"Delete {asyncio.run(count()):,} reports of {what} for good?", abort=True
            )
        click.echo(f"deleted {asyncio.run(delete_reports()):,} reports of {what}")


@asynccontextmanager
async def _existing_store(url: str) -> AsyncIterator[Store]:
    """Open a store for writing that must exist: a mistyped address creates none."""
    async with open_store(url, create=False):
        pass
    async with open_store(url, create=True) as store:
        yield store
